"""Is the cost of a window table that of the change? Measures one batch on tables of growing size.

    python -m tests.benchmarks.window_tables --scratch DIR [--sizes 10000,100000,1000000,10000000] [--output FILE]

One stream at different times of its day: a count per key in windows of ten seconds, four tasks, 1,000 changed rows a
batch. 95 % of them lie in the three newest windows, the others are late. Every few batches the newest window moves on,
and the oldest open one closes. Two streams:

- `open`: two days of grace, so that every window of the day is open, and two days before it; late rows go anywhere into
  the older days;
- `final`: an hour of grace, so that a large day is mostly final; late rows go anywhere into the last hour.

Reported per size: seconds and CPU seconds of a batch (tasks and commit), seconds of the commit alone, bytes written and
rows rewritten per changed row, and each relative to the smallest size. CPU seconds are the firmer ones on a machine
that does other things besides.

A batch pays for the pages it touches, so a stream whose changes are spread over millions of open rows of one window
pays a page per row; no plain Delta table without deletion vectors can avoid that.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

TASKS = 4
KEYS = 1_160
WINDOW_MS = 10_000
DAY_MS = 86_400_000
FIRST_DAY_MS = 20_000 * DAY_MS
OLDER_DAYS = 2
OLDER_WINDOWS = 172
"""Per day: 200 thousand rows."""
OLDER_STEP_MS = 500_000
OPEN_DAY_MS = FIRST_DAY_MS + OLDER_DAYS * DAY_MS
WARM_UP_BATCHES = 10
CHANGED_ROWS = 1_000
LATE_SHARE = 0.05
NEWEST_WINDOWS = 3
BATCHES_PER_WINDOW = 5
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
HOUR_MS = 3_600_000
TABLE = DeltaSink(name="counts", table="counts", kind=TableKind.WINDOWED, key=str, value=int)


class Stream(Enum):
    """How long windows stay open."""

    OPEN = "open"
    FINAL = "final"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One size of the open day; means over the batches unless said otherwise."""

    stream: str
    rows_in_open_day: int
    table_rows: int
    table_files: int
    open_pages: int
    batches: int
    batch_seconds: float
    batch_seconds_p50: float
    batch_cpu_seconds: float
    commit_seconds: float
    commit_seconds_p50: float
    commit_seconds_max: float
    bytes_per_changed_row: float
    """Of Parquet files, as committed."""
    all_bytes_per_changed_row: float
    """Of everything: log, checkpoints and merging included."""
    rewritten_rows_per_changed_row: float
    changed_rows: int


RATIOS = (
    "batch_seconds",
    "batch_seconds_p50",
    "batch_cpu_seconds",
    "commit_seconds",
    "commit_seconds_p50",
    "bytes_per_changed_row",
    "all_bytes_per_changed_row",
)


@dataclass(frozen=True)
class Run:
    """One batch."""

    seconds: float
    cpu_seconds: float
    commit_seconds: float
    written_bytes: int
    """All bytes that the process wrote: pages, log, and the merging and checkpoints that followed."""
    writes: list[TableWrite]


