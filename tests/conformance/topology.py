"""From the topology of a case (SPEC section 3) to one of ours, with the public DSL only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import deltaworks as dw
from tests.conformance import functions, processors
from tests.conformance.values import Keys, Typed

Node = Mapping[str, Any]
Peek = Callable[[str, Any, Any], None]
Options = dict[str, Any]


class Interpreter:
    """Builds one case with the DSL.

    Args:
        peek: called for every record that `peek` and `foreach` see.
        kept: what type values claim to be of; see `Typed`.
    """

    def __init__(self, case: Mapping[str, Any], builder: dw.StreamsBuilder, peek: Peek, kept: type) -> None:
        self._case = case
        self._builder = builder
        self._peek = peek
        self._kept = kept
        self._any = Typed(kept=kept)
        self._key = Keys()
        self._handles: dict[str, Any] = {}

    def build(self) -> None:
        for store in self._case["spec"].get("stores", ()):
            self._builder.add_state_store(processors.store_builder(store, self._key, self._any))
        for node in self._case["spec"]["nodes"]:
            handle = self._handle(node, self._inputs(node))
            if "id" in node and handle is not None:
                self._handles[node["id"]] = handle

    def _inputs(self, node: Node) -> list[Any]:
        inputs = node.get("in", [])
        return [self._handles[each] for each in ([inputs] if isinstance(inputs, str) else inputs)]

    def _handle(self, node: Node, inputs: list[Any]) -> Any:
        match node["op"], inputs:
            case "merge", [first, *others]:
                for other in others:
                    first = first.merge(other)
                return first
            case "cogroup", groups:
                return self._cogroup(node, groups)
            case operator, [left, right] if operator.startswith("join_"):
                return self._join(node, left, right)
            case _, []:
                return self._source(node)
            case _, [dw.KStream() as stream]:
                return self._on_stream(node, stream)
            case _, [dw.KTable() as table]:
                return self._on_table(node, table)
            case "windowed_by", [group]:
                return self._windowed(node, group)
            case _, [group]:
                return self._aggregate(node, group)
            case operator, _:
                raise ValueError(f"{operator} on {inputs}")

    def _source(self, node: Node) -> Any:
        reads: Options = {"key": self._key, "value": Typed(node["value_type"], self._kept)}
        match node["op"]:
            case "stream":
                if "timestamp_extractor" in node:
                    reads["timestamp_extractor"] = functions.timestamp_extractor(node["timestamp_extractor"])
                if "topic_pattern" in node:
                    return self._builder.stream(pattern=node["topic_pattern"], **reads)
                return self._builder.stream(*(node.get("topics") or [node["topic"]]), **reads)
            case "table":
                history = _ms(node["history_ms"]) if "history_ms" in node else None
                store = dw.Materialized(node.get("store", ""), history=history)
                return self._builder.table(node["topic"], store=store, **reads)
            case "global_table":
                return self._builder.global_table(node["topic"], store=node["store"], **reads)
            case "global_store":
                kept = processors.store_builder({"name": node["store"], "type": "kv"}, self._key, self._any)
                supplier = processors.supplier(["put_into", {"store": node["store"]}])
                return self._builder.add_global_store(kept, node["topic"], supplier, **reads)
            case operator:
                raise ValueError(f"{operator} without input")

    def _on_stream(self, node: Node, stream: dw.KStream[Any, Any]) -> Any:
        match node["op"]:
            case "to" if "topic_extractor" in node:
                extractor = functions.topic_extractor(node["topic_extractor"])
                return stream.to_extracted(extractor, key=self._key, value=self._any)
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
                return stream.to_table(store=node.get("store", ""))
            case "process":
                supplier = processors.supplier(node["processor"])
                return stream.process(
                    supplier, *node.get("stores", ()), key=self._key, value=self._any, name=node["id"]
                )
            case "process_values":
                values = processors.fixed_key_supplier(node["processor"])
                return stream.process_values(values, *node.get("stores", ()), value=self._any, name=node["id"])
            case "group_by_key":
                return stream.group_by_key(name=node.get("name"))
            case "group_by":
                return stream.group_by(functions.key_selector(node["key"]), key=self._key, name=node.get("name"))
            case operator:
                raise ValueError(f"{operator} on a stream")

    def _split(self, node: Node, stream: dw.KStream[Any, Any]) -> None:
        branched = stream.split(node["id"])
        for branch in node["branches"]:
            branched = branched.branch(functions.predicate(branch["predicate"]), name=branch["id"])
        default = node.get("default")
        self._handles |= branched.default_branch(name=default) if default else branched.no_default_branch()

    def _on_table(self, node: Node, table: dw.KTable[Any, Any]) -> Any:
        store: Options = {"store": node["store"]} if "store" in node else {}
        match node["op"]:
            case "filter":
                return table.filter(functions.predicate(node["predicate"]), **store)
            case "filter_not":
                return table.filter_not(functions.predicate(node["predicate"]), **store)
            case "map_values":
                return table.map_values_with_key(functions.mapper(node["fn"]), value=self._any, **store)
            case "transform_values":
                supplier = processors.value_transformer_supplier(functions.mapper(node["fn"]))
                return table.transform_values(supplier, value=self._any, **store)
            case "to_stream":
                stream = table.to_stream()
                if "key" in node:
                    return stream.select_key(functions.key_selector(node["key"]), key=self._key)
                return stream
            case "group_by":
                new_key, new_value = functions.key_selector(node["key"]), functions.mapper(node["value"])
                return table.group_by(
                    lambda k, v: (new_key(k, v), new_value(k, v)),
                    key=self._key,
                    value=self._any,
                    name=node.get("name"),
                )
            case "suppress":
                return table.suppress(_suppressed(node))
            case operator:
                raise ValueError(f"{operator} on a table")

    def _join(self, node: Node, left: Any, right: Any) -> Any:
        operator, kind, join = node["op"], node["kind"], functions.joiner(node["joiner"])
        prefix = "" if kind == "inner" else f"{kind}_"
        options: Options = {"value": self._any}
        if "name" in node:
            options["name"] = node["name"]
        match operator:
            case "join_stream_table":
                if "grace_ms" in node:
                    options["grace"] = _ms(node["grace_ms"])
                return getattr(left, f"{prefix}join_with_key")(right, join, **options)
            case "join_stream_global":
                select = functions.key_selector(node["key"])
                return getattr(left, f"{prefix}join_with_key")(right, join, selector=select, **options)
            case "join_stream_stream":
                return getattr(left, f"{prefix}join_with_key")(right, join, _join_windows(node), **options)
            case "join_table_table":
                return getattr(left, f"{prefix}join")(
                    right, lambda a, b: join(None, a, b), **self._stored(node), **options
                )
            case "join_foreign_key":
                select = functions.key_selector(node["foreign_key"])
                return getattr(left, f"{prefix}join")(
                    right, lambda a, b: join(None, a, b), foreign_key=select, **self._stored(node), **options
                )
            case _:
                raise ValueError(operator)

    def _cogroup(self, node: Node, groups: list[Any]) -> Any:
        first, *others = [functions.aggregator(each) for each in node["aggregators"]]
        cogrouped = groups[0].cogroup(first, value=self._any)
        for group, aggregator in zip(groups[1:], others, strict=True):
            cogrouped = cogrouped.cogroup(group, aggregator)
        return cogrouped

    def _windowed(self, node: Node, group: Any) -> Any:
        windowed = group.windowed_by(_windows(node["window"]))
        if node.get("emit") == "on_window_close":
            return windowed.emit_strategy(dw.EmitStrategy.ON_WINDOW_CLOSE)
        return windowed

    def _aggregate(self, node: Node, group: Any) -> Any:
        options = self._stored(node)
        match node["op"]:
            case "count":
                return group.count(**options)
            case "reduce" if "adder" in node:
                add, subtract = functions.aggregator(node["adder"]), functions.aggregator(node["subtractor"])
                return group.reduce(
                    lambda old, new: add(None, new, old), lambda old, new: subtract(None, new, old), **options
                )
            case "reduce":
                reduce = functions.aggregator(node["reducer"])
                return group.reduce(lambda old, new: reduce(None, new, old), **options)
            case "aggregate":
                initial = node["initializer"]
                updates = [functions.aggregator(node[f]) for f in ("aggregator", "adder", "subtractor") if f in node]
                if "merger" in node:
                    merge = functions.aggregator(node["merger"])
                    updates.append(lambda k, a, other: merge(k, other, a))
                return group.aggregate(lambda: initial, *updates, value=self._any, **options)
            case operator:
                raise ValueError(f"{operator} on a group")

    def _stored(self, node: Node) -> Options:
        # Without a cache none of the stores has one, whatever is said about it.
        has_cache = self._case.get("config", {}).get("cache_max_bytes", 0) > 0
        caching = node.get("caching") if has_cache else None
        options: Options = {"store": dw.Materialized(node.get("store", ""), caching=caching)}
        if "retention_ms" in node:
            options["retention"] = _ms(node["retention_ms"])
        return options

    def _logged(self, node: Node) -> Callable[[Any, Any], None]:
        return lambda k, v: self._peek(node["id"], k, v)


def _windows(window: Node) -> Any:
    grace = _ms(window.get("grace_ms", 0))
    match window["type"]:
        case "tumbling":
            return dw.TimeWindows(size=_ms(window["size_ms"]), grace=grace)
        case "hopping":
            size, advance = _ms(window["size_ms"]), _ms(window["advance_ms"])
            return dw.TimeWindows(size=size, grace=grace, advance=advance)
        case "sliding":
            return dw.SlidingWindows(difference=_ms(window["diff_ms"]), grace=grace)
        case "session":
            return dw.SessionWindows(gap=_ms(window["gap_ms"]), grace=grace)
        case "unlimited":
            return dw.UnlimitedWindows(start=datetime.fromtimestamp(0, UTC) + _ms(window["start_ms"]))
        case kind:
            raise ValueError(f"{kind} windows")


def _join_windows(node: Node) -> dw.JoinWindows:
    window = node["window"]
    grace = _ms(window.get("grace_ms", 0))
    return dw.JoinWindows(before=_ms(window["before_ms"]), after=_ms(window["after_ms"]), grace=grace)


def _suppressed(node: Node) -> dw.Suppressed[Any]:
    if node["until"] == "window_close":
        buffer = dw.BufferConfig.unbounded()
        if "max_records" in node:
            buffer = dw.BufferConfig.of_max_records(node["max_records"]).shut_down_when_full()
        return dw.Suppressed.until_window_closes(buffer)
    buffer = dw.BufferConfig.unbounded()
    if "max_records" in node:
        buffer = dw.BufferConfig.of_max_records(node["max_records"])
    if node.get("when_full") == "shut_down":
        buffer = buffer.shut_down_when_full()
    elif node.get("when_full") == "emit_early":
        buffer = buffer.emit_early_when_full()
    return dw.Suppressed.until_time_limit(_ms(node["limit_ms"]), buffer)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
