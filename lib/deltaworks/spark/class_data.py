"""A class-data archive of a stream's JVM, which maps it into memory instead of reading and linking each class.

It is made once for a set of jars, a Java and the JVM's options, and lies in the user's cache (`Settings.cache`):
`python -m deltaworks.spark.class_data`. A small query does what a stream does, without Kafka, and Java writes the
classes when it ends (dynamic class-data sharing, JDK 13 and later). A JVM compares the archive with itself and its
class path, and ignores one that does not fit; an archive that is not whole is not offered to it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from deltaworks.files import lock, sync, sync_folder
from deltaworks.runtime import messages
from deltaworks.settings import Settings
from deltaworks.spark import forking, session

FORMAT = 1
_FOLDER = "classes"
"""In the cache."""
_KEPT = 3
"""How many archives of earlier jars or Javas are kept: another clone may use them."""
_BATCHES = 3
_POLL_S = 0.1


def found(settings: Settings) -> Path | None:
    """The archive for the Java that Spark starts, if it is whole; None: it is missing, or that Java is unknown."""
    prefix = _prefix(settings)
    archives = [] if prefix is None else settings.cache.joinpath(_FOLDER).glob(f"{prefix}-*.jsa")
    return next((each for each in archives if each.name == _name(prefix, each)), None)


def option(settings: Settings) -> str:
    """The command-line option of a JVM that uses the archive, if there is one."""
    path = found(settings)
    return "" if path is None else f"-XX:SharedArchiveFile={shlex.quote(str(path))}"


def make(settings: Settings) -> bool:
    """Makes the archive unless it exists or another process makes it; returns whether it did.

    Call it in a process without another session: its JVM ends.
    """
    prefix, folder = _prefix(settings), settings.cache / _FOLDER
    if prefix is None or found(settings) is not None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if not lock(file):
            return False
        for left in folder.glob(".?*/"):  # of one that was killed
            shutil.rmtree(left)
        work = Path(tempfile.mkdtemp(dir=folder, prefix="."))
        try:
            _record(work)
            made = work / "classes.jsa"
            sync([made])
            made.rename(folder / _name(prefix, made))
            sync_folder(folder)
        finally:
            shutil.rmtree(work)
        for old in sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
    return True


def _prefix(settings: Settings) -> str | None:
    """The beginning of the archive's name: what it depends on."""
    java = _java()
    if java is None:
        return None
    jars = sorted(Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"))
    facts = [str(FORMAT), session.JVM, *map(_identity, (java / "lib" / "server" / "libjvm.so", *jars))]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def _name(prefix: str | None, archive: Path) -> str:
    """The name has the size: Java trusts the header, and crashes if the rest is cut off."""
    return f"{prefix}-{archive.stat().st_size}.jsa"


def _java() -> Path | None:
    """The Java that Spark's scripts choose."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    launcher = shutil.which("java")
    return None if launcher is None else Path(launcher).resolve().parent.parent


def _identity(path: Path) -> str:
    """What identifies a file for Java."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return f"{path} -"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _record(work: Path) -> None:
    """Runs the query with a JVM that writes its classes into `work` when it ends."""
    python_path = os.pathsep.join(filter(None, sys.path))
    archive = shlex.quote(str(work / "classes.jsa"))
    with forking.serving("deltaworks: Python of the classes", python_path) as forks:
        spark = session.build(
            "classes",
            cores=1,
            partitions=1,
            driver_memory="512m",
            scratch=work,
            python_path=python_path,
            forks=forks,
            options=f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable",  # it tells which ones it cannot take
        )
        gateway: Any = spark.sparkContext._gateway
        _run_query(spark, work / "checkpoint")
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends in an orderly way, and writes the archive
        gateway.proc.wait()


def _run_query(spark: SparkSession, checkpoint: Path) -> None:
    """Runs some batches of a stream with state."""
    spark.dataSource.register(_Numbers)
    numbers = spark.readStream.format("numbers").load()
    frame = numbers.groupBy("route").transformWithState(_Known(), messages.SCHEMA, "Update", "None")
    seen: list[int] = []

    def collect(rows: DataFrame, batch: int) -> None:
        rows.collect()
        seen.append(batch)

    writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(collect).start()
    while len(seen) < _BATCHES and query.isActive:
        query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # parts of a second work
    query.stop()


class _NumbersReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"next": start["next"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end["next"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int, int, bytes, bytes]]:
        yield 0, 0, 0, messages.INPUT, b"payload", b"batch"


class _Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return messages.SCHEMA

    def streamReader(self, schema: StructType) -> _NumbersReader:
        return _NumbersReader()


class _Known(StatefulProcessor):
    """State of the same kinds as that of tasks."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._known = handle.getMapState("known", "number long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        number = len(list(self._known.iterator()))
        self._known.updateValue((number,), (b"data",))
        if number > 1:
            self._known.removeKey((0,))
        yield from rows

    def close(self) -> None:
        pass


if __name__ == "__main__":
    make(Settings.from_environment())
