"""Operators on tables: a record's value is a `Change`."""

from __future__ import annotations

from typing import Any, assert_never

from deltaworks.kernel.change import Change
from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.tables import TableFilter, TableMapValues, TableToStream


def row_of_view(view: TableFilter | TableMapValues, key: Any, value: Any | None) -> Any | None:
    """What a filter or mapper makes of one row; may raise what the user's function raises."""
    if value is None:
        return None
    match view:
        case TableFilter():
            return value if (not view.predicate(key, value)) is view.negate else None
        case TableMapValues():
            return view.mapper(key, value)
        case _:
            assert_never(view)


def table_view(node: TableFilter | TableMapValues, wiring: Wiring) -> Process:
    """A row that a filter does not want is a delete; it is forwarded only if there was a row before."""
    name, old_values = node.name, node.old_values
    forward, failed = wiring.forward(name), wiring.context.failed
    skips = old_values and isinstance(node, TableFilter)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        try:
            new = row_of_view(node, key, change.new)
            old = row_of_view(node, key, change.old) if old_values else None
        except Exception as error:
            return failed(name, error)
        if skips and new is None and old is None:
            return None
        return forward(key, Change(new, old), timestamp_ms, headers)

    return process


def table_to_stream(node: TableToStream, wiring: Wiring) -> Process:
    forward = wiring.forward(node.name)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        forward(key, change.new, timestamp_ms, headers)

    return process
