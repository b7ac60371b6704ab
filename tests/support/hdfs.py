"""A real HDFS on this machine: a name node and a data node in one process, which speak WebHDFS."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java
from deltaworks.stack.ports import free_ports

_SOURCE = Path(__file__).parent / "java" / "HdfsCluster.java"
_START_S = 120.0


@dataclass
class Hdfs:
    """A cluster that can be killed, and starts again with its data."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As `to_files` takes it, without a folder."""
        return f"webhdfs://tests@127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        settings = Settings.from_environment()
        java = find_java(settings, read_components(settings.infra).java_versions)
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        spark = Path(spec.origin).parent / "jars"
        jars = os.pathsep.join([*map(str, ensure_jars(settings, "yarn")), f"{spark}/*"])
        if not (self.folder / f"{_SOURCE.stem}.class").exists():
            compiler = java.home / "bin" / "javac"
            assert compiler.exists(), f"{compiler} is missing: a cluster of HDFS needs a JDK, not only a JRE"
            subprocess.run([compiler, "-proc:none", "-d", self.folder, "-cp", jars, _SOURCE], check=True)
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(java.executable), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                    "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.folder}",
                    "-cp", f"{self.folder}{os.pathsep}{jars}", _SOURCE.stem,
                    str(self.folder / "data"), str(self.port), str(ready),
                ],
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "JAVA_HOME": str(java.home)},
                cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + _START_S
        while not ready.exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()[-5000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to both nodes."""
        assert self.process is not None
        with self.process as process:  # its standard input is closed afterwards
            process.kill()

    def stop(self) -> None:
        """Ends it with its standard input."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> Path:
        return self.folder / "hdfs.log"


@contextmanager
def hdfs() -> Iterator[Hdfs]:
    """A cluster that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-hdfs-") as folder:
        (port,) = free_ports(1)
        found = Hdfs(Path(folder), port)
        try:
            found.start()
            yield found
        finally:
            found.stop()
