"""A project as a user has it: a folder with `jobs/`, the command line, streams that run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from deltalake import DeltaTable

from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.replay import runs
from deltaworks.replay.model import ReplayPlan, ReplayState
from deltaworks.settings import Settings
from tests.support.fault_hooks import HOOK, VARIABLE

WAIT_S = 600.0
_POLL_S = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What the command line said."""

    code: int
    text: str

    @property
    def run(self) -> str:
        """The id of the replay that it was about."""
        return self.text.partition("run ")[2].partition(":")[0]


@dataclass(frozen=True)
class Project:
    """A copy of `jobs/`, so that code can be broken, on a stack that runs."""

    settings: Settings

    @classmethod
    def create(cls, settings: Settings, folder: Path) -> Project:
        """The settings of `create` are those that the stack has to be started with."""
        package, origin, *others = settings.python_path
        shutil.copytree(settings.project / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
        python_path = (package, folder, origin, *others)  # the tests are in the origin
        return cls(replace(settings, project=folder, python_path=python_path))

    @classmethod
    def empty(cls, settings: Settings, folder: Path, *, cores: int) -> Project:
        """One without jobs, in a new folder."""
        (folder / "jobs").mkdir(parents=True)
        package, *others = settings.python_path
        return cls(replace(settings, project=folder, python_path=(package, folder, *others), cores=cores))

    def deltaworks(self, *arguments: str, faults: Path | None = None) -> Answer:
        """A command, to its end; the arguments are those of `launch`."""
        process = self.launch(*arguments, faults=faults)
        said, _ = process.communicate(timeout=WAIT_S)
        return Answer(process.returncode, said)

    def launch(self, *arguments: str, faults: Path | None = None) -> subprocess.Popen[str]:
        """A command in a session of its own.

        Args:
            arguments: of the command.
            faults: folder of orders (`tests.support.fault_hooks`); the process carries them out at its fault points.
        """
        module = "deltaworks.cli" if faults is None else "tests.system.replays.armed"
        environment = {**os.environ, **self.settings.process_environment()}
        if faults is not None:
            environment |= {"DELTAWORKS_FAULT_HOOK": HOOK, VARIABLE: str(faults)}
        return subprocess.Popen(
            [sys.executable, "-u", "-m", module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, cwd=self.settings.project, env=environment, start_new_session=True,
        )  # fmt: skip

    @contextmanager
    def streaming(self, name: str) -> Iterator[None]:
        """The stream of a pipeline runs, with the code that is there now."""
        with (self.settings.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "deltaworks.cli", "run", name, "--trigger-interval", "1"],
                stdout=log, stderr=subprocess.STDOUT, cwd=self.settings.project,
                env={**os.environ, **self.settings.process_environment()},
            )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(120) == 0, f"the stream {name} ended with {process.returncode}"

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as it is now."""
        return list(DeltaTable(self.settings.tables / name).to_pyarrow_table().to_pylist())

    def versions(self, names: Sequence[str]) -> dict[str, int]:
        """Of Delta tables."""
        return {name: DeltaTable(self.settings.tables / name).version() for name in names}

    def plan(self, run: str) -> ReplayPlan:
        """Of a replay that is not finished."""
        return runs.find(self.settings, run)[1]

    def state(self, run: str) -> ReplayState:
        """Of a replay that is not finished."""
        return runs.find(self.settings, run)[0].read_state()

    def comparison(self, run: str) -> Comparison:
        """What a replay that is not finished would change."""
        file = runs.find(self.settings, run)[0].comparison
        return msgspec.json.decode(file.read_bytes(), type=Comparison)

    def unfinished(self, name: str) -> list[str]:
        """The replays of a pipeline that are neither finished nor discarded."""
        return [plan.run_id for plan in runs.unfinished(self.settings, name)]


def until(fact: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """Polls until the answer is neither None nor False."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if answer := fact():
            return answer
        time.sleep(_POLL_S)
    raise AssertionError(f"{what}: not after {timeout_s:.0f} s")
