"""`to_delta`, of streams and of tables: the names and types of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.mistakes import named
from deltaworks.dsl.point import Known, Point
from deltaworks.topology.nodes import DeltaSink
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.sinks import TableKind

Names = str | Sequence[str] | None
"""Names of columns; None: the usual ones."""
_VALUE = ("value= names the column of the value", "value='revenue'; value_type=... gives the type")
_DOC = ("doc= is the description of the table", 'doc="Revenue per user"')
"""Meaning of an argument that is text, and a valid one."""


def delta_sink(
    at: Point,
    table: str,
    kind: TableKind,
    *,
    key: Names,
    value: str | None,
    doc: str | None,
    key_type: Any,
    value_type: Any,
    known_key: Known,
    window_node: str | None,
    name: str,
    where: Origin,
) -> None:
    """Adds the sink; `topology/checks.py` checks the names of its columns."""
    operator = f"to_delta('{table}')"
    at.graph.add(
        DeltaSink(
            name=name,
            parents=(at.node,),
            table=table,
            kind=kind,
            key=_type(at, key_type, known_key, operator, "key", where),
            value=_type(at, value_type, at.value, operator, "value", where),
            key_name=_key_name(at.graph, key, operator, where),
            value_name=_text(at.graph, value, operator, *_VALUE, where),
            doc=_text(at.graph, doc, operator, *_DOC, where),
            window_node=window_node,
            origin=where,
        )
    )


def _type(at: Point, given: Any, known: Known, operator: str, part: str, where: Origin) -> Any:
    """The type of the columns, with everything that is annotated in it."""
    argument = f"{part}_type"
    if given is not None:
        known = at.settle(given, None, operator=operator, argument=argument, where=where)
    serde = at.need(known, operator=operator, argument=part, where=where)
    return serde.type if given is None or given is known else given


def _key_name(graph: Graph, given: Any, operator: str, where: Origin) -> str | tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Sequence) and given and all(isinstance(name, str) for name in given):
        return tuple(given)
    graph.report(
        f"{operator}: key= names the column of the key, but got {named(given)}.",
        where,
        "key='user_id', or key=('store', 'item') for a key of several columns; key_type=... gives the type",
    )
    return None


def _text(graph: Graph, given: Any, operator: str, what: str, hint: str, where: Origin) -> str | None:
    if given is None or isinstance(given, str):
        return given
    graph.report(f"{operator}: {what}, but got {named(given)}.", where, hint)
    return None
