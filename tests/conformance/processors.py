"""Processors and stores of the cases (SPEC sections 3 and 6), by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from deltaworks import (
    FixedKeyProcessor,
    Processor,
    PunctuationType,
    Record,
    Serde,
    StoreBuilder,
    Stores,
    ValueTransformer,
)
from tests.conformance.functions import aggregator, key_selector, mapper
from tests.conformance.store_script import run_command
from tests.conformance.values import text

Reference = list[Any]
Emit = Callable[[Any], None]
_APPLICATION_ID = "oracle"
_TYPES = {"stream_time": PunctuationType.STREAM_TIME, "wall_clock": PunctuationType.WALL_CLOCK_TIME}
_sum = aggregator(["sum"])


def store_builder(store: Mapping[str, Any], key: Serde[Any], value: Serde[Any]) -> StoreBuilder[Any]:
    """A store as a case describes it."""
    name = store["name"]
    match store["type"]:
        case "kv":
            return Stores.key_value(name, key=key, value=value)
        case "lru":
            return Stores.lru(name, key=key, value=value, max_entries=store["max_entries"])
        case "window":
            return Stores.window(
                name,
                key=key,
                value=value,
                window_size=_ms(store["window_size_ms"]),
                retention=_ms(store["retention_ms"]),
                retain_duplicates=store.get("retain_duplicates", False),
            )
        case "session":
            return Stores.session(name, key=key, value=value, retention=_ms(store["retention_ms"]))
        case "versioned":
            return Stores.versioned(name, key=key, value=value, history=_ms(store["history_ms"]))
        case kind:
            raise ValueError(f"unknown store {kind}")


def supplier(reference: Reference) -> Callable[[], Processor[Any, Any, Any, Any]]:
    """Makes the `Processor` of a reference."""
    match reference:
        case ["dedup", options]:
            return lambda: _Dedup(options)
        case ["wall_clock_count", options]:
            return lambda: _WallClockCount(options)
        case ["stream_clock", options]:
            return lambda: _Clock({**options, "type": "stream_time"}, passes=True)
        case ["cancel_after", options]:
            return lambda: _Clock(options, times=options["n"])
        case ["schedule_at", options]:
            return lambda: _Clock(options)
        case ["velocity", options]:
            return lambda: _Velocity(options)
        case ["buffer_until", options]:
            return lambda: _BufferUntil(options)
        case ["route_by_prefix", options]:
            return lambda: _RouteByPrefix(options)
        case ["rekey", selector]:
            return lambda: _Rekey(key_selector(selector))
        case ["put_into", options]:
            return lambda: _PutInto(options)
        case _:
            return lambda: _Simple(reference)


def fixed_key_supplier(reference: Reference) -> Callable[[], FixedKeyProcessor[Any, Any, Any]]:
    """Makes the `FixedKeyProcessor` of a reference."""
    return lambda: _SimpleValues(reference)


def value_transformer_supplier(function: Callable[[Any, Any], Any]) -> Callable[[], ValueTransformer[Any, Any, Any]]:
    """Makes a `ValueTransformer` that calls a mapper."""
    return lambda: _Transformer(function)


def results(reference: Reference, context: Any, record: Any) -> Iterator[Any]:
    """The records that a processor without punctuation forwards for one record."""
    match reference:
        case ["running_total", {"store": store}]:
            total = _sum(None, record.value, context.state_store(store).get(record.key))
            context.state_store(store).put(record.key, total)
            yield record.with_value(total)
        case ["fan_out", n]:
            for i in range(n):
                yield record.with_value(f"{text(record.value)}#{i}")
        case ["metadata"]:
            where = context.record_metadata
            yield record.with_value(
                f"{_topic(where.topic)}/{where.partition}/{where.offset}" if where else "null/-1/-1"
            )
        case ["stream_time"]:
            yield record.with_value(context.current_stream_time_ms)
        case ["wall_time"]:
            yield record.with_value(context.current_system_time_ms)
        case ["shift_timestamp", n]:
            yield record.with_timestamp(record.timestamp_ms + n)
        case ["add_header", name, value]:
            yield record.with_headers((*record.headers, (name, None if value is None else value.encode())))
        case ["remove_header", name]:
            yield record.with_headers(tuple(header for header in record.headers if header[0] != name))
        case ["header_to_value", name]:
            last = next((value for key, value in reversed(record.headers) if key == name), None)
            yield record.with_value(None if last is None else last.decode())
        case ["map_value", function]:
            yield record.with_value(mapper(function)(record.key, record.value))
        case ["fail_on", x]:
            _fail_on(x, record.value)
            yield record
        case ["forward_then_fail_on", x]:
            yield record
            _fail_on(x, record.value)
        case ["lookup_in", {"store": store}]:
            yield record.with_value(f"{text(record.value)}|{text(context.state_store(store).get(record.key))}")
        case ["store_script", {"store": store}]:
            result = run_command(context.state_store(store), record.value)
            yield record.with_value({"do": record.value["do"], "result": result})
        case _:
            raise ValueError(f"unknown processor {reference}")


class _Simple(Processor[Any, Any, Any, Any]):
    """What `results` gives for each record."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def process(self, record: Any) -> None:
        for result in results(self._reference, self.context, record):
            self.context.forward(result)


