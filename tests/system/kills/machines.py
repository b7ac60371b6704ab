"""A standalone cluster of Spark whose workers share nothing with the project: as good as other machines.

Each worker has a user of its own (if the tests run as root), a home, a working folder and a temporary folder that no
other user can read, and a Python of its own, with what `deltaworks[spark,s3]` needs and without deltaworks. The
project, the home of the driver and the folders of other workers are closed to it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pwd
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tests
from deltaworks import processes
from deltaworks.stack import ports
from tests.benchmarks.measure import CpuClock
from tests.support.fault_hooks import VARIABLE
from tests.support.processes import words

_USERS = ("games", "news", "backup", "proxy")
"""Every Debian has them, and nothing of them runs."""
_START_S = 60.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass
class Worker:
    """A worker that runs, or ran."""

    number: int
    user: str | None
    """None: the one of the tests."""
    folder: Path
    port: int
    process: subprocess.Popen[bytes]


@dataclass
class Machines:
    """The master and its workers."""

    folder: Path
    python: Path
    """An environment, which all workers may read."""
    cores: int
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    workers: dict[int, Worker] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)
    _clocks: dict[int, CpuClock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port, self._page = ports.free_ports(2)
        self.faults = self.folder / "faults"
        for each in (self.faults, *(self.faults / name for name in ("trace", "inject", "done"))):
            each.mkdir()
            each.chmod(0o777)
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_master(self) -> None:
        """Starts the master, or starts it again: it knows its workers and applications."""
        recovery = self._private(self.folder / "master", None)
        options = {"spark.deploy.recoveryMode": "FILESYSTEM", "spark.deploy.recoveryDirectory": str(recovery)}
        self._master = self._spark(
            None, recovery, "master.Master", "--port", str(self.port), "--webui-port", str(self._page), options=options
        )
        self.until(lambda: self._state().get("status") == "ALIVE", "the master is not ready")

    def add_worker(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        """Starts a worker, and waits until the master knows it.

        Args:
            number: of the worker; each has a user of its own.
            environment: further variables, which its executors get, too.
        """
        user = _USERS[number] if os.geteuid() == 0 else None
        folder, port = self._private(self.folder / f"worker-{number}", user), ports.free_ports(1)[0]
        process = self._spark(
            user, folder, "worker.Worker",
            "--port", str(port), "--webui-port", "0", "-c", str(self.cores), "-m", "3g", self.master,
            environment=environment,
        )  # fmt: skip
        self.workers[number] = Worker(number, user, folder, port, process)
        self.until(lambda: port in self._alive(), f"worker {number} is not ready")

    def remove_worker(self, number: int) -> None:
        """Ends a worker and its executors, as when a machine is given back."""
        worker = self.workers.pop(number)
        processes.kill(self._of(worker), timeout_s=30)
        worker.process.wait()

    def kill_executor(self, number: int) -> None:
        """SIGKILL to an executor of a worker, and to its Python, as soon as there is one."""
        self.until(lambda: bool(self._executors(number)), f"worker {number} has no executor")
        self._kill(self._executors(number)[:1])

    def kill_any_executor(self, rng: random.Random) -> None:
        """SIGKILL to one of all executors, as soon as there is one: a stream on one core has no more."""
        self.until(lambda: bool(self._all_executors()), "no worker has an executor")
        self._kill([rng.choice(self._all_executors())])

    def kill_one_of_several(self, rng: random.Random) -> None:
        """SIGKILL to one of all executors, if there are two: the other one can go on."""
        if len(there := self._all_executors()) > 1:
            self._kill([rng.choice(there)])

    def _all_executors(self) -> list[psutil.Process]:
        return [each for number in list(self.workers) for each in self._executors(number)]

    def _executors(self, number: int) -> list[psutil.Process]:
        return [each for each in self._of(self.workers[number]) if _EXECUTOR in _words(each)]

    def _kill(self, executors: Sequence[psutil.Process]) -> None:
        for each in executors:
            processes.kill(processes.family(each), timeout_s=30)
            self.kills.append("executor")

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and all of its executors, as when a machine loses power; it starts again at once."""
        self.remove_worker(number)
        self.kills.append("worker")
        self.add_worker(number)

    def kill_master(self) -> None:
        """SIGKILL to the master; it starts again."""
        assert self._master is not None
        self._master.kill()
        self._master.wait()
        self.kills.append("master")
        self.start_master()

    def has_run(self, number: int) -> bool:
        """Whether a Python worker of an executor of this worker runs, as it does after its first task."""
        return any("pyspark" in _words(each) and "python" in each.name() for each in self._of(self.workers[number]))

    def words(self) -> list[str]:
        """What the command lines of all workers and their executors show."""
        return [word for worker in self.workers.values() for word in words(psutil.Process(worker.process.pid))]

    def cpu_s(self) -> float:
        """CPU seconds of all workers and their executors; look often, and do not remove workers meanwhile."""
        for number, worker in self.workers.items():
            self._clocks.setdefault(number, CpuClock(worker.process.pid))
        return sum(clock.seconds() for clock in self._clocks.values())

    def executors(self) -> int:
        """How many run."""
        return sum(len(self._executors(number)) for number in self.workers)

    def stop(self) -> None:
        for number in list(self.workers):
            self.remove_worker(number)
        if self._master is not None:
            processes.kill(processes.family(psutil.Process(self._master.pid)), timeout_s=30)
            self._master.wait()

    def table(self) -> str:
        """`[spark]` of a project that uses the cluster; its file `secret` has the secret."""
        return (
            f'[spark]\n"spark.master" = "{self.master}"\n"spark.authenticate.secret" = {{ file = "secret" }}\n'
            f'"spark.pyspark.python" = "{self.python}/bin/python"\n"spark.executor.memory" = "600m"\n'
            f'"spark.submit.pyFiles" = "{packed_tests(self.folder)}"\n'
            f'"spark.executorEnv.{VARIABLE}" = "{self.faults}"\n'
        )

    def _of(self, worker: Worker) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return processes.family(psutil.Process(worker.process.pid))
        return []

    def _alive(self) -> set[int]:
        return {int(each["port"]) for each in self._state().get("workers", []) if each["state"] == "ALIVE"}

    def _state(self) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._page}/json/"
        with suppress(OSError, ValueError), urllib.request.urlopen(address, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)  # at first, it answers with a page
            return found
        return {}

    def _spark(
        self,
        user: str | None,
        folder: Path,
        name: str,
        *arguments: str,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a process of Spark as a user, in a folder, with nothing of the environment of the tests."""
        home = self.python / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pyspark"
        settings = {"spark.authenticate": "true", "spark.authenticate.secret": self.secret, **(options or {})}
        file = folder / "spark.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        file.chmod(0o600)
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={folder}",
            **(environment or {}),
        }
        if user is not None:
            shutil.chown(file, user)
        with (folder / "spark.log").open("ab") as log:
            return subprocess.Popen(
                [
                    home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}",
                    "--host", "127.0.0.1", "--properties-file", file, *arguments,
                ],
                env={name: value for name, value in variables.items() if value}, cwd=folder,
                stdout=log, stderr=log, start_new_session=True,
                user=user, group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [], umask=0o077,
            )  # fmt: skip

    def _private(self, folder: Path, user: str | None) -> Path:
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
        return folder

    def until(self, fact: Callable[[], bool], otherwise: str) -> None:
        """Polls for a fact.

        Raises:
            AssertionError: it does not come.
        """
        end = time.monotonic() + _START_S
        while not fact():
            assert time.monotonic() < end, f"{otherwise} within {_START_S:.0f} s"
            time.sleep(0.1)


@contextmanager
def machines(workers: int = 2, *, cores: int = 2, extras: Collection[str] = ()) -> Iterator[Machines]:
    """A master and workers, which end with the block.

    Args:
        workers: how many.
        cores: of each worker.
        extras: of deltaworks, that their Python has besides.
    """
    with tempfile.TemporaryDirectory(prefix="deltaworks-cluster-") as place:
        folder = Path(place)
        folder.chmod(0o711)
        found = Machines(folder, environment(folder / "python", extras), cores)
        try:
            found.start_master()
            for number in range(workers):
                found.add_worker(number)
            yield found
        finally:
            found.stop()


def environment(folder: Path, extras: Collection[str] = ()) -> Path:
    """An environment with what `deltaworks[spark,s3]` needs; its files are links to those of this environment.

    Args:
        folder: a new one.
        extras: further ones.
    """
    subprocess.run([_python_of_all(), "-m", "venv", "--without-pip", folder], check=True)
    target = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in sorted(_needed("deltaworks", {"spark", "s3", *extras})):
        distribution = importlib.metadata.distribution(name)
        for each in distribution.files or ():
            source, place = Path(str(distribution.locate_file(each))), target / each
            if ".." in each.parts or not source.is_file():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, place)
            except OSError:  # on another disk
                shutil.copy2(source, place)
    return folder


def _python_of_all() -> str:
    """A Python of the version of this one that the users of the workers may run: ours may be in somebody's home."""
    name = f"python3.{sys.version_info.minor}"
    others: dict[str, Any] = (
        {} if os.geteuid() else {"user": _USERS[0], "group": pwd.getpwnam(_USERS[0]).pw_gid, "extra_groups": []}
    )
    for python in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin")):
        with suppress(OSError, subprocess.SubprocessError):
            if python is not None:
                subprocess.run([python, "-c", ""], check=True, cwd="/", **others)
                return python
    raise AssertionError(f"the users of the workers need a {name} that they may run: apt install {name}")


def packed_tests(folder: Path) -> Path:
    """What executors need of the tests, in a file for Python's path."""
    target = folder / "tests.zip"
    root = Path(tests.__file__).parent
    with zipfile.ZipFile(target, "w") as archive:
        for path in (root / "__init__.py", *(root / "support").glob("*.py"), *(root / "mutation").rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
    return target


def _needed(name: str, extras: set[str]) -> set[str]:
    """The distributions that a distribution of this environment needs, itself not among them."""
    found: set[str] = set()
    left = [(name, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        here = left.pop()
        if here in seen:
            continue
        seen.add(here)
        for line in importlib.metadata.requires(here[0]) or ():
            each = Requirement(line)
            wanted = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*here[1], ""))
            if wanted:
                left.append((canonicalize_name(each.name), frozenset(each.extras)))
                found |= {canonicalize_name(each.name)} - {name}
    return found


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
