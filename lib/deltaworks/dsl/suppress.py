"""Suppressing a table: how long its windows stay open, the node, its buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.point import Point
from deltaworks.dsl.table_readers import ask_for_old_values, is_versioned
from deltaworks.topology.nodes import (
    AnyNode,
    ExchangeSink,
    SessionAggregate,
    SlidingAggregate,
    Source,
    Suppress,
    WindowAggregate,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.suppressed import Suppressed


@dataclass(frozen=True)
class Closing:
    """When the windows of an aggregate have closed."""

    after_ms: int
    """How long after its end a window accepts records."""
    inclusive: bool
    """The end is a record's time, so a window changes until time is past `end + after_ms`."""

    @property
    def stays_open_ms(self) -> int:
        """The argument for `WindowClock`."""
        return self.after_ms if self.inclusive else self.after_ms - 1


def suppress(at: Point, suppressed: Suppressed[Any], *, store: str, name: str | None, where: Origin) -> Point:
    """Connects a node that holds updates back.

    Source: `KTableImpl#suppress`; unlike elsewhere, a given name uses up no number.
    """
    graph = at.graph
    node = name or graph.next_name("KTABLE-SUPPRESS-")
    buffer = store or (f"{name}-store" if name else graph.next_name("KTABLE-SUPPRESS-STATE-STORE-"))
    if not (store or name):
        graph.demand_name("suppress", where)
    if is_versioned(graph, at.node):
        graph.report(
            "suppress cannot hold back a versioned table, because its updates may belong to the past.",
            where,
            "keep the table without history, or suppress a table made from it that has a store without history",
        )
    # A lookup of a key that is held back sees its previous value.
    ask_for_old_values(graph, at.node, force=True)
    closing = closing_above(graph, at.node)
    wait_ms = suppressed.wait_ms
    if wait_ms is None and closing is None:
        graph.report(
            "suppress until windows close: this table is not made from windows, so none ever closes.",
            where,
            "suppress a table of windowed_by(...), or use Suppressed.until_time_limit(...)",
        )
    closing = closing or Closing(0, inclusive=False)
    graph.add_store(
        StoreSpec(
            name=buffer,
            kind="suppress",
            key=at.need(at.key, operator="suppress", argument="key", where=where),
            value=at.need(at.value, operator="suppress", argument="value", where=where),
        ),
        where,
    )
    return at.then(
        Suppress(
            name=node,
            parents=(at.node,),
            wait_ms=closing.after_ms if wait_ms is None else wait_ms,
            until_window_closes=wait_ms is None,
            stays_open_ms=closing.stays_open_ms if wait_ms is None else max(closing.stays_open_ms, wait_ms),
            buffer=suppressed.buffer,
            store=buffer,
            origin=where,
        )
    )


def closing_above(graph: Graph, node: str) -> Closing | None:
    """When the windows of a node's records close; None if one of the paths above it has no windows.

    Source: `GraphGraceSearchUtil`; of several paths, the one that accepts records the longest counts.
    """
    exchanges = {each.exchange: each for each in graph.nodes if isinstance(each, ExchangeSink)}

    def search(name: str, seen: frozenset[str]) -> Closing | None:
        each = graph.node(name)
        if (closing := _closing(each)) is not None:
            return closing
        above = each.parents
        if isinstance(each, Source) and each.exchange:
            above = tuple(exchanges[topic].name for topic in each.topics)
        found = [search(parent, seen | {name}) for parent in above if parent not in seen]
        known = [closing for closing in found if closing is not None]
        return max(known, key=lambda closing: closing.stays_open_ms) if known and len(known) == len(found) else None

    return search(node, frozenset())


def _closing(node: AnyNode) -> Closing | None:
    match node:
        case WindowAggregate():
            return Closing(node.windows.grace_ms, inclusive=False)
        case SlidingAggregate():
            return Closing(node.windows.grace_ms, inclusive=True)
        case SessionAggregate():
            return Closing(node.windows.grace_ms + node.windows.gap_ms, inclusive=True)
        case _:
            return None
