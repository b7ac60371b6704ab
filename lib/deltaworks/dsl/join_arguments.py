"""Which arguments a join takes, depending on what is joined: a wrong call is refused, with a valid one as the hint.

mypy finds the same mistakes by the overloads of the operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.materialized import Materialized
from deltaworks.dsl.mistakes import named, need_value
from deltaworks.topology.join_windows import JoinWindows
from deltaworks.topology.nodes.base import Origin

_CALLS = {
    "KTable": "other, joiner",
    "KStream": "other, joiner, JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
    "GlobalKTable": "other, joiner, selector=lambda key, value: key",
}
"""Kind of the partner of a stream -> the arguments of a valid call."""

_NEEDED = {"KStream": "windows", "GlobalKTable": "selector"}
_OPTIONAL = {"KStream": "store", "KTable": "grace"}


def check_stream_join(graph: Graph, other: Any, arguments: Mapping[str, Any], *, operator: str, where: Origin) -> None:
    """Refuses what cannot be joined with a stream, arguments that do not go with it, and the lack of a needed one.

    Args:
        arguments: name -> value of the arguments that only some joins take; None or empty: not given.
    """
    given = {name: value for name, value in arguments.items() if value is not None and value != ""}
    kind = next((base.__name__ for base in type(other).__mro__ if base.__name__ in _CALLS), None)
    if kind is None:
        made_by = "builder.table(...), builder.stream(...) and builder.global_table(...) make them"
        graph.refuse(f"{operator} needs a KTable, KStream or GlobalKTable, but got {named(other)}.", where, made_by)
    call = f"{operator}({_CALLS[kind]})"
    if operator.startswith("outer_") and kind != "KStream":
        hint = call.replace("outer_", "left_", 1)
        graph.refuse(f"{operator} joins a stream with another stream only, but got {named(other)}.", where, hint)
    if kind == "GlobalKTable" and callable(given.get("windows")):
        graph.refuse(f"{operator} takes the joiner second, and the selector as a keyword.", where, call)
    needed = _NEEDED.get(kind)
    for name, value in given.items():
        if name not in (needed, _OPTIONAL.get(kind)):
            hint = f"select_key(selector).{call}" if name == "selector" else call
            graph.refuse(f"{operator} with a {kind} takes no argument {name}, but got {named(value)}.", where, hint)
    if needed and needed not in given:
        graph.refuse(f"{operator} with a {kind} needs the argument {needed}.", where, call)
    if kind == "KStream":
        need_value(graph, given["windows"], JoinWindows, _CALLS[kind], operator)


def check_table_join(graph: Graph, more: tuple[Any, ...], *, operator: str, where: Origin) -> None:
    """Refuses positional arguments after the joiner, such as Java's `(other, foreign_key, joiner)`."""
    if not more:
        return
    if callable(more[0]):
        hint = f"{operator}(other, joiner, foreign_key=lambda key, value: value)"
        graph.refuse(f"{operator} takes the joiner second, and the foreign key as a keyword.", where, hint)
    hint = (
        f"{operator}(other, joiner, store='...')" if isinstance(more[0], Materialized) else f"{operator}(other, joiner)"
    )
    graph.refuse(f"{operator} of two tables takes (other, joiner), but also got {named(more[0])}.", where, hint)
