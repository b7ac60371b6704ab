"""How long readers need until they know which files of a table to read; nothing of the files is read."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable
from pyspark import SparkContext

from deltaworks.batch import delta_tables
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.reading import dataset
from deltaworks.settings import Settings

_TIMES = 3


def of_arrow(root: Path, pipeline: str, table: str) -> float:
    """Milliseconds for `deltaworks.tables`, and DuckDB with its datasets, to open a table of the newest cut."""
    return _median_ms(
        lambda: len(dataset(root / table, DeltaTable(root / table, version=_version(root, pipeline, table))).files)
    )


def of_polars(root: Path, pipeline: str, table: str) -> float:
    """Milliseconds for polars to open a table of the newest cut."""

    def plan() -> None:
        pl.scan_delta(root / table, version=_version(root, pipeline, table)).explain()

    return _median_ms(plan)


def of_spark(root: Path, pipeline: str, table: str, scratch: Path) -> float:
    """Milliseconds for Spark SQL to open a table of the newest cut and to list its files; its JVM is warm."""
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    try:
        with delta_tables.opened(Settings.from_environment({}), "planning", scratch) as spark:
            gateway: Any = spark.sparkContext._gateway

            def plan() -> None:
                gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
                version = _version(root, pipeline, table)
                spark.sql(f"SELECT * FROM delta.`{root / table}` VERSION AS OF {version}").inputFiles()

            plan()
            found = _median_ms(plan)
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    finally:
        SparkContext._gateway, SparkContext._jvm = earlier
    return found


def _version(root: Path, pipeline: str, table: str) -> int:
    cut = cuts.latest(root, pipeline)
    assert cut is not None
    return cut.tables[table]


def _median_ms(plan: Callable[[], object]) -> float:
    found = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        plan()
        found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found)
