"""How the rows of a table are kept: what `store=` takes besides a name, and the specification made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from deltaworks.dsl.mistakes import Answering
from deltaworks.dsl.point import Known, Point
from deltaworks.serdes import Serde
from deltaworks.serdes.windowed import WindowEnds
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreKind, StoreSpec


@dataclass(frozen=True)
class Materialized(Answering):
    """A store in detail; where only its name matters, the name is enough.

    Args:
        name: name of the store; part of the pipeline's state, so keep it. Empty: a generated one, if allowed.
        caching: forward the last update per key at a commit; None: as the builder's `record_cache` says.
        retention: how long windows and sessions are kept; None: as long as they can change.
        history: keeps the versions of each key for this long (a versioned store), so that joins see the past.
        in_memory: asks for a store in memory. Our stores are in memory and durable at once, so it changes nothing.
        logging: a store of Kafka Streams without a changelog is empty after a restart. Ours return with the checkpoint.
        key: serde of the keys, if it is not known.
        value: serde of the values, if it is not known.
        migrate: `(old_serde, old_to_new)`: converts the stored values to the new type, once, when the pipeline first
            starts with it; None from the function deletes. Without it a start is refused, unless the old values can be
            read as they are: JSON with removed fields, new fields with a default, an `int` that is `float` now, or a
            value that may be None now.

    Source: `Materialized`.

    >>> Materialized("users", history=timedelta(hours=1)).name
    'users'
    """

    name: str = ""
    caching: bool | None = None
    retention: timedelta | None = None
    history: timedelta | None = None
    in_memory: bool = False
    logging: bool = True
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    migrate: tuple[Serde[Any], Callable[[Any], Any]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"a store is named by a text, such as Materialized('counts'), not by {self.name!r}")
        for what, duration in (("retention", self.retention), ("history", self.history)):
            if duration is not None and milliseconds(duration, f"the {what} of a store") < 0:
                raise ValueError(f"the {what} of a store must not be negative, but is {duration}")

    @property
    def history_ms(self) -> int | None:
        """None if the store is not versioned."""
        return None if self.history is None else milliseconds(self.history, "the history of a store")

    @classmethod
    def of(cls, store: Any) -> Materialized:
        """A `Materialized` from what the user gave as `store=`."""
        if isinstance(store, Materialized):
            return store
        if store is not None and not isinstance(store, str):
            kind = type(store).__name__
            raise TypeError(f"store= takes a name, such as store='counts', or a Materialized, but got a {kind}")
        return cls(store or "")


Stored: TypeAlias = str | Materialized


def store_spec(
    at: Point,
    kept: Materialized,
    *,
    kind: StoreKind,
    value: Known,
    operator: str,
    where: Origin,
    retention_ms: int | None = None,
    windows: WindowEnds | None = None,
) -> StoreSpec:
    """The store of a node that is connected at a point."""
    key, value = kept.key or at.key, kept.value or value
    return StoreSpec(
        name=kept.name,
        kind=kind,
        key=at.need(key, operator=operator, argument="key", where=where),
        value=at.need(value, operator=operator, argument="value", where=where),
        retention_ms=retention_ms,
        windows=windows,
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
