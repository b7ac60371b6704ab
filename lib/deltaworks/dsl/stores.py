"""The stores of nodes, as the user's `Materialized` and the types known at a point make them."""

from __future__ import annotations

from deltaworks.dsl.materialized import Materialized
from deltaworks.dsl.point import Known, Point
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreKind, StoreSpec


def store_spec(
    at: Point,
    kept: Materialized,
    *,
    kind: StoreKind,
    value: Known,
    operator: str,
    where: Origin,
    retention_ms: int | None = None,
    window_size_ms: int | None = None,
) -> StoreSpec:
    """The store of a node that is connected at a point."""
    key, value = kept.key or at.key, kept.value or value
    return StoreSpec(
        name=kept.name,
        kind=kind,
        key=at.need(key, operator=operator, argument="key", where=where),
        value=at.need(value, operator=operator, argument="value", where=where),
        retention_ms=retention_ms,
        window_size_ms=window_size_ms,
        migrate=kept.migrate,
        cached=kind != "versioned" and (at.graph.config.record_cache if kept.caching is None else kept.caching),
    )


def rows_spec(at: Point, kept: Materialized, *, value: Known, operator: str, where: Origin) -> StoreSpec:
    """The store for the rows of a table that is made at a point; versioned if the user asks for a history."""
    kind: StoreKind = "key-value" if kept.history is None else "versioned"
    return store_spec(at, kept, kind=kind, value=value, operator=operator, where=where, retention_ms=kept.history_ms)


def own_store(at: Point, kept: Materialized, *, value: Known, operator: str, where: Origin) -> str:
    """Declares the store of `rows_spec` and returns its name."""
    spec = rows_spec(at, kept, value=value, operator=operator, where=where)
    at.graph.add_store(spec, where)
    return spec.name
