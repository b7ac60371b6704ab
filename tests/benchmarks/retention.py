"""What old versions cost: a table whose data does not grow, for a simulated month of small commits.

`python -m tests.benchmarks.retention [--days 30] [--every 1] [--spark]`

The clock is simulated, everything else is real: the committer, its housekeeping, the log, cuts and checkpoints. Each
commit replaces some pages of a windowed table. The pages are links to one file, and syncs are left out: neither is
what is measured. At the end of each day it prints what is on the disk, what planning costs readers, and the CPU time
per commit, of which housekeeping is a part.

`--sparse 120` is a short way to the end of the month: commits come every two minutes, but for the last hours of the
first and the last day. Of the time before, only the last versions of hours and days stay, and those are the same: all
pages were replaced in between. So files, bytes and log of these two days are those of the whole month; the CPU time is
that of their last hours.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from deltaworks.clock import wall_ms
from deltaworks.lakehouse import cuts, layout, parquet
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.housekeeping import Housekeeping
from deltaworks.lakehouse.writes import NewFile, TableWrite
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.benchmarks import planning

PAGES = 20
CHANGED = 3
"""Pages of a task that a commit replaces."""
START = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = "counts"
_READS = 8
"""How often a day it is measured what planning costs; the depth of the log varies."""
_SPARK_DAYS = 7
_DENSE = timedelta(hours=4)
"""More than the time for which every version stays, and what it takes to delete the others."""
_PATCHED = ("committer", "log", "housekeeping", "retention", "old_versions", "snapshots")


@dataclass(frozen=True)
class Day:
    """What there is at the end of a day."""

    day: int
    commits: int
    megabytes: float
    files: int
    log_files: int
    known: int
    """Cuts older than a day that can still be read."""
    arrow_ms: float
    """For `deltaworks.tables` to open the table as of the newest cut and to list its files."""
    polars_ms: float
    spark_ms: float | None
    """None: not measured."""
    cpu_ms: float
    """CPU time of the process per commit."""
    housekeeping_ms: float
    """The part of it that looks after old versions, small files and checkpoints."""


@dataclass
class Cost:
    """Of a day; the CPU time is that of commits alone, without what measures."""

    cpu_s: float = 0.0
    housekeeping_s: float = 0.0
    arrow_ms: list[float] = field(default_factory=list)
    polars_ms: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Another day."""
        self.cpu_s = self.housekeeping_s = 0.0
        self.arrow_ms, self.polars_ms = [], []

    def plan(self, root: Path) -> None:
        """Measures what planning costs now."""
        self.arrow_ms.append(planning.of_arrow(root, "bench", TABLE))
        self.polars_ms.append(planning.of_polars(root, "bench", TABLE))

    def measured(self, housekeeping: Callable[..., Any]) -> Callable[..., Any]:
        """Adds the CPU time of a function, in whichever thread, to that of housekeeping."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return housekeeping(*args, **kwargs)
            finally:
                self.housekeeping_s += time.thread_time() - begun

        return timed


class Month:
    """The table and its clock."""

    def __init__(self, root: Path, every: timedelta) -> None:
        self.root, self.every, self.now = root, every, START
        self.committer = TableCommitter(root, "bench", "bench-query", [_sink()])
        self.committer.open(1)
        self.committer.settled(-1)
        self.choose, self.tag = random.Random(1), layout.query_tag("bench-query")
        self.batch_id = -1
        self.template = self._template()
        self.pages = [""] * PAGES

    def ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def commit(self) -> None:
        """One batch."""
        self.batch_id += 1
        chosen = range(PAGES) if self.batch_id == 0 else self.choose.sample(range(PAGES), CHANGED)
        added, removed = [], []
        for number in chosen:
            path = layout.page_path(
                f"{START:%Y-%m-%d}", 0, number, 0, 1 << 50, self.template.rows, self.batch_id, self.tag
            )
            os.link(self.root / TABLE / self.template.path, self.root / TABLE / path)
            added.append(NewFile(path, self.template.size_bytes, self.template.rows, self.template.statistics))
            removed += [self.pages[number]] if self.pages[number] else []
            self.pages[number] = path
        write = TableWrite(TABLE, 0, tuple(added), tuple(removed), None, 10)
        self.committer.commit(self.batch_id, [write])
        self.committer.publish_cut()
        self.now += self.every

    def until(self, end: datetime) -> None:
        """Batches until then; housekeeping is done."""
        while self.now < end:
            self.commit()
        self.committer.settle()

    def day(self, number: int, cost: Cost, commits: int, *, spark: bool) -> Day:
        """Looks at the disk."""
        table = self.root / TABLE
        there = [path for path in table.rglob("*") if path.is_file() and path.name != self.template.path]
        folder = cuts.folder(self.root, "bench")
        old = f"{self.now - timedelta(days=1):%Y-%m-%dT%H}"
        with tempfile.TemporaryDirectory() as scratch:
            spark_ms = planning.of_spark(self.root, "bench", TABLE, Path(scratch)) if spark else None
        return Day(
            day=number,
            commits=commits,
            megabytes=(sum(p.stat().st_size for p in there) + sum(p.stat().st_size for p in folder.iterdir())) / 1e6,
            files=sum(path.suffix == ".parquet" and "_delta_log" not in path.parts for path in there),
            log_files=len(list((table / layout.LOG_FOLDER).iterdir())),
            known=sum(path.name < old for path in folder.glob("*.jsonl")),
            arrow_ms=statistics.median(cost.arrow_ms),
            polars_ms=statistics.median(cost.polars_ms),
            spark_ms=spark_ms,
            cpu_ms=cost.cpu_s / commits * 1000,
            housekeeping_ms=cost.housekeeping_s / commits * 1000,
        )

    def _template(self) -> NewFile:
        schema = self.committer.tables[TABLE].schema
        folder = self.root / TABLE / f"window_date={START:%Y-%m-%d}"
        folder.mkdir()
        rows = schema.arrow.empty_table()
        return parquet.write(self.root, schema, f"window_date={START:%Y-%m-%d}/template.parquet", rows)


def _sink() -> DeltaSink:
    return DeltaSink(name="counts-sink", table=TABLE, kind=TableKind.WINDOWED, key=str, value=int)


@contextmanager
def measured(cost: Cost) -> Iterator[None]:
    """Tells the housekeeping from the rest."""

    class Background(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return super().submit(cost.measured(fn), *args, **kwargs)

    after_commit = Housekeeping.after_commit

    def timed(self: Housekeeping, *args: Any) -> None:
        cost.measured(after_commit)(self, *args)

    with (
        mock.patch("deltaworks.lakehouse.committer.ThreadPoolExecutor", Background),
        mock.patch.object(Housekeeping, "after_commit", timed),
    ):
        yield


@contextmanager
def simulated(now_ms: Callable[[], int]) -> Iterator[None]:
    """A clock for all that looks after tables; no syncs."""
    with ExitStack() as stack:
        for module in _PATCHED:
            for name in ("wall_ms", "cautious_ms"):
                target = f"deltaworks.lakehouse.{module}.{name}"
                stack.enter_context(mock.patch(target, now_ms, create=True))
        stack.enter_context(mock.patch("os.fsync", lambda handle: None))
        yield


def simulate(
    root: Path, days: int, every: timedelta, *, sparse: timedelta | None = None, spark: bool = False
) -> Iterator[Day]:
    """One day after the other.

    Args:
        root: an empty folder.
        days: how many.
        every: between two commits.
        sparse: between two commits where it does not matter; None: it always does.
        spark: also measure Spark, once a week and on the last day.
    """
    months: list[Month] = []
    cost = Cost()
    with simulated(lambda: months[0].ms() if months else round(START.timestamp() * 1000)), measured(cost):
        months.append(month := Month(root, every))
        for number in range(1, days + 1):
            if sparse is not None:
                month.every = sparse
                month.until(START + timedelta(days=number) - _DENSE)
                month.every = every if number in (1, days) else sparse
            yield _day(month, cost, number, spark=spark and (number % _SPARK_DAYS == 1 or number == days))
        month.committer.close()


def _day(month: Month, cost: Cost, number: int, *, spark: bool) -> Day:
    """The rest of a day."""
    cost.begin()
    before, begun = month.batch_id, month.now
    rest = START + timedelta(days=number) - begun
    for part in range(1, _READS + 1):
        cpu_s = time.process_time()
        month.until(begun + rest * part / _READS)
        cost.cpu_s += time.process_time() - cpu_s
        cost.plan(month.root)
    return month.day(number, cost, month.batch_id - before, spark=spark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--every", type=int, default=10, help="seconds between two commits")
    parser.add_argument("--sparse", type=int, help="seconds between two commits where that does not matter; see above")
    parser.add_argument("--spark", action="store_true", help="also measure Spark, once a week")
    parser.add_argument("--root", type=Path, help="an empty folder; default: a temporary one in memory")
    arguments = parser.parse_args()
    found: list[Day] = []
    begun_ms = wall_ms()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        root, every = arguments.root or Path(temporary), timedelta(seconds=arguments.every)
        print(HEAD)
        sparse = None if arguments.sparse is None else timedelta(seconds=arguments.sparse)
        for day in simulate(root, arguments.days, every, sparse=sparse, spark=arguments.spark):
            found.append(day)
            print(line(day), flush=True)
    for name, ratio in growth(found[0], found[-1]).items():
        print(f"{name}: last day / first day = {ratio:.2f}")
    print(f"{(wall_ms() - begun_ms) / 1000:.0f} s for {sum(day.commits for day in found)} commits")


def growth(first: Day, last: Day) -> dict[str, float]:
    """What a day costs, as a multiple of what another one cost."""
    names = ("megabytes", "files", "log_files", "arrow_ms", "polars_ms", "spark_ms", "cpu_ms", "housekeeping_ms")
    both = {name: (getattr(first, name), getattr(last, name)) for name in names}
    return {name: late / early for name, (early, late) in both.items() if early is not None and late is not None}


HEAD = (
    f"{'day':>4} {'commits':>9} {'MB':>8} {'files':>7} {'log':>7} {'older':>6} "
    f"{'Arrow ms':>8} {'polars ms':>9} {'Spark ms':>8} {'CPU ms':>7} {'housekeeping ms':>15}"
)


def line(day: Day) -> str:
    """A day in a line below `HEAD`."""
    spark = "" if day.spark_ms is None else f"{day.spark_ms:.0f}"
    return (
        f"{day.day:4} {day.commits:9} {day.megabytes:8.1f} {day.files:7} {day.log_files:7} {day.known:6} "
        f"{day.arrow_ms:8.1f} {day.polars_ms:9.1f} {spark:>8} {day.cpu_ms:7.2f} {day.housekeeping_ms:15.3f}"
    )


if __name__ == "__main__":
    main()
