"""The types of a topic or store under test, as its test gives them.

A type (`str`, `Order`) is a claim about what the topology has, which is checked. A serde says which bytes a test writes
into a topic or reads from it, whatever the topology has.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

from deltaworks.dsl.graph import BuilderConfig, Graph, call_site
from deltaworks.dsl.point import Typed, settle
from deltaworks.serdes import Serde, Windowed, serde_for
from deltaworks.serdes.type_names import type_name


def topic_serde(given: Typed[Any] | None, known: Serde[Any] | None, topic: str, argument: str) -> Serde[Any]:
    """The serde of a topic's keys or values in a test.

    Args:
        given: A type or a serde; None: what the topology has.
        known: What the topology has; None if it does not say.
        topic: Its name.
        argument: `key` or `value`.

    Raises:
        TypeError: The topology has another type there, or there is no serde for the type.
    """
    what = f"topic '{topic}'"
    if given is None and known is None:
        raise TypeError(f"{what}: the topology does not say what its {argument}s are.\n  Hint: {argument}=bytes")
    if given is None and known is not None:
        return known
    if known is None or not _is_type(given):
        return _serde(given, what, argument)
    if not _fits(given, known.type):
        hint = f"or a serde, such as {argument}=Long(), to write or read other bytes"
        raise _mismatch(what, argument, known, type_name(given), hint)
    return known


def check_store_type(given: Typed[Any], known: Serde[Any], store: str, argument: str) -> None:
    """Refuses a type or serde that is not the one of a store.

    Raises:
        TypeError: The store has another one.
    """
    if _is_type(given):
        fits, told = _fits(given, known.type), type_name(given)
    else:
        serde = _serde(given, f"store '{store}'", argument)
        fits, told = serde == known, serde.name
    if not fits:
        raise _mismatch(f"store '{store}'", argument, known, told)


def _is_type(given: Any) -> bool:
    """Whether it is neither a serde nor the class of one."""
    return not hasattr(given, "deserialize")


def _fits(given: Any, known: Any) -> bool:
    """Whether a type means the same values as the type of a serde; None and `NewType` make no difference."""
    if given == known or known in (Any, object) or get_origin(known) is given:
        return True
    if get_origin(given) is Windowed and get_origin(known) is Windowed:
        return _fits(get_args(given)[0], get_args(known)[0])
    one, other = serde_for(given), serde_for(known)
    return one is not None and other is not None and one.type == other.type


def _serde(given: Typed[Any] | None, what: str, argument: str) -> Serde[Any]:
    graph = Graph(what, BuilderConfig())
    serde = settle(graph, given, None, operator=what, argument=argument, where=call_site())
    if graph.problems:
        raise TypeError(str(graph.problems[0]).strip())
    return serde


def _mismatch(what: str, argument: str, known: Serde[Any], told: str, otherwise: str = "") -> TypeError:
    hint = ", ".join(filter(None, [f"{argument}={type_name(known.type)}", otherwise]))
    return TypeError(
        f"{what} has {argument}s of type {type_name(known.type)} ({known.name}), not {told}.\n  Hint: {hint}"
    )
