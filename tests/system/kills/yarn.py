"""YARN on this machine: a resource manager and two node managers in one process, which start containers as real ones
do. They run as the user of the tests, in a Python without deltaworks, and know no folder of the project.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deltaworks import processes
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java
from tests.support.fault_hooks import VARIABLE
from tests.support.processes import words
from tests.system.kills.machines import environment, packed_tests

_SOURCE = Path(__file__).parent / "java" / "YarnCluster.java"
_EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_MASTER = "spark.deploy.yarn.ExecutorLauncher"
_START_S = 120.0
_NODES = 2


@dataclass
class Yarn:
    """A cluster that runs."""

    folder: Path
    python: Path
    """An environment for the executors."""
    spark: Path
    """The folder with Spark's jars."""
    process: subprocess.Popen[bytes]
    kills: list[str] = field(default_factory=list)

    def executors(self) -> set[str]:
        """The containers of executors that run."""
        return {each.environ()["CONTAINER_ID"] for each in self._containers(_EXECUTOR)}

    def kill_executor(self) -> None:
        """SIGKILL to an executor with all below it, as soon as there is one."""
        self._kill(_EXECUTOR, "executor")

    def kill_master(self) -> None:
        """SIGKILL to the application's master; waits until YARN has started another attempt, with new executors."""
        before = self.executors()
        self._kill(_MASTER, "application master")
        self.until(lambda: bool(self.executors() - before), "no other master has executors")

    def stores(self) -> set[str]:
        """The containers whose folders have local stores."""
        found = [*self.folder.glob("target/**/usercache/*/appcache/*/container_*/deltaworks")]
        return {each.parent.name for each in found}

    def words(self) -> list[str]:
        """What the command lines of the cluster and its containers show."""
        return words(psutil.Process(self.process.pid))

    def table(self) -> str:
        """What `deltaworks.toml` says of the cluster."""
        return (
            f'hadoop_conf_dir = "{self.folder}/conf"\n[spark]\n"spark.master" = "yarn"\n'
            f'"spark.pyspark.python" = "{self.python}/bin/python"\n"spark.executor.memory" = "600m"\n'
            f'"spark.executor.cores" = 2\n"spark.yarn.am.memory" = "256m"\n'
            f'"spark.yarn.jars" = "local:{self.spark}/*"\n"spark.yarn.stagingDir" = "file:{self.folder}/staging"\n'
            f'"spark.submit.pyFiles" = "{packed_tests(self.folder)}"\n'
            f'"spark.executorEnv.{VARIABLE}" = "{self.folder}/faults"\n'
        )

    def until(self, fact: Callable[[], bool], otherwise: str) -> None:
        """Waits for a fact."""
        end = time.monotonic() + _START_S
        while not fact():
            assert time.monotonic() < end, f"{otherwise} within {_START_S:.0f} s"
            time.sleep(0.1)

    def _kill(self, program: str, what: str) -> None:
        self.until(lambda: bool(self._containers(program)), f"there is no {what}")
        processes.kill(processes.family(self._containers(program)[0]), timeout_s=30)
        self.kills.append(what)

    def _containers(self, program: str) -> list[psutil.Process]:
        found = []
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if each.name() == "java" and any(program in word for word in each.cmdline()):
                    found.append(each)
        return found


@contextmanager
def yarn() -> Iterator[Yarn]:
    """A cluster with two nodes, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-yarn-") as place:
        folder = Path(place)
        (folder / "conf").mkdir()
        python = environment(folder / "python")
        (spark,) = python.glob("lib/python3.*/site-packages/pyspark/jars")
        with (folder / "yarn.log").open("wb") as log:
            process = _started(folder, spark, log.fileno())
        try:
            found = Yarn(folder, python, spark, process)
            file = folder / "conf" / "yarn-site.xml"
            found.until(lambda: file.exists() or process.poll() is not None, "YARN is not ready")
            assert file.exists(), (folder / "yarn.log").read_text()
            yield found
        finally:
            family = processes.family(psutil.Process(process.pid))
            assert process.stdin is not None
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            processes.kill(family, timeout_s=30)
            process.wait()


def _started(folder: Path, spark: Path, log: int) -> subprocess.Popen[bytes]:
    """The process of the cluster, with nothing of the environment of the tests."""
    settings = Settings.from_environment()
    java = find_java(settings, read_components(settings.infra).java_versions)
    jars = os.pathsep.join([*map(str, ensure_jars(settings, "yarn")), f"{spark}/*"])
    compiler = java.home / "bin" / "javac"
    assert compiler.exists(), f"{compiler} is missing: a cluster of YARN needs a JDK, not only a JRE"
    subprocess.run([compiler, "-proc:none", "-d", folder, "-cp", jars, _SOURCE], check=True)
    return subprocess.Popen(
        [
            str(java.executable), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={folder}", "-cp", f"{folder}{os.pathsep}{jars}", _SOURCE.stem,
            str(folder / "conf" / "yarn-site.xml"), str(_NODES),
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "JAVA_HOME": str(java.home)},
        cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
