"""Tables made row by row from another one, with or without a store of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.materialized import Materialized, Stored, own_store
from deltaworks.dsl.point import Known, Point, Typed
from deltaworks.dsl.processing import check_supplier, connected_stores, forwarded_types
from deltaworks.dsl.state_stores import StoreBuilder
from deltaworks.dsl.table_readers import ask_for_old_values
from deltaworks.topology.nodes import TableFilter, TableMapValues, TableTransformValues
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.processors import ValueTransformer

_FILTER = "KTABLE-FILTER-"
_MAP_VALUES = "KTABLE-MAPVALUES-"


def filter_rows(
    at: Point,
    predicate: Callable[[Any, Any], bool],
    *,
    negate: bool,
    store: Stored,
    name: str | None,
    operator: str,
    where: Origin,
) -> Point:
    """Connects a filter. It sends old values if that takes no store that nothing else needs.

    Source: `KTableImpl#doFilter`.
    """
    kept = _kept(at.graph, store, _FILTER)
    node = TableFilter(
        name=at.graph.name_of(name, _FILTER),
        parents=(at.node,),
        predicate=predicate,
        negate=negate,
        store=own_store(at, kept, value=at.value, operator=operator, where=where) if kept.name else None,
        origin=where,
    )
    filtered = at.then(node, key=kept.key, value=kept.value)
    if ask_for_old_values(at.graph, at.node, force=False):
        at.graph.old_values.add(node.name)
    return filtered


def map_rows(
    at: Point,
    mapper: Callable[[Any, Any], Any],
    *,
    value: Known,
    store: Stored,
    name: str | None,
    operator: str,
    where: Origin,
) -> Point:
    """Connects a mapper of values.

    Source: `KTableImpl#doMapValues`.
    """
    kept = _kept(at.graph, store, _MAP_VALUES)
    node = TableMapValues(
        name=at.graph.name_of(name, _MAP_VALUES),
        parents=(at.node,),
        mapper=mapper,
        store=own_store(at, kept, value=value, operator=operator, where=where) if kept.name else None,
        origin=where,
    )
    return at.then(node, key=kept.key, value=kept.value or value)


def transform_rows(
    at: Point,
    supplier: Callable[[], ValueTransformer[Any, Any, Any]],
    connected: Sequence[str | StoreBuilder[Any]],
    *,
    value: Typed[Any] | None,
    store: Stored,
    name: str | None,
    where: Origin,
) -> Point:
    """Connects a transformer of values.

    Source: `KTableImpl#doTransformValues`.
    """
    operator, kept = "transform_values", Materialized.of(store)
    made = check_supplier(at.graph, supplier, ValueTransformer, operator=operator, where=where)
    _, hinted = forwarded_types(supplier, made)
    known = at.settle(value, hinted, operator=operator, argument="value", where=where)
    node = TableTransformValues(
        name=at.graph.name_of(name, "KTABLE-TRANSFORMVALUES-"),
        parents=(at.node,),
        supplier=supplier,
        connected=connected_stores(at.graph, supplier, made, connected, operator=operator, where=where),
        store=own_store(at, kept, value=known, operator=operator, where=where) if kept.name else None,
        origin=where,
    )
    return at.then(node, key=kept.key, value=kept.value or known)


def _kept(graph: Graph, store: Stored, prefix: str) -> Materialized:
    """Store details without a name make no store; as in Kafka Streams, they use up a number."""
    kept = Materialized.of(store)
    if isinstance(store, Materialized) and not kept.name:
        graph.store_name("", prefix)
    return kept
