"""Prints what a replay would change in production."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.text import Text

from deltaworks.cli.console import cell_text, out, print_table
from deltaworks.lakehouse.publish.comparison import Comparison, Sample, SampleCell, TableComparison

_MOST = 10
_COUNTS = ("production", "replay", "equal", "changed", "only in production", "only in replay")
_COLORS = {"changed": "yellow", "only in production": "red", "only in staging": "green"}
_SIGNS = {"changed": "~", "only in production": "-", "only in staging": "+"}


def print_comparison(comparison: Comparison, *, samples: int = 3) -> None:
    """Prints the counts of every table, then the differing columns, days and rows of each.

    Args:
        comparison: the comparison to print.
        samples: rows to show per kind and table.
    """
    print_table(
        "Replay and production",
        ("table", *_COUNTS),
        (
            (
                table.table,
                table.rows.production,
                table.rows.staging,
                table.rows.equal,
                _count(table.rows.changed, "changed"),
                _count(table.rows.only_production, "only in production"),
                _count(table.rows.only_staging, "only in staging"),
            )
            for table in comparison.tables
        ),
        right=_COUNTS,
    )
    for table in comparison.tables:
        _print_details(table, samples)
    if comparison.equal:
        out.print("Everything is equal: publishing changes nothing.")
    else:
        out.print(f"{comparison.differences:,} rows differ.")


def _print_details(table: TableComparison, samples: int) -> None:
    """Prints nothing about a table that is wholly compared and equal."""
    if table.equal and not table.open_days:
        return
    out.print(Text(table.table, "bold"))
    for what, names in (
        ("new table, not in production yet", [] if table.production_version is not None else [table.table]),
        ("columns that only the replay has", table.new_columns),
        ("columns that only production has, not compared", table.gone_columns),
        ("days whose windows may still change, not compared", table.open_days),
        ("columns that differ", _columns(table)),
        ("days that differ", _days(table)),
    ):
        if names:
            out.print(Text.assemble(f"  {what}: ", (_some(list(names)), "bold")))
    for kind in _COLORS:
        for sample in [sample for sample in table.samples if sample.kind == kind][:samples]:
            out.print(_sample(sample, table))
    out.print()


def _columns(table: TableComparison) -> list[str]:
    columns = sorted(table.columns.items(), key=lambda column: -column[1])
    return [f"{name} ({count:,})" for name, count in columns if count]


def _days(table: TableComparison) -> list[str]:
    return [str(day) for day in table.days if day.different]


def _sample(sample: Sample, table: TableComparison) -> Text:
    """A changed row as its key and its changed columns; any other row in full."""
    color = _COLORS[sample.kind]
    line = Text(f"  {_SIGNS[sample.kind]} ", color)
    if sample.before is None or sample.after is None:
        return line.append(_cells(sample.before or sample.after or {}), "dim")
    line.append(_cells({name: cell for name, cell in sample.before.items() if name not in table.columns}), "dim")
    for name, old in sample.before.items():
        if name in table.columns and old != (new := sample.after.get(name)):
            line.append(f"; {name} ").append(_shown(old), "red").append(" -> ").append(_shown(new), "green")
    return line


def _cells(row: Mapping[str, SampleCell]) -> str:
    return ", ".join(f"{name}={_shown(cell)}" for name, cell in row.items())


def _shown(cell: SampleCell) -> str:
    """The text of a cell: empty for a missing one, and numbers as in SQL."""
    if cell is None:
        return "null"
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, str) and (not cell or cell != cell.strip()):
        return json.dumps(cell)
    return cell_text(cell)


def _count(count: int, kind: str) -> Text:
    return Text(cell_text(count), _COLORS[kind] if count else "")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
