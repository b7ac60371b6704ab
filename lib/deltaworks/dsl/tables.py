"""`to_delta`, of streams and of tables: the names, meaning and types of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.mistakes import named
from deltaworks.dsl.point import Known, Point
from deltaworks.topology.docs import Column
from deltaworks.topology.nodes import DeltaSink
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.sinks import TableKind

KeyColumns = str | Column | Sequence[str | Column] | None
"""Columns of the key; None: the usual ones."""
ValueColumn = str | Column | None
"""Column of a value without fields; None: the usual one."""


def delta_sink(
    at: Point,
    table: str,
    kind: TableKind,
    *,
    key: Any,
    value: Any,
    doc: Any,
    known_key: Known,
    window_node: str | None,
    name: str,
    where: Origin,
) -> None:
    """Adds the sink; `topology/checks.py` checks the names of its columns."""
    operator, graph = f"to_delta('{table}')", at.graph
    if not isinstance(doc, str | None):
        graph.report(f"{operator}: doc= describes the table, but got {named(doc)}.", where, 'doc="Revenue per user"')
        doc = None
    node = rows_of(at, table, kind, key=key, value=value, known_key=known_key, operator=operator, where=where)
    graph.add(replace(node, name=name, parents=(at.node,), doc=doc, window_node=window_node))


def rows_of(
    at: Point, table: str, kind: TableKind, *, key: Any, value: Any, known_key: Known, operator: str, where: Origin
) -> DeltaSink:
    """A node that is in no topology yet, which says what the columns of a table derive from."""
    graph = at.graph
    keys = _key(graph, key, operator, where)
    values = _value(graph, value, operator, where)
    key_names = tuple(column.name for column in keys)
    return DeltaSink(
        name="",
        table=table,
        kind=kind,
        key=_type(at, keys if isinstance(key, Column) else (), known_key, operator, "key", where),
        value=_type(at, values, at.value, operator, "value", where),
        key_name=None if not keys else key_names[0] if isinstance(key, str | Column) else key_names,
        value_name=values[0].name if values else None,
        column_docs=tuple((each.name, each.doc) for each in (*values, *keys) if each.doc is not None),
        origin=where,
    )


def _type(at: Point, columns: Sequence[Column], known: Known, operator: str, part: str, where: Origin) -> Any:
    """The type of key or value, with everything that is annotated in it."""
    given = columns[0].type if columns else None
    if given is not None:
        known = at.settle(given, None, operator=operator, argument="type", where=where)
    serde = at.need(known, operator=operator, argument=part, where=where)
    return serde.type if given is None or given is known else given


def _key(graph: Graph, given: Any, operator: str, where: Origin) -> tuple[Column, ...]:
    if given is None:
        return ()
    several = () if isinstance(given, str | Column) or not isinstance(given, Sequence) else tuple(given)
    columns = tuple(filter(None, map(_column, several or (given,))))
    if len(columns) != max(1, len(several)):
        graph.report(
            f"{operator}: key= names the column of the key, but got {named(given)}.",
            where,
            "key='user_id', key=Column('user_id', 'The user'), or key=('store', 'item') for a key of several columns",
        )
        return ()
    if several and any(column.type is not None for column in columns):
        graph.report(
            f"{operator}: type= is for a key of one column, but key= has several.",
            where,
            "give the type where the key is made, such as select_key(..., key=tuple[str, int])",
        )
        return ()
    return columns


def _value(graph: Graph, given: Any, operator: str, where: Origin) -> tuple[Column, ...]:
    if given is None:
        return ()
    if (column := _column(given)) is not None:
        return (column,)
    graph.report(
        f"{operator}: value= names the column of the value, but got {named(given)}.",
        where,
        "value='revenue', or value=Column('revenue', 'Sum of the orders in euros')",
    )
    return ()


def _column(given: Any) -> Column | None:
    return given if isinstance(given, Column) else Column(given) if isinstance(given, str) else None
