"""What of a replay is published if only differences are: the tables that differ, and their days from first to last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deltaworks.lakehouse.publish.comparison import Comparison, TableComparison
from deltaworks.lakehouse.schema import Role, TableSchema, changelog_name
from deltaworks.replay.model import Narrowed, begin_of
from deltaworks.replay.plan import DAY_MS

Range = tuple[int | None, int | None]


def narrowed(
    comparison: Comparison,
    schemas: Sequence[TableSchema],
    within: Range,
    widened: Callable[[Sequence[str], tuple[int, int]], Range],
) -> Narrowed | None:
    """The tables and days that differ; None: production is equal.

    The days stay as they are if a row may have moved to another day, or if columns come or go: then days without a
    difference matter, too.

    Args:
        comparison: of the whole replay.
        schemas: of the tables that were to be published.
        within: the first moment that was to be published (None: from the beginning), and the first no longer (None: to
            the end).
        widened: tables and a range of days -> the range in which none of their sessions is cut.
    """
    different = [table for table in comparison.tables if not table.equal]
    if not different:
        return None
    chosen = {table.table for table in different}
    for schema in schemas:
        if schema.role is Role.SNAPSHOT and {schema.name, changelog_name(schema.name)} & chosen:
            chosen |= {schema.name, changelog_name(schema.name)}  # they are published together
    tables = tuple(schema.name for schema in schemas if schema.name in chosen)
    begin, end = within
    if not any(map(_needs_all_days, different)):
        days = [begin_of(day.day) for table in different for day in table.days if day.different]
        begin, end = widened(tables, (min(days), max(days) + DAY_MS))
    return Narrowed(tables=tables, from_ms=begin, to_ms=end)


def _needs_all_days(table: TableComparison) -> bool:
    whole = table.role in (Role.CHANGELOG.value, Role.SNAPSHOT.value)
    moved = table.role != Role.WINDOWED.value and table.columns.get("timestamp")
    return bool(whole or moved or table.new_columns or table.gone_columns)
