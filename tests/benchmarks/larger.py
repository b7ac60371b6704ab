"""Tables larger than memory: peak memory and seconds of quality suites, comparison and SQL.

    python -m tests.benchmarks.larger [--sizes 1000000,10000000,50000000] [--memory-mb 2048] [--scratch DIR]

A windowed table (`larger_tables`) of some days, a million rows each: key, window, counts, money, a float, a country. In
a process of its own, at each size:

- `suite`: the suite of `larger_suite` and the invariants, as `deltaworks quality` checks them;
- `suite in one frame`: the same with the whole table as one data frame, which is how a small table is checked;
- `comparison`: the table against one that differs in a few rows of each tenth day, as a replay is compared;
- `sql`: a report per day with exact distinct keys, the ten largest rows, and keys that occur twice in a window.

Reported are the seconds, CPU seconds and the peak of the resident memory of the process and its children, read every 50
milliseconds. A process that exceeds `--memory-mb` is killed, and has no result.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from deltaworks.lakehouse.sandbox import Limits, limited_process
from tests.benchmarks import larger_tables

SIZES = "1000000,10000000,50000000"
UNLIMITED_MB = 10**9
QUERIES = (
    "SELECT window_date, count(*), sum(revenue), avg(weight), count(DISTINCT key) FROM sales GROUP BY ALL ORDER BY 1",
    "SELECT * FROM sales ORDER BY weight DESC LIMIT 10",
    "SELECT key, window_start, count(*) AS rows FROM sales GROUP BY ALL HAVING rows > 1",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run; without a result, it was killed or failed."""

    rows: int
    what: str
    seconds: float
    cpu_seconds: float
    peak_mb: int
    result: str | None


def suite(root: Path, frame_mb: int = Limits.frame_mb) -> str:
    from deltaworks.quality.gate import judge
    from tests.benchmarks.larger_suite import SUITE

    limits = Limits(frame_mb=frame_mb, folder=root, seconds=36_000)
    suites = {larger_tables.SCHEMA.name: SUITE}
    verdicts = judge(root / "tables", schemas=[larger_tables.SCHEMA], suites=suites, limits=limits)
    told = [f"{verdict.expects}: {verdict.error or verdict.unexpected}" for verdict in verdicts if not verdict.passed]
    return f"{len(verdicts)} checks; not passed: {'; '.join(told) or 'none'}"


def in_one_frame(root: Path) -> str:
    return suite(root, UNLIMITED_MB)


def comparison(root: Path) -> str:
    from deltaworks.lakehouse.publish import comparison as comparing

    (table,) = comparing.compare(
        [larger_tables.SCHEMA],
        root / "tables",
        root / "staging",
        from_ms=None,
        to_ms=None,
        end_offsets={},
        last_batch=0,
        tables=[larger_tables.SCHEMA.name],
        limits=comparing.Limits(folder=root),
    ).tables
    rows = table.rows
    return f"{rows.equal} equal, {rows.changed} changed, -{rows.only_production} +{rows.only_staging}"


def sql(root: Path) -> str:
    from deltaworks.lakehouse import catalog

    limits, found = Limits(folder=root, seconds=36_000), []
    with limited_process(limits):
        for query in QUERIES:
            with catalog.sandbox(root / "tables", limits, query) as box:
                found.append(len(box.answer(query, None).rows))
    return f"{found} rows"


WORK: dict[str, Callable[[Path], str]] = {
    "sql": sql,
    "comparison": comparison,
    "suite": suite,
    "suite in one frame": in_one_frame,
}


def measure(what: str, rows: int, root: Path, memory_mb: int) -> Cell:
    """Runs one piece of work in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.larger", "--run", what, "--scratch", str(root)]
    begun, peak, cpu = time.monotonic(), 0, 0.0
    with psutil.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            try:
                tree = [process, *process.children(recursive=True)]
                peak = max(peak, sum(each.memory_info().rss for each in tree))
                cpu = sum(sum(each.cpu_times()[:2]) for each in tree)
            except psutil.Error:
                continue
            if peak > memory_mb * 2**20:
                process.kill()
            time.sleep(0.05)
        text = process.stdout.read().strip()
    return Cell(
        rows=rows,
        what=what,
        seconds=round(time.monotonic() - begun, 1),
        cpu_seconds=round(cpu, 1),
        peak_mb=peak // 2**20,
        result=text if process.returncode == 0 else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--memory-mb", type=int, default=2048)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--output", type=Path, default=Path("bench-larger-results.json"))
    parser.add_argument("--run", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(WORK[options.run](options.scratch))
        return
    cells = []
    for rows in map(int, options.sizes.split(",")):
        root = Path(tempfile.mkdtemp(prefix="bench-larger-", dir=options.scratch))
        try:
            made = larger_tables.write(root / "tables", rows)
            larger_tables.write_replay(root / "staging", root / "tables", rows)
            for what in options.work.split(","):
                cells.append(measure(what, made, root, options.memory_mb))
                print(json.dumps(asdict(cells[-1])), flush=True)
        finally:
            shutil.rmtree(root)
    load = os.getloadavg()[0]
    options.output.write_text(json.dumps({"load": load, "cells": [asdict(cell) for cell in cells]}, indent=1))


if __name__ == "__main__":
    main()
