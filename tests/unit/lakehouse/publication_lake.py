"""A stream over several days into every kind of table, its replays with other code, and what the tables must hold.

The model is plain Python: lists and dictionaries of rows that remember the batch that wrote them.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltaworks.kernel.records import Coordinates, DeadLetter
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import opened, query

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST_MS = 20_000 * DAY_MS
STEP_MS = 8 * HOUR_MS
"""Event time between two batches."""
GRACE_MS = 6 * HOUR_MS
TASKS = 2
PAGE_ROWS = 16
DEAD = "dead_letters"
SINKS = (
    DeltaSink(name="a", table="orders", kind=TableKind.APPEND, key=str, value=int),
    DeltaSink(name="b", table="hopped", kind=TableKind.APPEND, key=str, value=int),
    DeltaSink(name="c", table="users", kind=TableKind.CHANGELOG, key=str, value=int),
    DeltaSink(name="d", table="counts", kind=TableKind.WINDOWED, key=str, value=int),
)
TABLES = ("orders", "hopped", "users", "users_changelog", "counts", DEAD)
ALL = ("orders", "hopped", "users", "counts", DEAD)


@dataclass(frozen=True)
class Row:
    """One row of an append-only table, or of a changelog (`value` None deletes)."""

    batch: int
    time_ms: int
    key: str
    value: int | None
    offset: int


@dataclass
class Rows:
    """What the tables hold."""

    lists: dict[str, list[Row]] = field(default_factory=lambda: {t: [] for t in ("orders", "hopped", "users", DEAD)})
    windows: dict[tuple[str, int], int] = field(default_factory=dict)
    """`(key, start)` -> value."""

    @property
    def latest(self) -> dict[str, int]:
        """The KTable."""
        table: dict[str, int] = {}
        for row in sorted(self.lists["users"], key=lambda row: row.batch):
            table.pop(row.key, None)
            if row.value is not None:
                table[row.key] = row.value
        return table

    def restored(self, before: Rows, tables: Iterable[str], first_ms: int, end_ms: int, next_batch: int) -> Rows:
        """What a rollback makes of it; `before` was there when `next_batch` was the next one."""
        after = deepcopy(self)
        for table in tables:
            if table == "counts":
                after.windows = {at: v for at, v in self.windows.items() if not first_ms <= at[1] < end_ms}
                after.windows |= {at: v for at, v in before.windows.items() if first_ms <= at[1] < end_ms}
            else:
                since = [row for row in self.lists[table] if row.batch >= next_batch]
                after.lists[table] = before.lists[table] + since
        return after

    def replaced(self, other: Rows, tables: Iterable[str], first_ms: int, end_ms: int, last_batch: int) -> Rows:
        """What a publish of `other` makes of it."""
        after = deepcopy(self)
        for table in tables:
            match table:
                case "users":
                    kept = [row for row in self.lists[table] if row.batch > last_batch]
                    after.lists[table] = other.lists[table] + kept
                case "counts":
                    after.windows = {at: v for at, v in self.windows.items() if not first_ms <= at[1] < end_ms}
                    after.windows |= {at: v for at, v in other.windows.items() if first_ms <= at[1] < end_ms}
                case _:
                    kept = [
                        row
                        for row in self.lists[table]
                        if row.batch > last_batch or not first_ms <= row.time_ms < end_ms
                    ]
                    new = [row for row in other.lists[table] if first_ms <= row.time_ms < end_ms]
                    after.lists[table] = kept + new
        return after


def batch_ms(batch: int) -> int:
    """The event time of a batch."""
    return FIRST_MS + batch * STEP_MS


def closed_ms(batch: int) -> int:
    """Windows that end before are final after a batch."""
    return batch_ms(batch) - GRACE_MS


@dataclass
class Stream:
    """What one code makes of the batches: its tables, and the model of them.

    Args:
        root: folder of all tables.
        query: id of the stream or of the replay.
        code: another number is other code: other values, and some records dropped.
    """

    root: Path
    query: str = "live"
    code: int = 0
    options: TableOptions = field(default_factory=TableOptions)
    rows: Rows = field(default_factory=Rows)
    """What the tables must hold."""
    written: Rows = field(default_factory=Rows)
    """What they would hold if nothing had been published."""
    next_batch: int = 0
    states: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of the windows: what the code has counted, whatever the table holds by now."""
    generation: int = 1

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """What a driver does at its start; the one before may have crashed."""
        self.committer = TableCommitter(self.root, "shop", self.query, SINKS, DEAD, options=self.options)
        self.committer.open(self.generation)
        self.tasks = [TaskTables(self.root, SINKS, DEAD, stage=0, task=t, page_rows=PAGE_ROWS) for t in range(TASKS)]

    def copy(self, root: Path) -> Stream:
        """The same stream at another place, with a driver of its own."""
        self.committer.settle()
        shutil.copytree(self.root, root)
        others = {
            "root": root,
            "rows": deepcopy(self.rows),
            "written": deepcopy(self.written),
            "states": dict(self.states),
        }
        return dataclasses.replace(self, **others)  # type: ignore[arg-type]

    def restart(self) -> None:
        """The driver died, and another one takes over."""
        self.committer.settle()  # a thread of a dead process writes no more; one of a test would
        self.generation += 1
        self.open()

    def run(self, batches: int, *, refresh: bool = True) -> None:
        """The next batches."""
        for _ in range(batches):
            self.batch()
            if refresh:
                self.committer.refresh_snapshots(eager=self.next_batch % 3 == 0)

    def batch(self) -> None:
        """The next batch."""
        self.chunk(1)

    def chunk(self, batches: int) -> None:
        """The next batches, in one commit."""
        first, self.next_batch = self.next_batch, self.next_batch + batches
        writes = []
        for number, task in enumerate(self.tasks):
            task.begin(self.next_batch - 1)
            for batch in range(first, self.next_batch):
                task.step(batch)
                self._process(task, number, batch)
                task.rows("counts").close_windows(closed_ms(batch))
            writes += task.finish()
        self.committer.commit(self.next_batch - 1, writes)

    def _process(self, task: TaskTables, number: int, batch: int) -> None:
        choose = random.Random(f"{batch}/{number}")
        for index in range(choose.randrange(12, 30)):
            time_ms = batch_ms(batch) - choose.randrange(2 * STEP_MS)
            offset = batch * 1000 + index
            exchange_offset = (batch << 32) + index
            kind, key, gone = choose.choice(ALL), f"k{choose.randrange(8)}-{number}", choose.random() < 0.2
            value = offset * 10 + self.code
            if self.code and (offset + self.code) % 7 == 0:
                continue
            source = Coordinates("raw", number, offset)
            if kind == "orders":  # some rows are of no record, or of one that an earlier batch has read
                source = choose.choice(
                    [source] * 3 + [Coordinates("", -1, -1), Coordinates("raw", number, max(0, offset - 2000))]
                )
            row = Row(batch, time_ms, key, value, source.offset)
            match kind:
                case "orders":
                    task.rows(kind).add((key, value, time_ms, source))
                    self._note(kind, row)
                case "hopped":
                    task.rows(kind).add((key, value, time_ms, Coordinates("exchange", number, exchange_offset)))
                    self._note(kind, Row(batch, time_ms, key, value, exchange_offset))
                case "users":
                    task.rows(kind).add((key, None if gone else value, time_ms, source))
                    self._note(kind, Row(batch, time_ms, key, None if gone else value, offset))
                case "counts":
                    self._count(task, key, time_ms, value, batch)
                case _:
                    task.dead_letter(
                        DeadLetter(key.encode(), b"%d" % value, (), time_ms, source, "E", "bad", "op", "at x")
                    )
                    self._note(kind, row)

    def _note(self, table: str, row: Row) -> None:
        for rows in (self.rows, self.written):
            rows.lists[table].append(row)

    def _count(self, task: TaskTables, key: str, time_ms: int, value: int, batch: int) -> None:
        start = time_ms // HOUR_MS * HOUR_MS
        if start + HOUR_MS < closed_ms(batch - 1):
            return
        total = self.states.get((key, start), 0) + value
        self.states[key, start] = total
        task.rows("counts").add((key, total, time_ms, start, start + HOUR_MS))
        for rows in (self.rows, self.written):
            rows.windows[key, start] = total

    def replay(self, root: Path, run_id: str, code: int, *, batches: int | None = None, chunk: int = 1) -> Stream:
        """The batches again, with other code, into staging."""
        staging = Stream(root, run_id, code)
        end = self.next_batch if batches is None else batches
        while staging.next_batch < end:
            staging.chunk(min(chunk, end - staging.next_batch))
            staging.committer.refresh_snapshots(eager=staging.next_batch % 3 == 0)
        staging.committer.settle()
        return staging


