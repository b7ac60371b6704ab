"""One record at a time, without memory.

Each processor is a function. Exceptions of the user's function are handled here, at the operator that called it;
exceptions of an operator further down have been handled there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.stateless import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Peek,
    SelectKey,
)

_NOTHING = object()
"""The result of a function that has not returned."""


def not_a_pair(made: Any, error: Exception) -> Exception:
    """The error of a function that should return a key and a value: its own, or that it did not return a pair."""
    if made is _NOTHING or (isinstance(made, tuple) and len(made) == 2):
        return error
    return TypeError(f"the function returned {_kind(made)}, not a pair (key, value)")


def several(made: Any) -> Iterator[Any]:
    """The results of a function that should return any number of them."""
    if isinstance(made, str | bytes):
        raise TypeError(f"the function returned {_kind(made)}, not several results; return a list, such as [value]")
    try:
        return iter(made)
    except TypeError as error:
        raise TypeError(f"the function returned {_kind(made)}, not several results; return [] for none") from error


def _kind(made: Any) -> str:
    """The type of a result, never the value, which may be a secret."""
    return "None" if made is None else f"one {type(made).__name__}"


def filtering(node: Filter, wiring: Wiring) -> Process:
    name, predicate, unwanted = node.name, node.predicate, not node.negate
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            dropped = (not predicate(key, value)) is unwanted
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        if not dropped:
            forward(key, value, timestamp_ms, headers)
        return None

    return process


def mapping(node: Map, wiring: Wiring) -> Process:
    name, mapper = node.name, node.mapper
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        made: Any = _NOTHING
        try:
            made = mapper(key, value)
            new_key, new_value = made
        except Exception as error:
            return failed(name, not_a_pair(made, error), key, value, timestamp_ms, headers)
        return forward(new_key, new_value, timestamp_ms, headers)

    return process


def mapping_values(node: MapValues, wiring: Wiring) -> Process:
    name, mapper = node.name, node.mapper
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            value = mapper(key, value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, value, timestamp_ms, headers)

    return process


def selecting_key(node: SelectKey, wiring: Wiring) -> Process:
    name, selector = node.name, node.selector
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            key = selector(key, value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, value, timestamp_ms, headers)

    return process


def flat_mapping(node: FlatMap, wiring: Wiring) -> Process:
    name, mapper = node.name, node.mapper
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            pairs: Iterator[tuple[Any, Any]] = several(mapper(key, value))
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        while True:
            # A generator may raise after its first pairs; those have been forwarded and stay so.
            made: Any = _NOTHING
            try:
                made = next(pairs)
                new_key, new_value = made
            except StopIteration:
                return None
            except Exception as error:
                return failed(name, not_a_pair(made, error), key, value, timestamp_ms, headers)
            forward(new_key, new_value, timestamp_ms, headers)

    return process


def flat_mapping_values(node: FlatMapValues, wiring: Wiring) -> Process:
    name, mapper = node.name, node.mapper
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            values: Iterator[Any] = several(mapper(key, value))
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        while True:
            try:
                new_value = next(values)
            except StopIteration:
                return None
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            forward(key, new_value, timestamp_ms, headers)

    return process


def peeking(node: Peek, wiring: Wiring) -> Process:
    name, action = node.name, node.action
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            action(key, value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, value, timestamp_ms, headers)

    return process


def branching(node: Branch, wiring: Wiring) -> Process:
    name, failed = node.name, wiring.context.failed
    branches = [(p, wiring.processes[child]) for p, child in zip(node.predicates, node.children, strict=True)]
    default = None if node.default is None else wiring.processes[node.default]

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        for predicate, branch in branches:
            try:
                chosen = predicate(key, value)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            if chosen:
                return branch(key, value, timestamp_ms, headers)
        if default is not None:
            default(key, value, timestamp_ms, headers)
        return None

    return process
