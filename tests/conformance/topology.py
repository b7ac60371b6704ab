"""From the topology of a case (SPEC section 3) to one of ours, with the public DSL only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from deltaworks import (
    KGroupedStream,
    KStream,
    KTable,
    SessionWindowedKStream,
    SessionWindows,
    StreamsBuilder,
    TimeWindowedKStream,
    TimeWindows,
)
from tests.conformance import functions
from tests.conformance.values import Typed

Node = Mapping[str, Any]
Stream = KStream[Any, Any]
Table = KTable[Any, Any]
Group = KGroupedStream[Any, Any]
Windowed = TimeWindowedKStream[Any, Any] | SessionWindowedKStream[Any, Any]
Handle = Stream | Table | Group | Windowed
Peek = Callable[[str, Any, Any], None]

_OPERATORS = frozenset(
    [
        "stream",
        "table",
        "to",
        "foreach",
        "filter",
        "filter_not",
        "map",
        "map_values",
        "flat_map",
        "flat_map_values",
        "select_key",
        "peek",
        "split",
        "merge",
        "repartition",
        "to_table",
        "group_by_key",
        "group_by",
        "windowed_by",
        "count",
        "reduce",
        "aggregate",
        "to_stream",
        "join_stream_table",
    ]
)
_LATER = frozenset(
    [
        "history_ms",
        "timestamp_extractor",
        "topic_pattern",
        "topic_extractor",
        "adder",
        "subtractor",
        "grace_ms",
        "caching",
        "emit",
    ]
)
"""Fields of nodes that the DSL has no word for yet."""
_WINDOWS = ("tumbling", "hopping", "session")
_CONFIG = frozenset(
    (
        "cache_max_bytes",
        "deserialization_handler",
        "processing_handler",
        "dlq_topic",
        "initial_wall_clock_ms",
        "guarantee",
    )
)


def missing(case: Mapping[str, Any]) -> str | None:
    """What a case uses that the DSL does not have yet; None: it can be run."""
    spec = case["spec"]
    if spec.get("api") == "processor":
        return "processor api"
    for key in case.get("config", {}):
        if key not in _CONFIG:
            return f"config {key}"
    tables: set[str] = set()
    unnamed = {node["id"] for node in spec["nodes"] if node["op"] in ("table", "to_table") and "store" not in node}
    for node in spec["nodes"]:
        parents = node.get("in")
        of_table = parents in tables if isinstance(parents, str) else False
        if node["op"] not in _OPERATORS:
            return str(node["op"])
        for field in _LATER & node.keys():
            return f"{node['op']} with {field}"
        if node["op"] == "windowed_by" and node["window"]["type"] not in _WINDOWS:
            return f"{node['window']['type']} windows"
        if of_table and node["op"] in ("group_by", "group_by_key"):
            return "group_by on a table"
        if node["op"] in ("filter", "filter_not") and parents in unnamed:
            return "filter of a table without a store"
        if node["op"] == "map_values" and parents in unnamed:
            unnamed.add(node["id"])
        if node["op"] in ("filter", "filter_not", "map_values") and "store" in node:
            return f"{node['op']} with store"
        if node["op"] in ("table", "to_table", "count", "reduce", "aggregate") or (
            of_table and node["op"] in ("filter", "filter_not", "map_values")
        ):
            tables.add(node["id"])
    return None


class Interpreter:
    """Builds one case."""

    def __init__(self, case: Mapping[str, Any], builder: StreamsBuilder, peek: Peek, kept: type) -> None:
        self.handles: dict[str, Any] = {}
        self._case = case
        self._builder = builder
        self._peek = peek
        self._kept = kept
        self._any = Typed(kept=kept)
        self._key = Typed(kept=str)

    def build(self) -> None:
        for node in self._case["spec"]["nodes"]:
            handle = self._handle(node, self._inputs(node))
            if "id" in node and handle is not None:
                self.handles[node["id"]] = handle

    def _inputs(self, node: Node) -> list[Any]:
        inputs = node.get("in", [])
        return [self.handles[each] for each in ([inputs] if isinstance(inputs, str) else inputs)]

    def _handle(self, node: Node, inputs: list[Any]) -> Any:
        match node["op"], inputs:
            case "stream", []:
                topics = node.get("topics") or [node["topic"]]
                return self._builder.stream(*topics, key=self._key, value=Typed(node["value_type"], self._kept))
            case "table", []:
                store = node.get("store") or f"{node['id']}-store"
                value = Typed(node["value_type"], self._kept)
                return self._builder.table(node["topic"], key=self._key, value=value, store=store)
            case _, [KStream() as stream]:
                return self._on_stream(node, stream)
            case _, [KTable() as table]:
                return self._on_table(node, table)
            case _, [KGroupedStream() as group]:
                return self._on_group(node, group)
            case _, [TimeWindowedKStream() | SessionWindowedKStream() as windowed]:
                return self._aggregate(node, windowed, self._store(node) | self._retention(node))
            case "merge", [first, *others]:
                for other in others:
                    first = first.merge(other)
                return first
            case "join_stream_table", [KStream() as stream, KTable() as table]:
                joined = functions.joiner(node["joiner"])
                join = stream.join_with_key if node["kind"] == "inner" else stream.left_join_with_key
                return join(table, joined, value=self._any, name=node.get("name"))
            case operator, _:
                raise ValueError(f"{operator} on {inputs}")

    def _on_stream(self, node: Node, stream: Stream) -> Any:
        match node["op"]:
            case "to":
                return stream.to(node["topic"], key=self._key, value=self._any)
            case "foreach":
                return stream.foreach(self._logged(node))
            case "peek":
                return stream.peek(self._logged(node))
            case "filter":
                return stream.filter(functions.predicate(node["predicate"]))
            case "filter_not":
                return stream.filter_not(functions.predicate(node["predicate"]))
            case "map":
                new_key, new_value = functions.key_selector(node["key"]), functions.mapper(node["value"])
                return stream.map(lambda k, v: (new_key(k, v), new_value(k, v)), key=self._key, value=self._any)
            case "map_values":
                return stream.map_values_with_key(functions.mapper(node["fn"]), value=self._any)
            case "flat_map":
                return stream.flat_map(functions.pair_flat_mapper(node["fn"]), key=self._key, value=self._any)
            case "flat_map_values":
                return stream.flat_map_values(functions.flat_mapper(node["fn"]), value=self._any)
            case "select_key":
                return stream.select_key(functions.key_selector(node["key"]), key=self._key)
            case "merge":
                return stream
            case "split":
                return self._split(node, stream)
            case "repartition":
                return stream.repartition(name=node.get("name"), partitions=node.get("partitions"))
            case "to_table":
                return stream.to_table(store=node.get("store") or f"{node['id']}-store")
            case "group_by_key":
                return stream.group_by_key(name=node.get("name"))
            case "group_by":
                return stream.group_by(functions.key_selector(node["key"]), key=self._key, name=node.get("name"))
            case operator:
                raise ValueError(f"{operator} on a stream")

    def _split(self, node: Node, stream: Stream) -> None:
        branched = stream.split(node["id"])
        for branch in node["branches"]:
            branched = branched.branch(functions.predicate(branch["predicate"]), name=branch["id"])
        default = node.get("default")
        self.handles |= branched.default_branch(name=default) if default else branched.no_default_branch()

    def _on_table(self, node: Node, table: Table) -> Any:
        match node["op"]:
            case "filter":
                return table.filter(functions.predicate(node["predicate"]))
            case "filter_not":
                return table.filter_not(functions.predicate(node["predicate"]))
            case "map_values":
                return table.map_values_with_key(functions.mapper(node["fn"]), value=self._any)
            case "to_stream":
                stream = table.to_stream()
                if "key" in node:
                    return stream.select_key(functions.key_selector(node["key"]), key=self._key)
                return stream
            case operator:
                raise ValueError(f"{operator} on a table")

    def _on_group(self, node: Node, group: Group) -> Any:
        if node["op"] != "windowed_by":
            return self._aggregate(node, group, self._store(node))
        window = node["window"]
        if window["type"] == "session":
            return group.windowed_by(SessionWindows.of_inactivity_gap_and_grace(_ms(window["gap_ms"]), _grace(window)))
        windows = TimeWindows.of_size_and_grace(_ms(window["size_ms"]), _grace(window))
        return group.windowed_by(
            windows.advance_by(_ms(window["advance_ms"])) if window["type"] == "hopping" else windows
        )

    def _aggregate(self, node: Node, group: Any, options: Mapping[str, Any]) -> Any:
        match node["op"]:
            case "count":
                return group.count(**options)
            case "reduce":
                reduce = functions.aggregator(node["reducer"])
                return group.reduce(lambda old, new: reduce(None, new, old), **options)
            case "aggregate":
                initial, update = node["initializer"], functions.aggregator(node["aggregator"])
                if not isinstance(group, SessionWindowedKStream):
                    return group.aggregate(lambda: initial, update, value=self._any, **options)
                merge = functions.aggregator(node["merger"])
                return group.aggregate(
                    lambda: initial, update, lambda k, a, other: merge(k, other, a), value=self._any, **options
                )
            case operator:
                raise ValueError(f"{operator} on a group")

    def _logged(self, node: Node) -> Callable[[Any, Any], None]:
        return lambda k, v: self._peek(node["id"], k, v)

    def _store(self, node: Node) -> dict[str, Any]:
        return {"store": node.get("store") or f"{node['id']}-store"}

    def _retention(self, node: Node) -> dict[str, Any]:
        return {"retention": _ms(node["retention_ms"])} if "retention_ms" in node else {}


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _grace(window: Mapping[str, Any]) -> timedelta:
    return _ms(window.get("grace_ms", 0))