def end_offsets(last_batch: int) -> dict[str, dict[str, int]]:
    """Of the source topic, after a batch."""
    return {"raw": {str(task): (last_batch + 1) * 1000 for task in range(TASKS)}}


def request_for(
    staging: Stream, *, days: tuple[int, int] | None = None, tables: tuple[str, ...] = ALL, reason: str = "fix"
) -> PublicationRequest:
    """A request to publish a replay; `days` counts from the first."""
    last = staging.next_batch - 1
    return PublicationRequest(
        run_id=staging.query,
        pipeline="shop",
        code_version="abc",
        batches=(0, last),
        end_offsets=end_offsets(last),
        from_ms=None if days is None else FIRST_MS + days[0] * DAY_MS,
        to_ms=None if days is None else FIRST_MS + days[1] * DAY_MS,
        tables=tables,
        reason=reason,
        requested_by="somebody",
    )


def publish(live: Stream, staging: Stream, request: PublicationRequest, publications: Path) -> Publication:
    """Publishes, and notes it in the model."""
    done = publication.publish(live.committer, staging.root, request, publications)
    live.rows = replaced(live, staging, request)
    return done


def replaced(live: Stream, staging: Stream, request: PublicationRequest) -> Rows:
    """What the tables must hold after a publish."""
    first, end = request.from_ms or 0, request.to_ms or 1 << 60
    return live.rows.replaced(staging.rows, request.tables, first, end, request.batches[1])


