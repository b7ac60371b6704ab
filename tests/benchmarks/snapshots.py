"""Is the cost of a snapshot that of the change? Measures refreshes of tables of growing size, against two peers.

    python -m tests.benchmarks.snapshots [--sizes 10000,1000000] [--repeats 3] [--scratch DIR] [--output FILE]

A KTable with keys such as `user-00001234` and about 25 bytes a row in its files. One refresh takes so many changes:

- `uniform`: any keys, each as likely as any other;
- `skewed`: Zipf's law (s = 1), the frequent keys anywhere among the others;
- `growing`: half of the changes are new keys, larger than all before; the other half are of recent ones.

Three ways to keep one row per key in a plain Delta table, in the same process, one after the other:

- `ours`: the files into which the keys fall (`lakehouse/snapshot_files.py`), from the changelog to the commit;
- `rewrite`: read all, merge, write all in files of a million rows, as earlier versions did;
- `merge`: a MERGE of delta-rs per refresh, into a table in files of its own choice.

Reported per changed row: bytes written (files and log) and CPU seconds; then how long DuckDB takes to read the table.
`lag_s` is computed, not measured: how old a snapshot gets if it is refreshed by the rule of `snapshot_rounds`, at so
many changes a second. A MERGE per batch has no such rule: `busy` is the share of a core that it takes at one a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import schemas
from deltaworks.lakehouse.snapshot_rounds import REST, REST_S
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

CHANGES = (100, 1_000, 10_000)
RATES = (10, 100, 1_000)
"""Changes a second."""
LOAD_ROWS = 1_000_000


class User(msgspec.Struct, frozen=True):
    """A row."""

    name: str
    amount: int


SINK = DeltaSink(name="users", table="users", kind=TableKind.CHANGELOG, key=str, value=User)
CHANGELOG, SNAPSHOT = schemas(SINK)
Draw = Callable[[random.Random, int, int], list[int]]
"""Numbers of the keys of some changes to a table of so many keys."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One refresh; medians over the repeats, after as many that adapt the files of `ours` to the changes."""

    keys: int
    pattern: str
    way: str
    changes: int
    seconds: float
    cpu_seconds: float
    bytes_per_change: float
    cpu_ms_per_change: float
    files_removed: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A table as DuckDB reads it: its log, then all of three columns; and the row of one key by the log's bounds."""

    keys: int
    way: str
    files: int
    table_bytes: int
    seconds: float
    cpu_seconds: float
    one_key_cpu_seconds: float


def uniform(choose: random.Random, keys: int, count: int) -> list[int]:
    return choose.sample(range(keys), count)


def skewed(choose: random.Random, keys: int, count: int) -> list[int]:
    ranks = (int(keys ** choose.random()) - 1 for _ in range(count))
    return list(dict.fromkeys(rank * 2_654_435_761 % keys for rank in ranks))


