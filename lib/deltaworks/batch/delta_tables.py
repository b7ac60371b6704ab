"""Delta tables of batch jobs: read by Spark at a version, and the rows of a day replaced in one commit."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema

from deltaworks.batch.job import DAY
from deltaworks.control import cluster
from deltaworks.errors import ConfigurationError, ConflictError, TerminalError, TransientError
from deltaworks.lakehouse.described import Definition
from deltaworks.lakehouse.reading import delta_table, parquet_files
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.spark import class_data, s3a, session
from deltaworks.spark.cluster import Executors
from deltaworks.stack.jars import OBJECT_STORE, ensure_jars

_COMPILED = "-XX:TieredStopAtLevel=4"
_FOR_MANY_ROWS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.exchange.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.shuffle.compress": "true",
}
"""A stream's session is set up for batches of a few rows."""
_OF_EXECUTORS = {"spark.executor.extraJavaOptions": f"{session.JVM} {_COMPILED}"}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",  # Hadoop's default
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 tasks for each log, however short
    # Else a version is refused for its age, even if nothing of it was replaced: that of a table which changes seldom.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers take Spark's default for nanoseconds
}
_GONE = ("FileNotFoundException", "FILE_NOT_EXIST")
"""In what Spark says when a file is not there any more."""
_LONG_AGO = 10
"""Every so many commits, files are removed that no version of the last week needs."""


@contextmanager
def opened(settings: Settings, name: str, scratch: Path) -> Iterator[SparkSession]:
    """A session that reads Delta tables; it ends with the block.

    Args:
        settings: cores, memory, and further settings of Spark for `name`.
        name: of the batch job.
        scratch: folder for its temporary files.

    Raises:
        ConfigurationError: the settings of a Spark cluster do not fit together.
        StackError: the jars of Delta are missing and cannot be downloaded, or the cluster does not answer.
    """
    tables = settings.tables
    sets = ["spark", OBJECT_STORE] if isinstance(tables, ObjectPath) else ["spark"]
    jars = ",".join(str(jar) for name in sets for jar in ensure_jars(settings, name))
    spark = session.build(
        f"deltaworks-{name}",
        cores=settings.cores,
        partitions=2 * settings.cores,
        driver_memory=settings.driver_memory,
        scratch=scratch,
        python_path=settings.joined_python_path,
        options=f"{class_data.option(settings)} {_COMPILED}",
        extra={"spark.jars": jars, **DELTA, **_FOR_MANY_ROWS, **_OF_EXECUTORS, **settings.spark_of(name)},
        executors=Executors.of(settings, name),
    )
    try:
        if isinstance(tables, ObjectPath):
            s3a.reach(spark, tables, scratch)
        yield spark
    finally:
        spark.stop()


def at_version(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """A Delta table at a version; raises `TransientError` or `TerminalError` if it cannot be read."""
    with _told(f"The table '{path.name}' at version {version}"):
        return spark.read.format("delta").option("versionAsOf", version).load(str(path))


def staging(settings: Settings, name: str, folder: Path) -> Path:
    """Where the rows of a run of a job are until they are checked: a folder of this machine, or, if executors write
    them, a new one in the object store."""
    if cluster.of(settings, name) is None:
        return folder
    assert settings.storage is not None, "a cluster needs an object store"
    return settings.storage.path / "batch" / name / secrets.token_hex(8)


def stage(frame: object, wanted: pa.Schema, path: Path, what: str) -> None:
    """Computes a data frame and writes its rows to files of Parquet.

    Args:
        frame: what an author's function has returned.
        wanted: the columns of the table. Numbers that fit are widened; nothing is rounded.
        path: a folder that does not exist yet.
        what: names the function, for errors.

    Raises:
        ConfigurationError: the columns are others.
        TerminalError: Spark cannot compute the rows.
        TransientError: a file that it reads was removed meanwhile.
    """
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(f"{what} returned {type(frame).__name__}.", hint="return a DataFrame")
    target = from_arrow_schema(wanted)
    found = {field.name: field.dataType for field in frame.schema}
    if found.keys() != set(target.names):
        missing, extra = sorted(set(target.names) - found.keys()), sorted(found.keys() - set(target.names))
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(extra)} in addition"] * bool(extra)
        raise ConfigurationError(
            f"The data frame of {what} {' and '.join(parts)}.", hint=f"its columns: {', '.join(target.names)}"
        )
    for field in target:
        if not _fits(found[field.name], field.dataType):
            have, need = found[field.name].simpleString(), field.dataType.simpleString()
            raise ConfigurationError(
                f"In the data frame of {what}, {field.name} is {have}, but the table has {need}.",
                hint=f'col("{field.name}").cast("{need}"), where that is right, or another type in the row',
            )
    with _told(what):
        frame.select([col(f"`{each.name}`").cast(each.dataType) for each in target]).write.parquet(str(path))


