"""What old versions cost: a table whose data does not grow, for a simulated month of small commits.

`python -m tests.benchmarks.retention [--days 30] [--every 1]`

The clock is simulated, everything else is real: the committer, its housekeeping, the log, cuts and checkpoints. Each
commit replaces some pages of a windowed table. The pages are links to one file, and syncs are left out: neither is
what is measured. At the end of each day it prints what is on the disk, what opening the table costs a reader, and the
CPU time of the process per commit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from deltalake import DeltaTable

from deltaworks.clock import wall_ms
from deltaworks.lakehouse import cuts, layout, parquet
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.writes import NewFile, TableWrite
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

PAGES = 20
CHANGED = 3
"""Pages of a task that a commit replaces."""
START = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = "counts"
_READS = 5
_PATCHED = ("committer", "log", "housekeeping", "retention", "old_versions")


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
    open_ms: float
    """For delta-rs to open the table as of the newest cut and to list its files."""
    cpu_ms: float
    """CPU time of the process per commit."""


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

    def day(self, number: int, cpu_s: float, commits: int) -> Day:
        """Looks at the disk."""
        table = self.root / TABLE
        there = [path for path in table.rglob("*") if path.is_file() and path.name != self.template.path]
        folder = cuts.folder(self.root, "bench")
        old = f"{self.now - timedelta(days=1):%Y-%m-%dT%H}"
        return Day(
            number,
            commits,
            (sum(path.stat().st_size for path in there) + sum(p.stat().st_size for p in folder.iterdir())) / 1e6,
            sum(path.suffix == ".parquet" and "_delta_log" not in path.parts for path in there),
            len(list((table / layout.LOG_FOLDER).iterdir())),
            sum(path.name < old for path in folder.glob("*.jsonl")),
            statistics.median(_open_ms(self.root) for _ in range(_READS)),
            cpu_s / commits * 1000,
        )

    def _template(self) -> NewFile:
        schema = self.committer.tables[TABLE].schema
        folder = self.root / TABLE / f"window_date={START:%Y-%m-%d}"
        folder.mkdir()
        rows = schema.arrow.empty_table()
        return parquet.write(self.root, schema, f"window_date={START:%Y-%m-%d}/template.parquet", rows)


def _sink() -> DeltaSink:
    return DeltaSink(name="counts-sink", table=TABLE, kind=TableKind.WINDOWED, key=str, value=int)


def _open_ms(root: Path) -> float:
    begun = time.perf_counter()
    cut = cuts.latest(root, "bench")
    assert cut is not None
    assert len(DeltaTable(root / TABLE, version=cut.tables[TABLE]).file_uris()) == PAGES
    return (time.perf_counter() - begun) * 1000


@contextmanager
def simulated(month: list[Month]) -> Iterator[None]:
    """The clock of the month for all that looks after tables; no syncs."""

    def now_ms() -> int:
        return month[0].ms() if month else round(START.timestamp() * 1000)

    with ExitStack() as stack:
        for module in _PATCHED:
            for name in ("wall_ms", "cautious_ms"):
                target = f"deltaworks.lakehouse.{module}.{name}"
                stack.enter_context(mock.patch(target, now_ms, create=True))
        stack.enter_context(mock.patch("os.fsync", lambda handle: None))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--every", type=int, default=10, help="seconds between two commits")
    parser.add_argument("--root", type=Path, help="an empty folder; default: a temporary one in memory")
    arguments = parser.parse_args()
    found: list[Day] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary, simulated(months := []):
        root = arguments.root or Path(temporary)
        month = Month(root, timedelta(seconds=arguments.every))
        months.append(month)
        begun_ms = wall_ms()
        print(f"{'day':>4} {'commits':>9} {'MB':>8} {'files':>7} {'log':>7} {'older':>6} {'open ms':>8} {'CPU ms':>7}")
        for number in range(1, arguments.days + 1):
            cpu_s, before = time.process_time(), month.batch_id
            while month.now < START + timedelta(days=number):
                month.commit()
            month.committer.settle()
            found.append(day := month.day(number, time.process_time() - cpu_s, month.batch_id - before))
            print(
                f"{day.day:4} {day.commits:9} {day.megabytes:8.1f} {day.files:7} {day.log_files:7} {day.known:6} "
                f"{day.open_ms:8.1f} {day.cpu_ms:7.2f}",
                flush=True,
            )
        month.committer.close()
    first, last = found[0], found[-1]
    for name in ("megabytes", "files", "log_files", "open_ms", "cpu_ms"):
        print(f"{name}: last day / first day = {getattr(last, name) / getattr(first, name):.2f}")
    print(f"{(wall_ms() - begun_ms) / 1000:.0f} s for {month.batch_id + 1} commits")


if __name__ == "__main__":
    main()
