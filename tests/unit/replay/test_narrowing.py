"""What of a replay is published if only differences are, and what may be published without asking."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaworks import ChangeLimit, Reprocess
from deltaworks.lakehouse.publish.comparison import Comparison, Day, RowCounts, Sum, TableComparison
from deltaworks.lakehouse.publish.decision import decide
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.replay import days
from deltaworks.replay.model import Narrowed, day_of
from deltaworks.replay.narrowing import narrowed
from deltaworks.replay.plan import DAY_MS
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

FIRST_DAY = 20_513
SINKS = (
    DeltaSink(name="h", table="hours", kind=TableKind.WINDOWED, key=str, value=int),
    DeltaSink(name="o", table="orders", kind=TableKind.APPEND, key=str, value=int),
    DeltaSink(name="u", table="users", kind=TableKind.CHANGELOG, key=str, value=int),
)
ALL = (None, FIRST_DAY * DAY_MS + 9 * DAY_MS)


def ms(number: int) -> int:
    return (FIRST_DAY + number) * DAY_MS


def table(name: str, role: str, different: dict[int, int], **more: Any) -> TableComparison:
    """A table with ten rows on each of nine days, some of which differ."""
    found = [
        Day(
            day=day_of(ms(number)),
            production=10,
            staging=10,
            equal=10 - different.get(number, 0),
            changed=different.get(number, 0),
            only_production=0,
            only_staging=0,
        )
        for number in range(9)
    ]
    changed = sum(different.values())
    rows = RowCounts(production=90, staging=90, equal=90 - changed, changed=changed, only_production=0, only_staging=0)
    usual = {
        "columns": {"value": changed, "timestamp": 0},
        "samples": (),
        "production_version": 1,
        "staging_version": 1,
    }
    return TableComparison(**{**usual, "table": name, "role": role, "rows": rows, "days": tuple(found), **more})


def compared(*tables: TableComparison) -> Comparison:
    return Comparison(tables=tables, scope=Scope(end_offsets={}, last_batch=1), compared_ms=0, seconds=0.0)


def chosen(*tables: TableComparison) -> Narrowed | None:
    def widened(names: Sequence[str], of_days: tuple[int, int]) -> tuple[int, int]:
        return of_days

    return narrowed(compared(*tables), plan_schemas(SINKS, None), ALL, widened)


def test_equal_tables_are_not_published() -> None:
    assert chosen(table("hours", "windowed", {}), table("orders", "append", {})) is None


def test_the_days_reach_from_the_first_to_the_last_that_differs_in_any_table() -> None:
    found = chosen(table("hours", "windowed", {4: 1}), table("orders", "append", {2: 3}))
    assert found == Narrowed(tables=("hours", "orders"), from_ms=ms(2), to_ms=ms(5))
    found = chosen(table("hours", "windowed", {4: 1}), table("orders", "append", {}))
    assert found == Narrowed(tables=("hours",), from_ms=ms(4), to_ms=ms(5))


@pytest.mark.parametrize(
    "more",
    [
        {"columns": {"value": 0, "timestamp": 1}},
        {"columns": {"value": 1}, "new_columns": ("region",)},
        {"columns": {"value": 1}, "gone_columns": ("region",)},
    ],
)
def test_all_days_are_published_if_a_row_may_have_moved_or_columns_differ(more: dict[str, Any]) -> None:
    assert chosen(table("orders", "append", {2: 1}, **more)) == Narrowed(tables=("orders",), from_ms=None, to_ms=ALL[1])


def test_the_newest_timestamp_of_a_window_moves_no_row() -> None:
    found = chosen(table("hours", "windowed", {2: 1}, columns={"value": 0, "timestamp": 1}))
    assert found == Narrowed(tables=("hours",), from_ms=ms(2), to_ms=ms(3))


def test_changelog_and_snapshot_are_published_together_and_whole() -> None:
    found = chosen(table("users_changelog", "changelog", {2: 1}), table("users", "snapshot", {}))
    assert found is not None
    assert (set(found.tables), found.from_ms, found.to_ms) == ({"users_changelog", "users"}, None, ALL[1])


def sessions(folder: Path, *windows: tuple[float, float]) -> None:
    """A table of sessions: begin and end in days."""

    def moments(days_since: Sequence[float]) -> pa.Array:
        times = [datetime.fromtimestamp((FIRST_DAY + day) * DAY_MS / 1000, UTC) for day in days_since]
        return pa.array(times, pa.timestamp("us", "UTC"))

    starts, ends = zip(*windows, strict=True)
    write_deltalake(folder, pa.table({"window_start": moments(starts), "window_end": moments(ends)}))


def test_days_are_widened_until_they_cut_no_session(tmp_path: Path) -> None:
    production, staging = tmp_path / "production", tmp_path / "staging"
    sessions(production / "visits", (0.9, 1.1), (1.9, 2.1), (3.5, 3.6), (7.9, 8.1))
    sessions(staging / "visits", (3.9, 4.1), (5.9, 6.0))

    def widened(first: int, end: int, within: tuple[int | None, int | None] = (None, None)) -> tuple[float, float]:
        found = days.widened((production, staging), {"visits"}, (ms(first), ms(end)), within)
        assert None not in found
        return found[0] / DAY_MS - FIRST_DAY, found[1] / DAY_MS - FIRST_DAY  # type: ignore[operator]

    assert widened(2, 3) == (0, 3), "over two nights"
    assert widened(3, 4) == (3, 5)
    assert widened(5, 6) == (5, 7), "a session that ends at midnight, inclusive"
    assert widened(2, 8) == (0, 9)
    assert widened(2, 8, (ms(2), ms(8))) == (2, 8), "the borders of the whole replay stay"
    assert widened(2, 4, (ms(1), ms(4))) == (1, 4)


def answer(policy: Reprocess, *tables: TableComparison) -> str:
    return decide(policy, compared(*tables)).answer


def limited(**limit: Any) -> Reprocess:
    return Reprocess("@daily", limit=ChangeLimit(**limit))


def test_what_is_equal_is_never_published_nor_asked_about() -> None:
    for policy in (Reprocess("@daily"), Reprocess("@daily", publish="ask"), limited(rows=0)):
        assert answer(policy, table("hours", "windowed", {})) == "nothing"


def test_ask_asks_about_any_difference() -> None:
    assert answer(Reprocess("@daily", publish="ask"), table("hours", "windowed", {1: 1})) == "ask"


def test_without_a_limit_any_difference_is_published() -> None:
    assert answer(Reprocess("@daily"), table("hours", "windowed", dict.fromkeys(range(9), 10))) == "publish"


def test_rows_count_over_all_tables() -> None:
    tables = table("hours", "windowed", {1: 3}), table("orders", "append", {1: 2})
    assert [answer(limited(rows=rows), *tables) for rows in (4, 5)] == ["ask", "publish"]


def test_the_share_is_that_of_each_table() -> None:
    tables = table("hours", "windowed", {1: 9}), table("orders", "append", {})
    assert [answer(limited(share=share), *tables) for share in (0.099, 0.1)] == ["ask", "publish"]


def test_a_table_without_rows_in_production_is_over_any_share() -> None:
    rows = RowCounts(production=0, staging=5, equal=0, changed=0, only_production=0, only_staging=5)
    found = decide(limited(share=1000.0), compared(table("hours", "windowed", {1: 5}, rows=rows)))
    assert found.answer == "ask"
    assert "hours: it has no rows in production" in found.why


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (Sum(before=100.0, change=1.0), "publish"),
        (Sum(before=-100.0, change=-1.0), "publish"),
        (Sum(before=100.0, change=-1.01), "ask"),
        (Sum(before=0.0, change=0.0), "publish"),
        (Sum(before=0.0, change=0.1), "ask"),
        (Sum(before=None, change=0.0), "ask"),
        (Sum(before=1.0, change=None), "ask"),
    ],
)
def test_a_sum_may_change_by_a_share_of_itself(total: Sum, expected: str) -> None:
    limit = limited(sums={"hours.value": 0.01})
    assert answer(limit, table("hours", "windowed", {1: 1}, sums={"value": total})) == expected


def test_a_sum_that_was_not_compared_asks() -> None:
    found = decide(limited(sums={"hours.value": 0.01}), compared(table("hours", "windowed", {1: 1})))
    assert (found.answer, found.why) == (
        "ask",
        "1 rows differ, and that is over the limit: the sum of hours.value cannot be compared",
    )


def test_everything_that_is_over_a_limit_is_told() -> None:
    limit = limited(rows=1, share=0.01, sums={"hours.value": 0.0})
    total = Sum(before=200.0, change=-3.0)
    found = decide(limit, compared(table("hours", "windowed", {1: 9}, sums={"value": total})))
    assert found.why == (
        "9 rows differ, and that is over the limit: 9 rows of at most 1; hours: 10.000% of at most 1.000%; "
        "the sum of hours.value changes by -1.500%, of at most 0.000%"
    )