def replace_day(staged: Path, root: Path, table: Definition, day: dt.date, *, note: str, what: str) -> int:
    """Replaces the rows of a day in one commit; makes the table if there is none.

    delta-rs commits: the store refuses it a version that somebody else has made. Spark looks and then writes, and so
    may replace one in an object store.

    Args:
        staged: the rows, by `stage`.
        root: folder of all tables.
        table: what it is; partitioned by `day`.
        day: the day.
        note: kept in the history of the table.
        what: names the job, for errors.

    Returns:
        The version of the table with the rows.

    Raises:
        ConflictError: somebody else has changed the same rows meanwhile.
        TransientError: the table cannot be written now.
    """
    path = root / table.name
    rows = parquet_files(staged, table.columns)
    try:
        table.create(root)
        there = delta_table(path)
        write_deltalake(
            there,
            rows.scanner().to_reader(),
            mode="overwrite",
            predicate=f"{DAY} = '{day}'",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": note}),
            writer_properties=_without_rounded(table.columns),
        )
        there.update_incremental()
        ours = [each["version"] for each in there.history(_LONG_AGO) if each.get("userMetadata") == note]
        version = int(max(ours))
        if version % _LONG_AGO == 0:
            there.vacuum(dry_run=False, full=True)
    except CommitFailedError as error:
        raise ConflictError(
            f"{what}: somebody else has changed the same rows meanwhile.", hint="run it again; it replaces the day"
        ) from error
    except (DeltaError, OSError) as error:
        raise TransientError(
            f"{what}: the table at {path} cannot be written: {error}", hint="run it again; it replaces the day"
        ) from error
    return version


def _without_rounded(columns: pa.Schema) -> WriterProperties:
    """No least and greatest decimals: delta-rs rounds them, and readers would skip files for them."""
    exact = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(column_properties=dict.fromkeys(_decimals(columns), exact))


def _decimals(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    for field in fields:
        if pa.types.is_decimal(field.type):
            yield f"{above}{field.name}"
        elif pa.types.is_struct(field.type):
            yield from _decimals(field.type, f"{above}{field.name}.")


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        if any(sign in text for sign in _GONE):
            raise TransientError(
                f"{what}: a file that it reads was removed meanwhile; nothing was changed.",
                hint="run it again; if it takes longer than tables keep replaced files, give it less to read",
            ) from error
        first = text.strip().split("\n", 1)[0]
        if any(sign in text for sign in s3a.AWAY):
            raise TransientError(f"{what}: the object store does not answer: {first}", hint="run it again") from error
        raise TerminalError(f"{what} fails: {first}") from error


def _fits(found: T.DataType, wanted: T.DataType) -> bool:
    """Whether every value of a type is one of another."""
    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    match found, wanted:
        case T.DecimalType(), T.DecimalType():
            return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
        case _, T.LongType():
            return isinstance(found, whole)
        case T.FloatType(), T.DoubleType():
            return True
        case T.ArrayType(), T.ArrayType():
            return _fits(found.elementType, wanted.elementType)
        case T.MapType(), T.MapType():
            return _fits(found.keyType, wanted.keyType) and _fits(found.valueType, wanted.valueType)
        case T.StructType(), T.StructType():
            return found.names == wanted.names and all(
                _fits(each.dataType, other.dataType) for each, other in zip(found, wanted, strict=True)
            )
        case _:
            return type(found) is type(wanted)
