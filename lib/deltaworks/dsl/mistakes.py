"""Checks of the user's calls of the DSL, reported at the call: names, handles, functions, durations.

`topology/checks.py` checks a topology as a whole; `kafka_names.py` has the names of Kafka Streams.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from deltaworks.dsl.graph import Graph, call_site
from deltaworks.errors import Problem
from deltaworks.serdes import DebeziumChanges
from deltaworks.serdes.type_names import type_name
from deltaworks.topology.durations import wrong_duration
from deltaworks.topology.java_names import instead
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

MAX_SCALE = 38
"""The digits of the widest DECIMAL column."""
_JOIN_GLOBAL = "join(global_table, joiner, selector=lambda key, value: key)"
_AGGREGATE_FIRST = ("count(store='...')", "KTable")
_WAYS: dict[str, tuple[tuple[str, str], ...]] = {
    "KStream": (("group_by_key()", "KGroupedStream"), ("to_table(store='...')", "KTable")),
    "KTable": (("to_stream()", "KStream"),),
    "KGroupedStream": (_AGGREGATE_FIRST,),
    "KGroupedTable": (_AGGREGATE_FIRST,),
    "TimeWindowedKStream": (_AGGREGATE_FIRST,),
    "SessionWindowedKStream": (_AGGREGATE_FIRST,),
    "CogroupedKStream": (("aggregate(..., store='...')", "KTable"),),
    "TimeWindowedCogroupedKStream": (("aggregate(..., store='...')", "KTable"),),
    "SessionWindowedCogroupedKStream": (("aggregate(..., store='...')", "KTable"),),
}
"""Handle -> calls that lead to another handle; the hint shows the first one that has the missing operator."""

_NO_LONGER_SMALLEST = (
    "table.to_stream().group_by(...).{0}(...) takes every update that ever was; of the rows that are in a group now, "
    "nobody knows the next one when the {0} leaves"
)


def _joins(other: str, needed: str, kinds: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Names of joins that say what is joined -> the join."""
    return {
        (handle, f"{kind}join_{other}{key}"): f"{way}{kind}join{key}(other, joiner, {needed})"
        for handle, way in (("KStream", ""), ("KTable", "to_stream()."))
        for kind in kinds
        for key in ("", "_with_key")
    }


_OTHER_NAMES = {
    ("KStream", "transform"): "process(...)",
    ("KStream", "transform_values"): "process_values(...)",
    ("KStream", "flat_transform"): "process(...)",
    ("KStream", "flat_transform_values"): "process_values(...)",
    ("KStream", "branch"): "split().branch(predicate, name='...').default_branch()",
    ("KStream", "through"): "repartition()",
    ("KTable", "group_by_key"): "group_by(lambda key, value: (key, value)): a table is grouped by a function",
    ("KTable", "windowed_by"): "to_stream().group_by_key().windowed_by(...)",
    ("KTable", "aggregate"): "group_by(lambda key, value: (group, value)).aggregate(...)",
    ("KTable", "count"): "group_by(lambda key, value: (group, value)).count(...)",
    ("KTable", "reduce"): "group_by(lambda key, value: (group, value)).reduce(...)",
    ("KTable", "sum"): "group_by(lambda key, value: (group, value)).sum(...)",
    ("KTable", "mean"): "group_by(lambda key, value: (group, value)).mean(...)",
    ("KTable", "min"): _NO_LONGER_SMALLEST.format("min"),
    ("KTable", "max"): _NO_LONGER_SMALLEST.format("max"),
    ("KGroupedTable", "min"): _NO_LONGER_SMALLEST.format("min"),
    ("KGroupedTable", "max"): _NO_LONGER_SMALLEST.format("max"),
    ("KTable", "join_foreign_key"): "join(other, joiner, foreign_key=lambda key, value: value)",
    ("KTable", "left_join_foreign_key"): "left_join(other, joiner, foreign_key=lambda key, value: value)",
    ("StreamsBuilder", "ktable"): "table(...)",
    ("StreamsBuilder", "kstream"): "stream(...)",
    **_joins("stream", "windows", ("", "left_", "outer_")),
    **_joins("global", "selector=lambda key, value: key", ("", "left_")),
}
"""Handle and name -> what to call here, where the rules below do not find it."""

_SUITABLE = {
    ("KTable", "KStream"): "stream.join(table, joiner) joins its rows; stream.to_table(store='...') makes a table",
    ("KTable", "GlobalKTable"): f"table.to_stream().{_JOIN_GLOBAL}",
    ("KStream", "KTable"): "table.to_stream() is the stream of its updates; stream.join(table, joiner) joins its rows",
    ("KStream", "GlobalKTable"): f"stream.{_JOIN_GLOBAL}",
    ("KGroupedStream", "KStream"): "stream.group_by_key() groups it",
    ("KGroupedStream", "KTable"): "table.to_stream().group_by_key() groups its updates",
}
"""The handle that is needed and the one that was given -> what to do."""