def growing(choose: random.Random, keys: int, count: int) -> list[int]:
    recent = {keys - int(keys ** choose.random()) for _ in range(count - count // 2)}
    return [*recent, *range(keys, keys + count // 2)]


PATTERNS: dict[str, Draw] = {"uniform": uniform, "skewed": skewed, "growing": growing}


def changelog(choose: random.Random, numbers: Sequence[int], batch_id: int) -> pa.Table:
    """Rows of a changelog."""
    count = len(numbers)
    columns = {
        "key": [f"user-{number:08d}" for number in numbers],
        "name": [f"name {choose.randrange(1 << 40)}" for _ in numbers],
        "amount": [choose.randrange(1 << 30) for _ in numbers],
        "op": ["upsert"] * count,
        "timestamp": pa.array((1_790_000_000_000_000 + choose.randrange(10**9) for _ in numbers), pa.int64()),
        "source_topic": ["users"] * count,
        "source_partition": [choose.randrange(4) for _ in numbers],
        "source_offset": [choose.randrange(1 << 30) for _ in numbers],
        "batch_id": [batch_id] * count,
    }
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in CHANGELOG.file], schema=CHANGELOG.file)


class Ours:
    """The snapshot as a driver keeps it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "users"
        self._root, self._batch_id = root, -1
        self._committer = TableCommitter(root, "benchmark", "query", [SINK])
        self._committer.open(1)

    def add(self, rows: pa.Table) -> None:
        """Adds a batch to the changelog."""
        self._batch_id += 1
        numbers = pa.array([self._batch_id] * rows.num_rows, pa.int64())
        rows = rows.set_column(rows.schema.get_field_index("batch_id"), CHANGELOG.file.field("batch_id"), numbers)
        name = layout.part_name("part", self._batch_id, 0, layout.query_tag("query"))
        file = parquet.write(self._root, CHANGELOG, name, rows)
        self._committer.commit(self._batch_id, [TableWrite(CHANGELOG.name, 0, (file,), changed_rows=rows.num_rows)])
        self._committer.settle()

    def refresh(self, rows: pa.Table) -> None:
        self._committer.refresh_snapshots(force=True)

    def close(self) -> None:
        self._committer.close()


class Rewrite:
    """Reads everything, writes everything."""

    def __init__(self, root: Path, batches: Iterable[pa.RecordBatch]) -> None:
        self._root = root
        self._log = DeltaLog.create_or_open(root, SNAPSHOT, query_id="query", properties={})
        self.path = self._log.path
        self._write(pa.Table.from_batches(batches, SNAPSHOT.file))

    def add(self, rows: pa.Table) -> None: ...

    def refresh(self, rows: pa.Table) -> None:
        held = parquet.read_all(self._root, SNAPSHOT, list(self._log.files))
        held = held.append_column("op", pa.repeat(pa.scalar("upsert"), held.num_rows))
        together = pa.concat_tables([held, rows.select(held.column_names)])
        del held
        numbered = together.select(["key"]).append_column("number", pa.array(range(together.num_rows), pa.int64()))
        last = numbered.group_by(["key"]).aggregate([("number", "max")]).column("number_max").sort()
        together = together.take(last)
        self._write(together.filter(pc.not_equal(together.column("op"), "delete")).drop_columns(["op"]))

    def _write(self, rows: pa.Table) -> None:
        tag = layout.query_tag("query")
        added = [
            parquet.write(self._root, SNAPSHOT, layout.part_name("snapshot", 0, 0, tag), rows.slice(begin, LOAD_ROWS))
            for begin in range(0, rows.num_rows, LOAD_ROWS)
        ]
        parquet.sync(self._root, SNAPSHOT.name, added)
        self._log.commit(Commit(added=added, removed=list(self._log.files)))

    def close(self) -> None: ...


class Merge:
    """What one would write without us."""

    def __init__(self, root: Path, batches: Iterable[pa.RecordBatch]) -> None:
        self.path = root / SNAPSHOT.name
        self.path.mkdir(parents=True)
        write_deltalake(self.path, pa.RecordBatchReader.from_batches(SNAPSHOT.file, batches))

    def add(self, rows: pa.Table) -> None: ...

    def refresh(self, rows: pa.Table) -> None:
        columns = {name: f"s.{name}" for name in SNAPSHOT.file.names}
        (
            DeltaTable(self.path)
            .merge(rows, predicate="t.key = s.key", source_alias="s", target_alias="t")
            .when_matched_delete(predicate="s.op = 'delete'")
            .when_matched_update(updates=columns)
            .when_not_matched_insert(updates=columns, predicate="s.op <> 'delete'")
            .execute()
        )

    def close(self) -> None: ...


Way = Ours | Rewrite | Merge


def sizes(path: Path) -> dict[str, int]:
    """Every file below a folder."""
    return {str(file): file.stat().st_size for file in path.rglob("*") if file.is_file()}


def measure(way: Way, rows: pa.Table) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds, bytes written and files replaced of one refresh."""
    way.add(rows)
    before, files = sizes(way.path), set(DeltaTable(way.path).file_uris())
    begun, cpu = time.perf_counter(), time.process_time()
    way.refresh(rows)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    written = sum(size for file, size in sizes(way.path).items() if file not in before)
    return seconds, cpu, written, len(files - set(DeltaTable(way.path).file_uris()))


def reading(way: Way, name: str, keys: int) -> Reading:
    """How a reader finds the table."""

    def query() -> None:
        paths = DeltaTable(way.path).file_uris()
        engine = duckdb.connect()
        engine.execute("SELECT count(*), max(name), sum(amount) FROM read_parquet(?)", [paths]).fetchall()

    def one_key() -> None:
        rows = DeltaTable(way.path).to_pyarrow_table(filters=[("key", "=", f"user-{keys // 3:08d}")])
        assert rows.num_rows == 1

    query()
    begun, cpu = time.perf_counter(), time.process_time()
    query()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    one_cpu = time.process_time()
    one_key()
    one_cpu = time.process_time() - one_cpu
    paths = [Path(uri.removeprefix("file://")) for uri in DeltaTable(way.path).file_uris()]
    size_bytes = sum(path.stat().st_size for path in paths)
    return Reading(
        keys=keys,
        way=name,
        files=len(paths),
        table_bytes=size_bytes,
        seconds=round(seconds, 4),
        cpu_seconds=round(cpu, 4),
        one_key_cpu_seconds=round(one_cpu, 4),
    )


def loaded(root: Path, keys: int) -> Ours:
    """A table of so many keys, in no order."""
    ours = Ours(root)
    choose = random.Random(keys)
    numbers = choose.sample(range(keys), keys)
    begun = time.process_time()
    for begin in range(0, keys, LOAD_ROWS):
        ours.add(changelog(choose, numbers[begin : begin + LOAD_ROWS], begin // LOAD_ROWS))
    del numbers
    generated, begun = time.process_time() - begun, time.process_time()
    ours.refresh(CHANGELOG.file.empty_table())
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    first = time.process_time() - begun
    say(f"{keys:,} keys: generated in {generated:.1f} CPU-seconds, first snapshot in {first:.1f}; peak {peak_mb} MB")
    return ours


def ways(scratch: Path, keys: int, chosen: Sequence[str]) -> Iterator[tuple[str, Way]]:
    """The ways, one after the other; each begins with the same rows."""
    ours = loaded(scratch / "ours", keys)

    def batches() -> Iterator[pa.RecordBatch]:
        paths = [str(ours.path / uri.rpartition("/")[2]) for uri in DeltaTable(ours.path).file_uris()]
        yield from ds.dataset(paths, schema=SNAPSHOT.file).to_batches(batch_readahead=1, fragment_readahead=1)

    copies = scratch / "rows.arrow"
    with pa.OSFile(str(copies), "wb") as file, pa.ipc.new_file(file, SNAPSHOT.file) as writer:
        for batch in batches():
            writer.write_batch(batch)
    yield "ours", ours
    ours.close()
    for name, kind in (("rewrite", Rewrite), ("merge", Merge)):
        if name in chosen:
            with pa.memory_map(str(copies)) as file:
                held = pa.ipc.open_file(file)
                numbers = range(held.num_record_batches)
                way = kind(scratch / name, (held.get_batch(number) for number in numbers))
            yield name, way


def cells(
    scratch: Path, keys: int, repeats: int, chosen: Sequence[str], patterns: Sequence[str]
) -> Iterator[Cell | Reading]:
    """All figures of one size."""
    for name, way in ways(scratch, keys, chosen):
        yield reading(way, name, keys)
        at = keys
        for pattern in patterns:
            draw = PATTERNS[pattern]
            for count in CHANGES:
                if count >= keys:
                    continue
                choose = random.Random(f"{keys}/{pattern}/{count}")
                taken = []
                for _ in range(repeats * 2 if name == "ours" else repeats):
                    rows = changelog(choose, draw(choose, at, count), 10_000)
                    at += count // 2 if pattern == "growing" else 0
                    taken.append((rows.num_rows, *measure(way, rows)))
                yield cell(keys, pattern, name, count, taken[-repeats:])


def cell(keys: int, pattern: str, way: str, changes: int, taken: Sequence[tuple[int, float, float, int, int]]) -> Cell:
    def median(values: Iterable[float]) -> float:
        return round(statistics.median(values), 4)

    return Cell(
        keys=keys,
        pattern=pattern,
        way=way,
        changes=changes,
        seconds=median(each[1] for each in taken),
        cpu_seconds=median(each[2] for each in taken),
        bytes_per_change=median(each[3] / each[0] for each in taken),
        cpu_ms_per_change=median(1000 * each[2] / each[0] for each in taken),
        files_removed=median(each[4] for each in taken),
    )


def lag_s(costs: Sequence[Cell], rate: float) -> float:
    """How old a snapshot gets: the pause and the refresh after it, at so many changes a second.

    The cost of a refresh (CPU seconds) is interpolated between the measured numbers of changes. Above these, it is
    taken to grow no more, as most files are written then.
    """
    points = [(0.0, 0.0), *((float(each.changes), each.cpu_seconds) for each in costs)]

    def cost(changes: float) -> float:
        for (low, before), (high, after) in pairwise(points):
            if changes <= high:
                return before + (after - before) * (changes - low) / (high - low)
        return points[-1][1]

    lag = REST_S
    for _ in range(200):
        lag = max(REST_S, REST * cost(rate * lag)) + cost(rate * lag)
    return round(lag, 1)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default="10000,1000000")
    parser.add_argument("--ways", default="ours,rewrite,merge")
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--output", type=Path, default=Path("bench-snapshots-results.json"))
    options = parser.parse_args()
    found: list[Cell | Reading] = []
    say(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for keys in map(int, options.sizes.split(",")):
        scratch = Path(tempfile.mkdtemp(prefix="bench-snapshots-", dir=options.scratch))
        try:
            for each in cells(scratch, keys, options.repeats, options.ways.split(","), options.patterns.split(",")):
                say(json.dumps(asdict(each)))
                found.append(each)
        finally:
            shutil.rmtree(scratch)
    lags = [
        {"keys": keys, "pattern": pattern, "way": way, "changes_per_second": rate, "lag_s": lag_s(costs, rate)}
        for keys, pattern, way in dict.fromkeys((c.keys, c.pattern, c.way) for c in found if isinstance(c, Cell))
        if (costs := [c for c in found if isinstance(c, Cell) and (c.keys, c.pattern, c.way) == (keys, pattern, way)])
        and way != "merge"
        for rate in RATES
    ]
    for lag in lags:
        say(json.dumps(lag))
    cells_ = [{"kind": type(each).__name__, **asdict(each)} for each in found]
    options.output.write_text(json.dumps({"load": os.getloadavg()[0], "cells": cells_, "lags": lags}, indent=1))


if __name__ == "__main__":
    main()
