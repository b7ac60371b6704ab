"""The real Kafka Streams as a process: cases go in, what it does in them comes out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java
from tests.support.in_memory import memory

_SOURCES = Path(__file__).parent / "java"


class OracleError(RuntimeError):
    """The oracle cannot tell; its text says why."""


class KafkaStreams:
    """Compiles the interpreter and keeps it running. One JVM, one case at a time.

    While it works on a case that was sent, the caller can do something else.
    """

    def __init__(self, settings: Settings) -> None:
        # In memory, RocksDB makes a database in a millisecond; a disk takes twenty.
        self._folder = Path(tempfile.mkdtemp(prefix="oracle-", dir=memory()))
        java = find_java(settings, read_components(settings.infra).java_versions)
        # The second set brings the test driver, and Kafka Streams once more.
        jars = {jar.name: jar for name in ("kafka-streams-api", "kafka-streams") for jar in ensure_jars(settings, name)}
        class_path = [*map(str, jars.values())]
        compiler = java.home / "bin" / "javac"
        if not compiler.exists():
            raise OracleError(f"{compiler} is missing: comparing with Kafka Streams needs a JDK, not only a JRE")
        classes = self._folder / "classes"
        sources = sorted(_SOURCES.glob("*.java"))
        subprocess.run(
            [compiler, "-proc:none", "-d", classes, "-cp", os.pathsep.join(class_path), *sources], check=True
        )
        options = ["-Xmx1g", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._folder}"]
        search = os.pathsep.join([str(classes), str(_SOURCES), *class_path])
        self._process = subprocess.Popen(
            [java.executable, *options, "-cp", search, "Oracle", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, case: Mapping[str, Any]) -> None:
        """Starts a case; the answer to the one before must have been received."""
        stream = _open(self._process.stdin)
        stream.write(json.dumps(case) + "\n")
        stream.flush()

    def receive(self) -> dict[str, Any]:
        """What happened in the case that was sent, in the form of `expected`.

        Raises:
            OracleError: the interpreter failed, not the topology.
        """
        line = _open(self._process.stdout).readline()
        if not line:
            raise OracleError(f"the oracle has ended with exit code {self._process.wait()}")
        result: dict[str, Any] = json.loads(line)
        if "oracle_failed" in result:
            raise OracleError(result["oracle_failed"])
        return result


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # both were asked for
    return stream
