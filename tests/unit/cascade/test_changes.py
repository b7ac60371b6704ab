"""What would change in the table of a batch job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import write_deltalake

from deltaworks.batch import BatchJob
from deltaworks.batch.definition import definition
from deltaworks.cascade.changes import changes
from deltaworks.lakehouse.publish.comparison import Limits, TableComparison

ZEROS = 16 * "0"
FIRST, SECOND, THIRD = (dt.date(2026, 11, day) for day in (21, 22, 23))


class Sale(msgspec.Struct):
    day: dt.date
    item: str | None
    revenue: Decimal
    marks: dict[str, float]


def job(row: type = Sale, *key: str) -> BatchJob:
    return BatchJob(
        name="sales",
        pipelines=["orders"],
        compute=lambda day, orders: orders,
        row=row,
        key=key or ["day", "item"],
        doc="S",
    )


def sale(day: dt.date, item: str | None, revenue: str, **marks: float) -> dict[str, Any]:
    return {"day": day, "item": item, "revenue": Decimal(revenue), "marks": marks}


def compared(
    tmp_path: Path,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    *days: dt.date,
    of: BatchJob | None = None,
) -> TableComparison:
    of = of or job()
    for root, rows in (("before", before), ("after", after)):
        table = pa.Table.from_pylist(rows, schema=definition(of).columns)
        write_deltalake(tmp_path / root / "sales", table, partition_by=["day"])
    return changes(of, tmp_path / "before", tmp_path / "after", days or (FIRST, SECOND), Limits(samples=2))


def counts(found: TableComparison) -> Mapping[str, tuple[int, ...]]:
    return {
        day.day: (day.production, day.staging, day.equal, day.changed, day.only_production, day.only_staging)
        for day in found.days
    }


def test_rows_of_a_key_have_changed_are_gone_or_new(tmp_path: Path) -> None:
    before = [
        sale(FIRST, "pen", "1.50", a=1, b=float("nan")),
        sale(FIRST, None, "2", a=1),
        sale(SECOND, "pen", "3"),
        sale(SECOND, "ink", "4"),
        sale(THIRD, "pen", "5"),
    ]
    after = [
        sale(FIRST, "pen", "1.50", b=float("nan"), a=1),
        sale(FIRST, None, "2.01", a=2),
        sale(SECOND, "pen", "3"),
        sale(SECOND, "cap", "6"),
        sale(THIRD, "pen", "50"),
    ]
    found = compared(tmp_path, before, after)
    assert counts(found) == {"2026-11-21": (2, 2, 1, 1, 0, 0), "2026-11-22": (2, 2, 1, 0, 1, 1)}
    assert (found.table, found.role, found.rows.different, found.equal) == ("sales", "batch", 3, False)
    assert found.columns == {"revenue": 1, "marks": 1}
    assert [(each.kind, each.before and each.before["item"], each.after) for each in found.samples] == [
        ("changed", None, {"day": "2026-11-21", "item": None, "revenue": f"2.01{ZEROS}", "marks": {"a": 2.0}}),
        ("only in production", "ink", None),
        ("only in staging", None, {"day": "2026-11-22", "item": "cap", "revenue": f"6.{ZEROS}00", "marks": []}),
    ]


def test_a_day_without_rows_on_a_side(tmp_path: Path) -> None:
    found = compared(tmp_path, [sale(FIRST, "pen", "1")], [sale(SECOND, "pen", "2")])
    assert counts(found) == {"2026-11-21": (1, 0, 0, 0, 1, 0), "2026-11-22": (0, 1, 0, 0, 0, 1)}


def test_equal_tables_are_equal_and_samples_are_few(tmp_path: Path) -> None:
    rows = [sale(FIRST, f"i{n}", "1") for n in range(9)]
    assert compared(tmp_path / "equal", rows, rows).equal
    others = [sale(FIRST, f"i{n}", "2") for n in range(9)]
    found = compared(tmp_path / "other", rows, others)
    assert (found.rows.changed, len(found.samples)) == (9, 2)


def test_a_table_may_have_a_row_a_day_or_nothing_but_its_key(tmp_path: Path) -> None:
    class Total(msgspec.Struct):
        day: dt.date
        orders: int

    of = job(Total, "day")
    found = compared(tmp_path / "total", [{"day": FIRST, "orders": 1}], [{"day": FIRST, "orders": 2}], of=of)
    assert counts(found) == {"2026-11-21": (1, 1, 0, 1, 0, 0)} and found.columns == {"orders": 1}

    class Seen(msgspec.Struct):
        day: dt.date
        item: str

    of = job(Seen)
    found = compared(tmp_path / "seen", [{"day": FIRST, "item": "a"}], [{"day": FIRST, "item": "b"}], of=of)
    assert counts(found) == {"2026-11-21": (1, 1, 0, 0, 1, 1)} and found.columns == {}
