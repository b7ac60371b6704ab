"""Processors for the properties: every kind of store, both kinds of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deltaworks import Processor, PunctuationType, Record, Stores, StreamsBuilder, Windowed

TOPIC = "in"


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


class Remember(Processor[Any, Any, str, int]):
    """Puts each record into a store of every kind and forwards what it finds there."""

    stores = (
        Stores.key_value("plain", key=str, value=int),
        Stores.timestamped_key_value("timed", key=str, value=int),
        Stores.lru("recent", key=str, value=int, max_entries=2),
        Stores.versioned("past", key=str, value=int, history=ms(12)),
        Stores.window("windows", key=str, value=int, window_size=ms(5), retention=ms(15)),
        Stores.window("all", key=str, value=int, window_size=ms(5), retention=ms(9), retain_duplicates=True),
        Stores.session("visits", key=str, value=int, retention=ms(15)),
        Stores.custom("own", lambda entries: entries),
    )

    def process(self, record: Record[Any, Any]) -> None:
        key, value, time_ms, store = record.key, record.value, record.timestamp_ms, self.context.state_store
        if value == 13:
            raise ValueError("poison")
        before = [store("plain").get(key), store("timed").get(key), store("recent").get(key)]
        store("plain").put(key, value)
        store("timed").put(key, value, time_ms)
        store("recent").put(key, value)
        store("past").put(key, value, time_ms)
        store("windows").put(key, value, time_ms)
        store("all").put(key, value, time_ms)
        store("visits").put(Windowed(key, time_ms, time_ms + 3), value)
        store("own").put(key.encode(), None if value is None else str(value).encode())
        found = [
            before,
            list(store("plain").range("a", None)),
            list(store("plain").prefix_scan("a")),
            list(store("recent").reverse_all()),
            store("past").get(key, time_ms - 3),
            list(store("windows").fetch_range(key, time_ms - 10, time_ms)),
            list(store("windows").backward_fetch_all(0, time_ms)),
            list(store("all").all()),
            list(store("visits").find_sessions(key, time_ms - 5, time_ms)),
            list(store("own").reverse_range()),
        ]
        self.context.forward(Record(repr(found), value, time_ms, record.headers))


class Tick(Processor[Any, Any, str, int]):
    """Three stream-time punctuators, of which one is cancelled and two share their store with the records."""

    stores = (Stores.key_value("counts", key=str, value=int),)

    def init(self, context: Any) -> None:
        super().init(context)
        self._counts = context.state_store("counts")
        self._first = context.schedule(ms(5), PunctuationType.STREAM_TIME, lambda now: self._tick("five", now))
        context.schedule(ms(5), PunctuationType.STREAM_TIME, lambda now: self._tick("other five", now))
        context.schedule(ms(7), PunctuationType.STREAM_TIME, self._empty, start_ms=4)

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is not None:
            self._counts.put(record.key, (self._counts.get(record.key) or 0) + 1)

    def _tick(self, name: str, now_ms: int) -> None:
        ticks = (self._counts.get(f"ticks of {name}") or 0) + 1
        self._counts.put(f"ticks of {name}", ticks)
        self.context.forward(Record(name, ticks, now_ms))
        if name == "five" and ticks == 3:
            self._first.cancel()

    def _empty(self, now_ms: int) -> None:
        for key, count in self._counts.all():
            if not key.startswith("ticks"):
                self._counts.delete(key)
                self.context.forward(Record(key, count, now_ms))


class Alarm(Processor[Any, Any, str, int]):
    """Wall-clock punctuators; one stops after its second time."""

    stores = (Stores.key_value("alarms", key=str, value=int),)

    def init(self, context: Any) -> None:
        super().init(context)
        self._alarms = context.state_store("alarms")
        context.schedule(ms(10), PunctuationType.WALL_CLOCK_TIME, lambda now: self._ring("ten", now))
        self._twice = context.schedule(ms(3), PunctuationType.WALL_CLOCK_TIME, lambda now: self._ring("three", now))

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(Record("record", self.context.current_system_time_ms, record.timestamp_ms))

    def _ring(self, name: str, now_ms: int) -> None:
        rings = (self._alarms.get(name) or 0) + 1
        self._alarms.put(name, rings)
        self.context.forward(Record(name, rings, now_ms))
        if name == "three" and rings == 2:
            self._twice.cancel()


def stores_of_processors(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int).filter(lambda key, _: key is not None)
    stream.process(Remember, key=str, value=int).to("found")


def punctuated(builder: StreamsBuilder) -> None:
    """What is ticked has no source and no headers."""
    ticks = builder.stream(TOPIC, key=str, value=int).process(Tick, key=str, value=int)
    ticks.to("ticks")
    ticks.to_delta("ticks")


def alarms(builder: StreamsBuilder) -> None:
    builder.stream(TOPIC, key=str, value=int).process(Alarm, key=str, value=int).to("alarms")