class Hinted:
    """Base of classes whose error for a missing name says what to write instead."""

    _other_names: ClassVar[Mapping[str, str]] = {}
    """Name in snake case -> what to write instead, where `pipeInput` -> `pipe_input` and `getValue` -> `value` do not
    find it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(type(self), name)

    @classmethod
    def _instead(cls, name: str) -> str | None:
        """The replacement for a name that is already in snake case."""
        for each in (name, name.removeprefix("get_")):
            if other := cls._other_names.get(each):
                return other
            if hasattr(cls, each):
                return _as_used(cls, each)
        return None


class Handle(Hinted):
    """Base of the DSL's handles, which know the way from one to another."""

    @classmethod
    def _instead(cls, name: str) -> str | None:
        return _instead(cls, name)


def need_handle(graph: Graph, given: Any, wanted: type[Handle], *, operator: str, where: Origin) -> None:
    """Refuses a handle of another kind."""
    if not isinstance(given, wanted):
        pair = wanted.__name__, type(given).__name__
        made_by = "see who makes one: help(deltaworks." + wanted.__name__ + ")"
        graph.refuse(
            f"{operator} needs a {wanted.__name__}, but got {named(given)}.", where, _SUITABLE.get(pair, made_by)
        )


def need_value(graph: Graph, given: Any, wanted: type | tuple[type, ...], example: str, operator: str) -> None:
    """Refuses an argument of another type.

    Args:
        example: a valid one.
    """
    if not isinstance(given, wanted):
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        names = " or ".join(kind.__name__ for kind in kinds)
        graph.refuse(f"{operator} needs {names}, but got {named(given)}.", call_site(), f"{operator}({example})")


def need_windows(graph: Graph, windows: Any) -> None:
    """Refuses what is not windows, and an author's windows whose state nobody could recognise after a restart."""
    wanted = (TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows, Windows)
    example = "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))"
    need_value(graph, windows, wanted, example, "windowed_by")
    if isinstance(windows, Windows) and " at 0x" in windows.name:
        graph.report(
            f"windowed_by: {windows.name} has a field without a lasting name, which tells a restart nothing.",
            call_site(),
            "give the field a value such as a text or a number, or a class of your own with __repr__",
        )


def need_topics(graph: Graph, topics: Iterable[Any], *, operator: str, where: Origin) -> None:
    """Refuses topic names that are not text."""
    for topic in topics:
        if not isinstance(topic, str):
            hint = f"{operator}('orders', ...)"
            if isinstance(topic, list | tuple | set):
                hint = f"{operator}({', '.join(map(repr, topic))}, ...): one argument for each topic"
            elif callable(topic):
                hint = "to_extracted(...) asks a function for the topic of each record"
            graph.refuse(f"{operator} needs the name of a topic, but got {named(topic)}.", where, hint)


def check_function(
    graph: Graph, function: Any, shape: str, *, operator: str, where: Origin, with_key: bool = False
) -> None:
    """Reports an argument that cannot be called, or does not accept the arguments that it will get.

    Args:
        shape: how it is called, such as `mapper(key, value)`.
        with_key: whether there is an operator of the same name with `_with_key`, which adds the key.
    """
    argument, _, names = shape.removesuffix(")").partition("(")
    call = f"lambda {names}: ..." if names else f"lambda: {function!r}"
    if not callable(function):
        graph.report(f"{operator}: the {argument} must be a function, but is {named(function)}.", where, call)
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some C functions do not declare their parameters.
        return
    given = names.split(", ") if names else []
    if _takes(signature, given):
        return
    hint = call if names else "lambda: ..."
    if with_key and _takes(signature, ["key", *given]):
        hint = f"{operator}_with_key(...) calls it with (key, {names})"
    elif operator.endswith("_with_key") and _takes(signature, given[1:]):
        hint = f"{operator.removesuffix('_with_key')}(...) calls it without the key"
    name = getattr(function, "__name__", type(function).__name__)
    shown = "a lambda that" if name == "<lambda>" else f"'{name}', which"
    what = ", ".join(signature.parameters)
    graph.report(f"{operator} calls its {argument} with ({names}), but got {shown} takes ({what}).", where, hint)


def check_shape(graph: Graph, given: Any, argument: str, names: str, operator: str, where: Origin) -> None:
    """`check_function` for an operator that has a relative `..._with_key`, or is one."""
    keyed = operator.endswith("_with_key")
    shape = f"{argument}({'key, ' if keyed else ''}{names})"
    check_function(graph, given, shape, operator=operator, where=where, with_key=not keyed)


def check_partitioner(graph: Graph, partitioner: Any, *, operator: str, where: Origin) -> None:
    """Reports an argument that cannot choose a partition."""
    if inspect.isclass(partitioner):
        hint = f"partitioner={partitioner.__name__}()"
        graph.report(f"{operator}: partitioner={partitioner.__name__} is a class, not a partitioner.", where, hint)
    elif partitioner is not None:
        shape = "partitioner(topic, key, value, partitions)"
        check_function(graph, partitioner, shape, operator=operator, where=where)


