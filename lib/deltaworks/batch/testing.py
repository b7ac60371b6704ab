"""Batch jobs in tests: the rows of a day, computed by a Spark in this process."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from deltaworks.batch.definition import definition
from deltaworks.batch.job import BatchJob
from deltaworks.errors import ConfigurationError


def computed(job: BatchJob, day: dt.date, **tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows that a job computes, in the order of its key; columns and types are checked as in a real run.

    The first call of a process starts Spark, which takes seconds. It needs neither Delta Lake nor a home.

    ```
    assert computed(job, date(2026, 3, 1), payments=[{"timestamp": NOON, "amount": Decimal("2.50")}]) == [...]
    ```

    Args:
        job: the job.
        day: the UTC day.
        tables: the rows of each table that it reads, at least one; columns that it does not use may be left out.

    Raises:
        ConfigurationError: these are not the tables that it reads, or the columns of the result are not those of `row`.
        TerminalError: Spark cannot compute the rows.
    """
    if wrong := sorted(tables.keys() ^ set(job.reads)) or [name for name, rows in tables.items() if not rows]:
        raise ConfigurationError(
            f"The batch job '{job.name}' needs rows of {', '.join(job.reads)}; look at {', '.join(wrong)}.",
            hint="one argument for each table that it reads, with at least one row",
        )
    from deltaworks.batch import delta_tables

    spark = _session()
    frames = {name: spark.createDataFrame(pa.Table.from_pylist(list(rows))) for name, rows in tables.items()}
    with tempfile.TemporaryDirectory(prefix="deltaworks-batch-") as folder:
        staged = Path(folder) / "rows"
        delta_tables.stage(job.rows(day, frames), definition(job).columns, staged, job.name)
        found = pads.dataset(staged, format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: [str(row[column]) for column in job.key])


def _session() -> Any:
    """The session of this process."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]").appName("deltaworks-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