def check(stream: Stream) -> None:
    """Reads every table as an analyst would and compares it with the model."""
    stream.committer.refresh_snapshots(force=True)
    assert contents(stream.root) == expected(stream.rows)


def expected(rows: Rows) -> dict[str, list[Any]]:
    """In the form of `contents`."""
    lists: dict[str, list[Any]] = {
        name: sorted((r.time_ms, r.key, r.value or 0, r.offset) for r in held) for name, held in rows.lists.items()
    }
    lists["users_changelog"] = sorted((r.batch, r.key, r.value or 0, r.offset) for r in rows.lists["users"])
    lists["users"] = sorted(rows.latest.items())
    lists["counts"] = sorted((*at, value) for at, value in rows.windows.items())
    return lists


def contents(root: Path) -> dict[str, list[Any]]:
    """All tables, sorted."""
    appended = "select epoch_ms(timestamp), key, value, source_offset from"
    with opened(root) as connection:
        found = {
            "orders": query(connection, f"{appended} orders"),
            "hopped": query(connection, f"{appended} hopped"),
            "users_changelog": query(
                connection, "select batch_id, key, coalesce(value, 0), source_offset from users_changelog"
            ),
            "users": query(connection, "select key, value from users"),
            "counts": query(connection, "select key, epoch_ms(window_start), value from counts"),
            DEAD: query(
                connection, f'select epoch_ms(timestamp), decode(key), decode(value)::bigint, "offset" from {DEAD}'
            ),
        }
    return {name: sorted(rows) for name, rows in found.items()}
