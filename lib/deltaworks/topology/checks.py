"""The checks of a topology. Each one looks at the whole topology, so that all problems are reported at once.

The DSL reports at the user's call what only it can see: unknown types, keys that do not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

from deltaworks.errors import Problem, TableError
from deltaworks.names import OWN_TABLE, STORE, TOPIC
from deltaworks.topology.nodes import (
    AnyNode,
    DeltaSink,
    ExchangeSink,
    FixedKeyProcessorNode,
    ProcessorNode,
    Source,
    TableSource,
    TopicSink,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.published_sinks import at_publish
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.table_columns import author_columns

T = TypeVar("T")


def check(nodes: Sequence[AnyNode], stores: Sequence[tuple[StoreSpec, Origin]]) -> Iterator[Problem]:
    """Every problem of a topology."""
    if not nodes:
        yield Problem(
            "nothing is read, so there is nothing to do.", hint="begin with builder.stream(...) or .table(...)"
        )
    yield from _node_names(nodes)
    yield from _stores(stores)
    yield from _connected_stores(nodes, {store.name for store, _ in stores})
    yield from _topics(nodes)
    yield from _sources(nodes)
    yield from _tables(nodes)
    yield from _published_sinks(nodes)


def table_names(sink: DeltaSink) -> tuple[str, ...]:
    """The Delta tables that a sink writes; most readers ignore the case of their names."""
    return (sink.table, f"{sink.table}_changelog") if sink.kind is TableKind.CHANGELOG else (sink.table,)


def _node_names(nodes: Iterable[AnyNode]) -> Iterator[Problem]:
    for first, again in _repeated((node.name, node) for node in nodes):
        yield Problem(
            f"two operators are named '{again.name}'; the first is at {first.origin}.",
            _at(again.origin),
            "name= must be unique in a topology",
        )


def _stores(stores: Iterable[tuple[StoreSpec, Origin]]) -> Iterator[Problem]:
    for store, where in stores:
        if not STORE.allows(store.name):
            yield Problem(f"'{store.name}' cannot be {STORE.what}.", _at(where), f"use {STORE.valid}")
    for first, again in _repeated((store.name, (store, where)) for store, where in stores):
        yield Problem(
            f"two stores are named '{again[0].name}'; the first is at {first[1]}.",
            _at(again[1]),
            "give each stateful operator a store of its own; to read one twice, keep the KTable in a variable",
        )


def _connected_stores(nodes: Sequence[AnyNode], known: set[str]) -> Iterator[Problem]:
    """Checks the stores that users' processors name."""
    whole = {node.name for node in nodes if isinstance(node, Source) and node.whole}
    fillers = [node for node in nodes if whole.intersection(node.parents)]
    global_stores = {store for node in fillers for store in node.stores}
    for node in nodes:
        if not isinstance(node, ProcessorNode | FixedKeyProcessorNode):
            continue
        for store in node.connected:
            if store not in known:
                yield Problem(
                    f"'{node.name}' names the store '{store}', but there is none of that name.",
                    _at(node.origin),
                    f"add_state_store(...) adds one; there are: {', '.join(sorted(known)) or 'none'}",
                )
            elif store in global_stores and node not in fillers:
                yield Problem(
                    f"'{node.name}' names the store '{store}', which is global.",
                    _at(node.origin),
                    "leave it out: every processor may read global stores",
                )


def _topics(nodes: Iterable[AnyNode]) -> Iterator[Problem]:
    for node in nodes:
        match node:
            case Source(exchange=False):
                names: tuple[str, ...] = node.topics
            case TopicSink():
                names = (node.topic,)
            case ExchangeSink():
                names = (node.exchange,)
            case _:
                names = ()
        for name in names:
            if not TOPIC.allows(name):
                yield Problem(f"'{name}' cannot be {TOPIC.what}.", _at(node.origin), f"use {TOPIC.valid}")


def _sources(nodes: Sequence[AnyNode]) -> Iterator[Problem]:
    tables = {parent for node in nodes if isinstance(node, TableSource) for parent in node.parents}
    sources = [node for node in nodes if isinstance(node, Source) and not node.exchange]
    for source in sources:
        if source.pattern is not None:
            yield from _pattern(source, sources)
    for first, again in combinations(sources, 2):
        for topic in sorted({*first.topics} & {*again.topics}):
            kinds = {source.name in tables for source in (first, again)}
            if first.whole or again.whole:
                hint = "a global table has its topic to itself; keep it in a variable and join it twice"
            elif kinds == {True, False}:
                hint = "use the table for both: table.to_stream() is the stream of its updates"
            elif kinds == {True}:
                hint = "keep the table in a variable and use it twice"
            else:
                hint = "read it with one key type, one value type and one on_null=, and with the same other topics"
            yield Problem(f"topic '{topic}' is read twice; the first time at {first.origin}.", _at(again.origin), hint)


def _pattern(source: Source, sources: Iterable[Source]) -> Iterator[Problem]:
    try:
        matches = re.compile(source.pattern or "").fullmatch
    except re.error as error:
        yield Problem(
            f"the pattern '{source.pattern}' is not a regular expression: {error}.",
            _at(source.origin),
            "it has to match the whole name of a topic, such as 'sensor-.*'",
        )
        return
    for other in sources:
        if other is not source and other.pattern == source.pattern:
            yield Problem(
                f"the pattern '{source.pattern}' is read twice; the other time at {other.origin}.",
                _at(source.origin),
                "read it with one key type and one value type, or keep the stream in a variable",
            )
        for topic in () if other is source else filter(matches, other.topics):
            yield Problem(
                f"topic '{topic}' is read at {other.origin}, and by the pattern '{source.pattern}' too.",
                _at(source.origin),
                "a topic has one source: narrow the pattern, or leave the topic to it",
            )


def _tables(nodes: Iterable[AnyNode]) -> Iterator[Problem]:
    sinks = [node for node in nodes if isinstance(node, DeltaSink)]
    for sink in sinks:
        if not OWN_TABLE.allows(sink.table):
            yield Problem(f"'{sink.table}' cannot be {OWN_TABLE.what}.", _at(sink.origin), f"use {OWN_TABLE.valid}")
        try:
            author_columns(sink)
        except TableError as error:
            yield Problem(error.message, _at(sink.origin), error.hint)
    for first, again in _repeated((name.lower(), sink) for sink in sinks for name in table_names(sink)):
        yield Problem(
            f"Delta table '{again.table}' is also written at {first.origin}; a table has one writer.",
            _at(again.origin),
            "merge the streams first, or write to a table of another name",
        )


def _published_sinks(nodes: Sequence[AnyNode]) -> Iterator[Problem]:
    """Checks the sinks whose author wants them corrected when a replay is published."""
    for sink in at_publish(nodes):
        if sink.is_wanted and sink.why is not None:
            yield Problem(
                f"'{sink.node.name}' has on_publish='correct', but {sink.why}.",
                _at(sink.node.origin),
                "write the same table with to_delta(...), too; or on_publish='stale', which marks it",
            )


def _repeated(named: Iterable[tuple[str, T]]) -> Iterator[tuple[T, T]]:
    """Pairs (first, again) of objects with the same name."""
    first: dict[str, T] = {}
    for name, thing in named:
        if name in first:
            yield first[name], thing
        first.setdefault(name, thing)


def _at(origin: Origin | None) -> str | None:
    return str(origin) if origin else None