def check_reads(graph: Graph, extractor: Any, offset_reset: Any, *, operator: str, where: Origin) -> None:
    """Reports an invalid timestamp extractor or offset reset."""
    if inspect.isclass(extractor):
        graph.report(
            f"{operator}: timestamp_extractor={extractor.__name__} is a class, not an extractor.",
            where,
            f"timestamp_extractor={extractor.__name__}()",
        )
    elif extractor is not None:
        shape = "timestamp_extractor(record, partition_time_ms)"
        check_function(graph, extractor, shape, operator=operator, where=where)
    if offset_reset not in (None, "earliest", "latest"):
        graph.report(
            f"{operator}: offset_reset is 'earliest' or 'latest', not {offset_reset!r}.",
            where,
            "leave it out, and the host decides",
        )


def check_rows(graph: Graph, value: Any, *, operator: str, where: Origin) -> None:
    """Reports changes of rows where a table needs rows: a deletion would be one more row."""
    if isinstance(value, DebeziumChanges):
        kind = type_name(value.row)
        graph.report(
            f"{operator} keeps rows, and DebeziumChanges({kind}) reads changes of rows.",
            where,
            f"value=Debezium({kind}), or stream(..., value=DebeziumChanges({kind}))",
        )


def check_choice(graph: Graph, given: Any, choices: Sequence[str], what: str, where: Origin) -> None:
    """Reports an argument that is none of several texts."""
    if given not in choices:
        shown = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        graph.report(f"{what} is {shown}, not {given!r}.", where, f"leave it out for {choices[0]!r}")


def check_scale(graph: Graph, scale: Any, *, operator: str, where: Origin) -> None:
    """Reports a number of digits after the point that is none."""
    if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= MAX_SCALE:
        what = f"{operator}: scale= is {named(scale)}, not a number of digits from 0 to {MAX_SCALE}."
        graph.report(what, where, "leave it out for 18")


def check_duration(graph: Graph, given: Any, what: str, *, where: Origin) -> bool:
    """Whether an argument is a `timedelta`; reports any other type."""
    fits = isinstance(given, timedelta)
    if not fits:
        graph.report(f"{wrong_duration(given, what)}.", where)
    return fits


def takes(function: Any, names: str) -> bool:
    """Whether a function can be called with these arguments; True if it does not declare its parameters."""
    try:
        return _takes(inspect.signature(function), names.split(", ") if names else [])
    except (TypeError, ValueError):
        return True


def _takes(signature: inspect.Signature, arguments: list[str]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


class _Answering(type):
    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise _missing(cls, name)


class Answering(Hinted, metaclass=_Answering):
    """Base of other classes that authors call; it answers for names of the class itself, too."""

    @classmethod
    def _instead(cls, name: str) -> str | None:
        return instead(cls, name)


def problem_of(error: BaseException) -> Problem | None:
    """The problem that an error about a missing name carries; None: the error carries none."""
    told = vars(error).get(_PROBLEM)
    return told if isinstance(told, Problem) else None


_PROBLEM = "problem"


def _missing(kind: type[Hinted], name: str) -> AttributeError:
    if name.startswith("_"):
        return AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
    hint = kind._instead(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    what = "operator" if issubclass(kind, Handle) else "method"
    problem = Problem(f"{kind.__name__} has no {what} '{name}'.", str(call_site()), hint)
    text = f"{problem.what}\n    at {problem.where}"
    error = AttributeError(f"{text}\n    Hint: {hint}" if hint else text)
    vars(error)[_PROBLEM] = problem
    return error


def _as_used(kind: type, name: str) -> str:
    """`name(...)` for a method, `name` for a property."""
    return f"{name}(...)" if callable(getattr(kind, name)) else name


def _instead(handle: type[Handle], name: str) -> str | None:
    if hasattr(handle, name):
        return _as_used(handle, name)
    if other := _OTHER_NAMES.get((handle.__name__, name)):
        return other
    if near := instead(handle, name):
        return near
    if handle.__name__ == "GlobalKTable":
        return f"a global table can only be joined: stream.{_JOIN_GLOBAL}"
    if handle.__name__ == "BranchedKStream":
        return "end the split with default_branch() or no_default_branch(), then take a branch: branches['name']"
    known = handles(Handle)
    for way, leads_to in _WAYS.get(handle.__name__, ()):
        if hasattr(known[leads_to], name):
            return f"{way}.{_as_used(known[leads_to], name)}"
    if handle.__name__ not in ("KStream", "KTable") and hasattr(known["KStream"], name):
        return "; ".join(f"{way}.to_stream().{name}(...)" for way, _ in _WAYS.get(handle.__name__, ())) or None
    return None


def handles(kind: type[Handle]) -> dict[str, type[Handle]]:
    """All classes of that kind, by name."""
    return {each.__name__: each for below in kind.__subclasses__() for each in (below, *handles(below).values())}


def named(given: Any) -> str:
    """A description of an argument, for use in a sentence."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if given is None or isinstance(given, str | int | float):
        return repr(given)
    if inspect.isroutine(given):
        return "a function"
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"
