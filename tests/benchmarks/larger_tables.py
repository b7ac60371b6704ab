"""A windowed table of any size and a replay of it, for `larger`: a day of a million rows per file, written in turn."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa

from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import schemas
from deltaworks.lakehouse.writes import NewFile
from deltaworks.topology.columns import DecimalDigits
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

PIPELINE, QUERY = "shop", "query"
FIRST_DAY = date(2026, 1, 1)
HOURS, ROWS_PER_DAY = 24, 1_000_000
CHANGED = 250_000
"""In the replay, a row in so many has another revenue, another one is missing, and another one is new."""


class Sales(msgspec.Struct, frozen=True):
    """The orders of a user in an hour."""

    orders: int
    items: int
    revenue: Annotated[Decimal, DecimalDigits(18, 2)]
    weight: float
    country: str | None


SINK = DeltaSink(name="sales", table="sales", kind=TableKind.WINDOWED, key=str, value=Sales)
(SCHEMA,) = schemas(SINK)


def write(root: Path, rows: int) -> int:
    """Writes the table below `root`.

    Args:
        root: folder of all tables.
        rows: about how many; full days of a million, or one day of fewer.

    Returns:
        The number of rows.
    """
    days, users = max(1, rows // ROWS_PER_DAY), min(rows, ROWS_PER_DAY) // HOURS
    added = []
    for number in range(days):
        day = FIRST_DAY + timedelta(days=number)
        added.append(parquet.write(root, SCHEMA, _name(day, number), _day(day, users)))
    _commit(root, added)
    return sum(file.rows for file in added)


def write_replay(root: Path, production: Path, rows: int) -> None:
    """Writes the table below `root` as a replay would: each tenth day as in `write`, the others as in production."""
    days, users = max(1, rows // ROWS_PER_DAY), min(rows, ROWS_PER_DAY) // HOURS
    log, added = DeltaLog(production / SCHEMA.name), []
    log.load()
    there = {layout.partition_of(path)["window_date"]: path for path in log.files}
    for number in range(days):
        day = FIRST_DAY + timedelta(days=number)
        name, old = _name(day, number), there[day.isoformat()]
        if number % 10 == 0:
            added.append(parquet.write(root, SCHEMA, name, _day(day, users, replayed=True)))
            continue
        path = root / SCHEMA.name / name
        path.parent.mkdir(parents=True)
        path.hardlink_to(log.path / old)
        entry = log.files[old]
        added.append(NewFile(name, entry.size_bytes, entry.rows, entry.statistics or ""))
    _commit(root, added)


def _name(day: date, number: int) -> str:
    return f"window_date={day}/{layout.part_name('final', number, 0, layout.query_tag(QUERY))}"


def _commit(root: Path, added: list[NewFile]) -> None:
    log = DeltaLog.create_or_open(root, SCHEMA, query_id=QUERY, properties={})
    parquet.sync(root, SCHEMA.name, added)
    closed_ms = _ms(FIRST_DAY + timedelta(days=len(added))) + 3_600_000
    app = layout.app_id(PIPELINE, SCHEMA.name, layout.closed_step(0), QUERY)
    log.commit(Commit(added=added, transactions={app: closed_ms}))


def _day(day: date, users: int, *, replayed: bool = False) -> pa.Table:
    """A day; of a replay of changed code, in another order, with a few rows that differ."""
    draw = np.random.default_rng(day.toordinal())
    count = HOURS * users
    hour = np.repeat(np.arange(HOURS), users)
    user = np.tile(np.arange(users), HOURS)
    start = (_ms(day) + hour * 3_600_000) * 1000
    orders = draw.geometric(0.4, count)
    cents = orders * draw.integers(100, 20_000, count)
    new = np.zeros(count, bool)
    kept = np.ones(count, bool)
    if replayed:
        place = np.arange(count)
        cents = cents + (place % CHANGED == 7)
        kept, new = place % CHANGED != 8, place % CHANGED == 9
    names = np.char.add(np.where(new, "new-", "user-"), np.char.zfill(user.astype(str), 8))
    rows = pa.table(
        {
            "user_id": pa.array(names),
            "window_start": pa.array(start, pa.int64()).cast(TIMESTAMP),
            "window_end": pa.array(start + 3_600_000_000, pa.int64()).cast(TIMESTAMP),
            "orders": pa.array(orders, pa.int64()),
            "items": pa.array(orders * draw.integers(1, 5, count), pa.int64()),
            "revenue": _money(cents),
            "weight": pa.array(draw.gamma(2.0, 1.5, count)),
            "country": pa.array(np.array(["DE", "FR", "US", "GB"])[user % 4], mask=user % 5 == 0),
            "timestamp": pa.array(start + draw.integers(0, 3_600_000, count) * 1000, pa.int64()).cast(TIMESTAMP),
            "is_final": pa.array(np.ones(count, bool)),
        }
    ).filter(pa.array(kept))
    rows = rows.rename_columns({"user_id": SCHEMA.key_names[0]}).select(SCHEMA.file.names).cast(SCHEMA.file)
    return rows.take(pa.array(np.arange(rows.num_rows)[::-1].copy())) if replayed else rows


def _money(cents: np.ndarray) -> pa.Array:
    """Exact: the integers are the digits of the decimals."""
    halves = np.column_stack([cents.astype(np.int64), np.where(cents < 0, -1, 0).astype(np.int64)])
    return pa.Array.from_buffers(pa.decimal128(18, 2), len(cents), [None, pa.py_buffer(np.ascontiguousarray(halves))])


def _ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400_000
