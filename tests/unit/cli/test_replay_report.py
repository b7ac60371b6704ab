"""What somebody sees of a comparison before he publishes."""

from __future__ import annotations

import pytest

from deltaworks.cli.replay_report import print_comparison
from deltaworks.lakehouse.publish.comparison import Comparison, Day, RowCounts, Sample, TableComparison
from deltaworks.lakehouse.publish.scope import Scope

EQUAL = RowCounts(production=1234, staging=1234, equal=1234, changed=0, only_production=0, only_staging=0)
OTHER = RowCounts(production=3, staging=3, equal=1, changed=1, only_production=1, only_staging=1)


def test_equal_tables_are_counted_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(_comparison(_table("orders", EQUAL)))

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[-1] == "Everything is equal: publishing changes nothing."
    assert lines[-2].split() == ["orders", "1,234", "1,234", "1,234", "0", "0", "0"]
    assert len(lines) == 4


def test_what_differs_is_shown_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    changed = Sample(
        kind="changed",
        before={"key": "a", "amount": "0.10", "note": None, "other": "x", "offset": 12345},
        after={"key": "a", "amount": "0.11", "note": "", "other": "x", "offset": 12345},
    )
    gone = Sample(kind="only in production", before={"key": "b", "amount": "1"}, after=None)
    new = Sample(kind="only in staging", before=None, after={"key": "c", "amount": "[/]"})
    day = Day(day="2026-03-01", production=3, staging=3, equal=1, changed=1, only_production=1, only_staging=1)

    print_comparison(
        _comparison(
            _table(
                "orders",
                OTHER,
                days=(day,),
                columns={"amount": 1, "note": 1, "other": 0},
                samples=(changed, gone, new),
            )
        )
    )

    shown = capsys.readouterr().out
    assert "  columns that differ: amount (1), note (1)\n" in shown
    assert "  days that differ: 2026-03-01 (2 of 3, 1 new)\n" in shown
    assert '  ~ key=a, offset=12345; amount 0.10 -> 0.11; note null -> ""\n' in shown
    assert "  - key=b, amount=1\n" in shown
    assert "  + key=c, amount=[/]\n" in shown
    assert shown.endswith("3 rows differ.\n")


def test_days_that_are_left_out_are_named_though_the_rest_is_equal(capsys: pytest.CaptureFixture[str]) -> None:
    days = tuple(f"2026-03-{day:02}" for day in range(1, 13))

    print_comparison(_comparison(_table("hours", EQUAL, open_days=days)))

    shown = capsys.readouterr().out
    assert "days whose windows may still change, not compared: 2026-03-01" in shown
    assert "2026-03-10 and 2 more" in shown


def test_no_more_samples_than_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    samples = tuple(Sample(kind="only in staging", before=None, after={"key": str(n)}) for n in range(5))

    print_comparison(_comparison(_table("orders", OTHER, samples=samples)), samples=2)

    assert capsys.readouterr().out.count("  + key=") == 2


def _comparison(*tables: TableComparison) -> Comparison:
    return Comparison(tables=tables, scope=Scope(end_offsets={}, last_batch=1), compared_ms=0, seconds=0.1)


def _table(
    name: str,
    rows: RowCounts,
    *,
    days: tuple[Day, ...] = (),
    columns: dict[str, int] | None = None,
    samples: tuple[Sample, ...] = (),
    open_days: tuple[str, ...] = (),
) -> TableComparison:
    return TableComparison(
        table=name,
        role="append",
        rows=rows,
        days=days,
        columns=columns or {},
        samples=samples,
        open_days=open_days,
        production_version=3,
        staging_version=1,
    )