class _SimpleValues(FixedKeyProcessor[Any, Any, Any]):
    """The same for `process_values`; a running total may be emptied again and again."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def init(self, context: Any) -> None:
        super().init(context)
        match self._reference:
            case ["running_total", {"store": store, "interval_ms": interval_ms}]:
                context.schedule(_ms(interval_ms), PunctuationType.STREAM_TIME, lambda _: self._empty(store))
            case _:
                pass

    def process(self, record: Any) -> None:
        for result in results(self._reference, self.context, record):
            self.context.forward(result)

    def _empty(self, name: str) -> None:
        store = self.context.state_store(name)
        for key, _ in store.all():
            store.delete(key)


class _Dedup(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def init(self, context: Any) -> None:
        super().init(context)
        self._seen = context.state_store(self._options["store"])
        context.schedule(_ms(self._options["interval_ms"]), PunctuationType.STREAM_TIME, self._forget)

    def process(self, record: Any) -> None:
        if self._seen.get(record.key) is None:
            self.context.forward(record)
            self._seen.put(record.key, record.timestamp_ms)

    def _forget(self, now_ms: int) -> None:
        for key, time_ms in self._seen.all():
            if time_ms <= now_ms - self._options["ttl_ms"]:
                self._seen.delete(key)


class _WallClockCount(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._count = 0

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(_ms(self._options["interval_ms"]), PunctuationType.WALL_CLOCK_TIME, self._tell)

    def process(self, record: Any) -> None:
        self._count += 1

    def _tell(self, now_ms: int) -> None:
        self.context.forward(_record("count", self._count, now_ms))


class _Clock(Processor[Any, Any, Any, Any]):
    """Ticks; `times` says how often."""

    def __init__(self, options: Mapping[str, Any], *, passes: bool = False, times: int | None = None) -> None:
        self._options = options
        self._passes = passes
        self._times = times
        self._ticks = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self._schedule = context.schedule(
            _ms(self._options["interval_ms"]),
            _TYPES[self._options.get("type", "stream_time")],
            self._tick,
            start_ms=self._options.get("start_ms"),
        )

    def process(self, record: Any) -> None:
        if self._passes:
            self.context.forward(record)

    def _tick(self, now_ms: int) -> None:
        self.context.forward(_record("tick", now_ms, now_ms))
        self._ticks += 1
        if self._ticks == self._times:
            self._schedule.cancel()


class _Velocity(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def process(self, record: Any) -> None:
        store, now_ms = self.context.state_store(self._options["store"]), record.timestamp_ms
        store.put(record.key, 1 + (store.fetch(record.key, now_ms) or 0), now_ms)
        first_ms = max(0, now_ms - self._options["window_ms"])
        total = sum(count for _, count in store.fetch_range(record.key, first_ms, now_ms))
        if total > self._options["limit"]:
            self.context.forward(record.with_value(total))


class _BufferUntil(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def init(self, context: Any) -> None:
        super().init(context)
        self._store = context.state_store(self._options["store"])
        kind = _TYPES[self._options.get("type", "stream_time")]
        context.schedule(_ms(self._options["interval_ms"]), kind, self._flush)

    def process(self, record: Any) -> None:
        self._store.put(record.key, record.value)

    def _flush(self, now_ms: int) -> None:
        for key, value in self._store.all():
            self._store.delete(key)
            self.context.forward(_record(key, value, now_ms))


class _RouteByPrefix(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def process(self, record: Any) -> None:
        for prefix, child in self._options["routes"].items():
            if record.key is not None and text(record.key).startswith(prefix):
                return self.context.forward(record, child)
        if "default" in self._options:
            self.context.forward(record, self._options["default"])
        return None


class _Rekey(Processor[Any, Any, Any, Any]):
    def __init__(self, selector: Callable[[Any, Any], Any]) -> None:
        self._selector = selector

    def process(self, record: Any) -> None:
        self.context.forward(record.with_key(self._selector(record.key, record.value)))


class _PutInto(Processor[Any, Any, Any, Any]):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def process(self, record: Any) -> None:
        self.context.state_store(self._options["store"]).put(record.key, record.value)


class _Transformer(ValueTransformer[Any, Any, Any]):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def transform(self, key: Any, value: Any) -> Any:
        return self._function(key, value)


def _record(key: Any, value: Any, timestamp_ms: int) -> Any:
    return Record(key, value, timestamp_ms)


def _topic(name: str) -> str:
    """Internal topics begin with the application id, as far as Kafka Streams is concerned."""
    internal = name.endswith("-repartition") or ("FK-JOIN-SUBSCRIPTION" in name and name.endswith("-topic"))
    return f"{_APPLICATION_ID}-{name}" if internal else name


def _fail_on(x: Any, value: Any) -> None:
    mapper(["fail_on", x])(None, value)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
