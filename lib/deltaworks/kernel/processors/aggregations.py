"""Count, reduce and aggregate as two or three functions, the same for every kind of window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from deltaworks.topology.nodes.aggregates import Aggregate, Aggregation, Count, Reduce


@dataclass(frozen=True)
class Functions:
    """The functions of an aggregation."""

    initial: Callable[[], Any]
    update: Callable[[Any, Any, Any], Any]
    """`(key, value, aggregate) -> aggregate`"""
    merge: Callable[[Any, Any, Any], Any]
    """`(key, aggregate so far, aggregate of the next session) -> aggregate`"""


def functions(aggregation: Aggregation) -> Functions:
    match aggregation:
        case Count():
            return Functions(lambda: 0, lambda key, value, count: count + 1, lambda key, left, right: left + right)
        case Reduce():
            reducer = aggregation.reducer

            def reduce(key: Any, value: Any, aggregate: Any) -> Any:
                return value if aggregate is None else reducer(aggregate, value)

            return Functions(lambda: None, reduce, lambda key, left, right: reduce(key, right, left))
        case Aggregate():
            return Functions(aggregation.initializer, aggregation.aggregator, aggregation.merger or _no_merger)
        case _:
            assert_never(aggregation)


def check_retention(store: str, retention_ms: int | None, needed_ms: int) -> None:
    """Checks plans that were made without the DSL, which checks this itself."""
    if retention_ms is None or retention_ms < needed_ms:
        raise ValueError(f"store '{store}' keeps {retention_ms} ms; its windows with their grace need {needed_ms} ms")


def _no_merger(key: Any, left: Any, right: Any) -> Any:
    raise TypeError("an aggregate over sessions needs a merger")