class Day:
    """A table whose open day grows, written the way the streaming host writes it."""

    def __init__(self, root: Path, stream: Stream) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self.committer = TableCommitter(root, "benchmark", "query", [TABLE])
        self.committer.open(1)
        self._stream = stream
        self._tasks = [TaskTables(root, [TABLE], None, stage=0, task=task) for task in range(TASKS)]
        self._random = random.Random(42)
        self._keys = [[f"user-{key:06d}" for key in range(KEYS) if key % TASKS == task] for task in range(TASKS)]
        self._batch_id = -1
        self._newest_ms = OPEN_DAY_MS
        self._closed_ms = FIRST_DAY_MS

    def fill_older_days(self) -> None:
        """What lies before the open day: two days, a window every few minutes, or the last hour, every window."""
        days = [FIRST_DAY_MS + day * DAY_MS for day in range(OLDER_DAYS)]
        match self._stream:
            case Stream.OPEN:
                self._fill([day + number * OLDER_STEP_MS for day in days for number in range(OLDER_WINDOWS)])
            case Stream.FINAL:
                self._fill(list(range(OPEN_DAY_MS - HOUR_MS, OPEN_DAY_MS, WINDOW_MS)))

    def grow_to(self, rows: int) -> None:
        """Fills the open day up to a number of rows."""
        wanted = OPEN_DAY_MS + max(NEWEST_WINDOWS, rows // KEYS) * WINDOW_MS
        starts = list(range(self._newest_ms, wanted, WINDOW_MS))
        for begin in range(0, len(starts), 100):
            self._newest_ms = starts[begin : begin + 100][-1] + WINDOW_MS
            self._fill(starts[begin : begin + 100])

    def batch(self, *, moves_on: bool) -> Run:
        """One batch of changes."""
        if moves_on:
            self._newest_ms += WINDOW_MS
        self._batch_id += 1
        for task, tables in enumerate(self._tasks):
            tables.begin(self._batch_id)
            for key, start in self._changes(task):
                tables.rows("counts").add((key, *self._value(start), start, start + WINDOW_MS))
        if moves_on:
            self._close(WINDOW_MS)
        return self._write()

    def _changes(self, task: int) -> Iterator[tuple[str, int]]:
        choose = self._random
        for _ in range(CHANGED_ROWS // TASKS):
            key = choose.choice(self._keys[task])
            if choose.random() >= LATE_SHARE:
                yield key, self._newest_ms - choose.randrange(1, NEWEST_WINDOWS + 1) * WINDOW_MS
            else:
                yield key, self._late()

    def _value(self, start: int) -> tuple[int, int]:
        """A count and the time of its last record."""
        return self._random.randrange(1000), start + self._random.randrange(WINDOW_MS)

    def _late(self) -> int:
        choose = self._random
        match self._stream:
            case Stream.OPEN:
                day = FIRST_DAY_MS + choose.randrange(OLDER_DAYS) * DAY_MS
                return day + choose.randrange(OLDER_WINDOWS // 2, OLDER_WINDOWS) * OLDER_STEP_MS
            case Stream.FINAL:
                return self._newest_ms - choose.randrange(1, HOUR_MS // WINDOW_MS) * WINDOW_MS

    def _close(self, step_ms: int) -> None:
        match self._stream:
            case Stream.OPEN:
                self._closed_ms += step_ms
            case Stream.FINAL:
                self._closed_ms = self._newest_ms - HOUR_MS
        for tables in self._tasks:
            tables.rows("counts").close_windows(self._closed_ms)

    def _fill(self, starts: Sequence[int]) -> None:
        self._batch_id += 1
        for task, tables in enumerate(self._tasks):
            tables.begin(self._batch_id)
            for start in starts:
                for key in self._keys[task]:
                    tables.rows("counts").add((key, *self._value(start), start, start + WINDOW_MS))
        self._close(0)
        self._write()

    def _write(self) -> Run:
        begun, cpu, before = time.perf_counter(), time.process_time(), _written_bytes()
        writes = [write for tables in self._tasks for write in tables.finish()]
        written = time.perf_counter()
        self.committer.commit(self._batch_id, writes)
        ended, cpu_ended = time.perf_counter(), time.process_time()
        self.committer.settle()
        return Run(ended - begun, cpu_ended - cpu, ended - written, _written_bytes() - before, writes)


def _written_bytes() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["wchar"])


def measure(scratch: Path, stream: Stream, sizes: Sequence[int], batches: int) -> list[Cell]:
    """Runs `batches` batches on a table of every size, turn by turn: what disturbs one disturbs all."""
    root = scratch / f"window-tables-{stream.value}"
    days = []
    for size in sorted(sizes):
        day = Day(root / str(size), stream)
        day.fill_older_days()
        day.grow_to(size)
        days.append(day)
        print(f"{stream.value}: a table with {size:,} rows in the open day is ready", flush=True)
    for number in range(WARM_UP_BATCHES):
        for day in days:
            day.batch(moves_on=number % BATCHES_PER_WINDOW == 0)
    runs: list[list[Run]] = [[] for _ in days]
    for number in range(batches):
        for day, done in zip(days, runs, strict=True):
            done.append(day.batch(moves_on=number % BATCHES_PER_WINDOW == 0))
    cells = [_cell(day, stream, size, done) for day, size, done in zip(days, sorted(sizes), runs, strict=True)]
    for day in days:
        day.committer.close()
    shutil.rmtree(root, ignore_errors=True)
    return cells


def _cell(day: Day, stream: Stream, size: int, runs: Sequence[Run]) -> Cell:
    writes = [write for run in runs for write in run.writes]
    changed = sum(write.changed_rows for write in writes)
    added = [file for write in writes for file in write.added]
    table = day.committer.tables["counts"]
    return Cell(
        stream=stream.value,
        rows_in_open_day=size,
        table_rows=sum(entry.rows for entry in table.log.files.values()),
        table_files=len(table.log.files),
        open_pages=sum(len(pages.pages.paths) for pages in table.pages.values()),
        batches=len(runs),
        batch_seconds=statistics.mean(run.seconds for run in runs),
        batch_seconds_p50=statistics.median(run.seconds for run in runs),
        batch_cpu_seconds=statistics.mean(run.cpu_seconds for run in runs),
        commit_seconds=statistics.mean(run.commit_seconds for run in runs),
        commit_seconds_p50=statistics.median(run.commit_seconds for run in runs),
        commit_seconds_max=max(run.commit_seconds for run in runs),
        bytes_per_changed_row=sum(file.size_bytes for file in added) / changed,
        all_bytes_per_changed_row=sum(run.written_bytes for run in runs) / changed,
        rewritten_rows_per_changed_row=sum(file.rows for file in added) / changed,
        changed_rows=changed,
    )


def ratios(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Each cost relative to that of the smallest table."""
    return {name: [round(getattr(cell, name) / getattr(cells[0], name), 3) for cell in cells] for name in RATIOS}


def main() -> None:
    """Measures, prints and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--streams", default="open,final")
    parser.add_argument("--batches", type=int, default=110)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    result: dict[str, Any] = {"cells": [], "ratios": {}}
    for stream in map(Stream, arguments.streams.split(",")):
        cells = measure(arguments.scratch, stream, sizes, arguments.batches)
        result["cells"] += [asdict(cell) for cell in cells]
        result["ratios"][stream.value] = ratios(cells)
    print(json.dumps(result, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
