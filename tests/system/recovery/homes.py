"""A pipeline in a home of its own, at the broker of the session, run as a user runs it: by commands alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from confluent_kafka import Producer

from deltaworks import exits
from deltaworks.control.intents import Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import LocalFiles
from deltaworks.kafka.admin import TopicSpec, create_topics, delete_topics
from deltaworks.settings import Settings
from tests.support import fault_hooks
from tests.support.live_stack import LiveStack, read_all

WAIT_S = 240.0
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    text: str

    @property
    def command(self) -> list[str]:
        """The command that the last hint names, ready to be run."""
        (found,) = re.findall(r"deltaworks ((?:accept|run) [\w ./-]+)", self.text.rpartition("Hint:")[2])
        return str(found).split()


@dataclass(frozen=True)
class Home:
    """One home of a pipeline."""

    name: str
    settings: Settings

    @classmethod
    def of(cls, kafka: LiveStack, folder: Path, name: str, job: str) -> Home:
        """A project with one job, and its first home."""
        project = folder / "project"
        (project / "jobs").mkdir(parents=True)
        (project / "jobs" / f"{name}.py").write_text(job)
        package, *_ = kafka.settings.python_path
        settings = replace(
            kafka.settings,
            project=project,
            python_path=(package, project, _ROOT),
            control_url=kafka.settings.registry_url,
            cores=1,
            fault_hook=fault_hooks.HOOK,
        )
        return cls(name, settings).elsewhere(folder / "home")

    def elsewhere(self, folder: Path, *, copied: bool = False) -> Home:
        """Another home: an empty one, or a copy of this one."""
        if copied:
            shutil.copytree(self.settings.home, folder, symlinks=True)
        else:
            folder.mkdir()
            (folder / "jars").symlink_to(self.settings.jars.resolve())
        return replace(self, settings=replace(self.settings, home=folder))

    @property
    def paths(self) -> PipelinePaths:
        return PipelinePaths.of(self.settings, self.name)

    @property
    def intents(self) -> Intents:
        return Intents(LocalFiles(self.paths.current.intents))

    def deltaworks(self, *arguments: str, code: int = exits.OK) -> Said:
        """A command, to its end."""
        done = subprocess.run(
            self._command(*arguments), env=self._environment(), cwd=self.settings.project, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout[-4_000:]
        return Said(done.returncode, done.stdout)

    def catch_up(self, *options: str, code: int = exits.OK) -> Said:
        """`run` until everything is processed that is there, or until it refuses."""
        return self.deltaworks("run", self.name, "--until-caught-up", *options, code=code)

    @contextmanager
    def running(self, *options: str) -> Iterator[Running]:
        """`run`, which ends with the block at the latest."""
        log = self.settings.home / "run.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._command("run", self.name, "--trigger-interval", "0.1", *options), env=self._environment(),
                cwd=self.settings.project, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        try:
            yield Running(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(WAIT_S)
            for other in psutil.process_iter():
                with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                    if os.getsid(other.pid) == process.pid:
                        other.kill()

    def fail_at(self, point: str, how: str = "kill") -> None:
        """The next driver or worker that reaches the point ends there."""
        orders = self._faults / "inject"
        orders.mkdir(parents=True, exist_ok=True)
        (orders / f"{point}.new").write_text(how)
        (orders / f"{point}.new").rename(orders / point)

    # Topics

    def create(self, topic: str, partitions: int = 1) -> None:
        create_topics(self.settings.bootstrap, [TopicSpec(name=topic, partitions=partitions)])

    def recreate(self, topic: str) -> None:
        """Another topic of the same name."""
        delete_topics(self.settings.bootstrap, [topic])
        self.create(topic)

    def send(self, topic: str, numbers: Sequence[int], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, "log_level": 0})
        for number in numbers:
            producer.produce(topic, number.to_bytes(8, "big", signed=True), b"k", partition)
        assert producer.flush(30) == 0

    def committed(self, topic: str) -> list[int]:
        """What a `read_committed` consumer gets."""
        values = (message.value() for message in read_all(self.settings.bootstrap, topic))
        return [int.from_bytes(value or b"", "big", signed=True) for value in values]

    @property
    def _faults(self) -> Path:
        return self.settings.home / "faults"

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "deltaworks.cli", *arguments]

    def _environment(self) -> dict[str, str]:
        mine = {fault_hooks.VARIABLE: str(self._faults), "COLUMNS": "500"}
        return {**os.environ, **self.settings.process_environment(), **mine}


@dataclass(frozen=True)
class Running:
    """A stream in the foreground of somebody else."""

    process: subprocess.Popen[bytes]
    log: Path

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Polls while it runs."""
        end = time.monotonic() + WAIT_S
        while not fact():
            assert self.process.poll() is None, f"it ended before {what}: {self.text[-4_000:]}"
            assert time.monotonic() < end, f"{what}: not in {WAIT_S:.0f} s: {self.text[-2_000:]}"
            time.sleep(0.1)

    def stop(self) -> None:
        """The polite way."""
        self.process.terminate()
        assert self.process.wait(WAIT_S) == exits.OK, self.text[-4_000:]

    def ends(self, code: int) -> Said:
        """By itself."""
        assert self.process.wait(WAIT_S) == code, self.text[-4_000:]
        return Said(code, self.text)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")
