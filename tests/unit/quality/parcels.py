"""Batches of the pipeline `parcels` (`conftest`), as its driver commits them."""

from __future__ import annotations

from types import SimpleNamespace

from deltaworks.control import batches, jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.settings import Settings


def write(batch: int, cities: list[str | None], grams: list[int], *, recorded: bool = True) -> None:
    """One batch; without a record of it, it is still being committed."""
    settings = Settings.from_environment()
    sinks = jobs.load(settings, "parcels").plan().tables
    committer = TableCommitter(settings.tables, "parcels", "query", sinks)
    committer.open(1)
    tables = TaskTables(settings.tables, sinks, None, stage=0, task=0)
    tables.begin(batch)
    for number, (city, weight) in enumerate(zip(cities, grams, strict=True), start=batch * 100):
        value = SimpleNamespace(city=city, grams=weight)
        tables.rows("parcels").add((str(number), value, 1_000, Coordinates("posted", 0, number)))
    committer.commit(batch, tables.finish())
    committer.close()
    if recorded:
        ranges = [Range("posted", 0, batch * 100, batch * 100 + len(cities))]
        folder = PipelinePaths.of(settings, "parcels").batches
        batches.append(folder, batches.record_of(batch, 1_000, ranges, tick=False))
