"""Topologies and records for the properties: every stateful operator, time out of order, nulls, records that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
from hypothesis import strategies as st

from deltaworks import (
    BufferConfig,
    ConsumedRecord,
    EmitStrategy,
    JoinWindows,
    Json,
    Materialized,
    Plan,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.topology.windows import AnyWindows
from tests.properties.processors import punctuated, stores_of_processors

Record = tuple[int, bytes | None, bytes | None, Headers]
"""`(timestamp_ms, key, value, headers)`"""
Build = Callable[[StreamsBuilder], None]

TOPIC = "in"
POISON = 13


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def failing(value: int) -> int:
    """A mapper that raises on one value; a null passes."""
    if value == POISON:
        raise ValueError("poison")
    return value


def sum_deleted_by_seven(old: int, new: int) -> int:
    """A reducer that deletes the row; its type does not say that it may."""
    return cast(int, None) if new == 7 else old + new


def hopping_sum(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int)
    windows = TimeWindows(size=ms(10), grace=ms(4), advance=ms(4))
    table = (
        stream.group_by_key()
        .windowed_by(windows)
        .aggregate(lambda: 0, lambda _, value, total: total + (value or 0), value=int, store="sums")
    )
    table.to_delta("sums")
    table.filter(lambda _, total: total > 20).to_stream().to("large")


def session_list(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int)
    windows = SessionWindows(gap=ms(5), grace=ms(6))
    stream.group_by_key().windowed_by(windows).aggregate(
        list[int | None],
        lambda _, value, values: [*values, value],
        lambda _, left, right: [*left, *right],
        value=Json(list[int | None]),
        store="sessions",
    ).to_delta("sessions")


def session_count(builder: StreamsBuilder) -> None:
    windows = SessionWindows(gap=ms(3), grace=timedelta(0))
    table = builder.stream(TOPIC, key=str, value=int).group_by_key().windowed_by(windows).count(store="sessions")
    table.to_delta("sessions")
    table.to_stream().to("sessions")


def table_and_reduce(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int)
    table = stream.to_table(store="latest")
    table.filter(lambda _, value: value % 2 == 0).to_delta("even")
    stream.left_join(table, lambda value, row: value + (row or 0), value=int).to("joined")
    stream.group_by_key().reduce(sum_deleted_by_seven, store="reduced").to_delta("reduced")


def rekeyed_count(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int).filter(lambda _, value: value is not None)
    counts = stream.group_by(lambda _, value: str(value % 3), key=str, name="by-rest").count(store="counts")
    counts.to_delta("counts")
    counts.to_stream().to("counts")


def is_even(_: str, value: int) -> bool:
    return value % 2 == 0


def versions(builder: StreamsBuilder) -> None:
    table = builder.table(TOPIC, key=str, value=int, store=Materialized("versions", history=ms(12)))
    table.to_stream().to("versions")
    table.filter(is_even, store="even").to_delta("even")
    mapped = table.map_values(lambda value: value + 1, value=int, store=Materialized("mapped", history=ms(6)))
    mapped.filter(is_even).to_stream().to("odd")
    mapped.join(table, lambda new, old: new * 100 + old, value=int).to_stream().to("joined")
    table.to_stream().left_join(mapped, lambda value, row: value * 100 + (row or 0), value=int).to("as-of")


def joined_tables(builder: StreamsBuilder) -> None:
    table = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int).to_table(store="rows")
    even, tens = table.filter(is_even), table.map_values(lambda value: value * 10, value=int, store="tens")
    joined = even.outer_join(tens, lambda left, right: (left or 0) * 1000 + (right or 0), value=int, store="joined")
    joined.to_delta("joined")
    twice = tens.join(even, lambda left, right: left + right, value=int)
    left = twice.left_join(joined, lambda left, right: left - (right or 0), value=int)
    left.filter(is_even, store="left").to_delta("left")


def grouped_table(builder: StreamsBuilder) -> None:
    """By an exchange: counts, a list of what is in each group, and a table that is grouped once more."""
    table = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int).to_table(store="rows")
    groups = table.group_by(lambda _, value: (str(value % 3), value), key=str, value=int, name="groups")
    members = groups.aggregate(
        list[int],
        lambda _, value, values: sorted([*values, value]),
        lambda _, value, values: [each for at, each in enumerate(values) if at != values.index(value)],
        value=Json(list[int]),
        store="members",
    )
    members.to_stream().to("members")
    counts = groups.count(store="counts")
    counts.to_delta("counts")
    sizes = counts.group_by(lambda group, count: (str(count), count), key=str, value=int)
    sizes.reduce(lambda old, new: old + new, lambda old, new: old - new, store="sizes").to_stream().to("counts")


def joined_streams(builder: StreamsBuilder) -> None:
    """Two halves of one stream: each kind of join, in windows that look back, forward, and only forward."""
    stream = builder.stream(TOPIC, key=str, value=int)
    left = stream.filter(lambda _, value: value is None or value % 3 != 0)
    right = stream.filter(lambda _, value: value is None or value % 2 == 0)
    windows = JoinWindows(difference=ms(4), grace=ms(3))

    def pair(one: int | None, other: int | None) -> int:
        return (-1 if one is None else failing(one)) * 100 + (-1 if other is None else other)

    later = JoinWindows(before=ms(-1), after=ms(4), grace=ms(3))
    earlier = JoinWindows(before=ms(7), after=ms(4), grace=ms(3))
    left.join(right, pair, later, value=int, store="inner").to("inner")
    left.left_join(right, pair, earlier, value=int, store="left").to("left")
    left.outer_join(right, pair, windows, value=int, store="outer").to("outer")
    stream.join(stream, pair, windows, value=int, store="self").to("self")


def waiting_for_versions(builder: StreamsBuilder) -> None:
    """A stream and a versioned table of one topic; records wait for rows out of order, headers and all."""
    stream = builder.stream(TOPIC, key=str, value=int).filter(lambda key, _: key is not None)
    table = stream.to_table(store=Materialized("versions", history=ms(20)))
    doubled = table.map_values(lambda value: failing(value) * 2, value=int)
    late = stream.left_join(
        table, lambda value, row: value * 100 + (row or 0), value=int, grace=ms(6), name="wait"
    ).filter(lambda _, value: value % 7 != 0)
    late.to("late")
    late.to_delta("late")
    stream.join(doubled, lambda value, row: value * 100 + row, value=int).to("now")


def suppressed(builder: StreamsBuilder) -> None:
    """Windows, sessions and rows that are held back: final results, time limits, full buffers, what readers see."""
    stream = builder.stream(TOPIC, key=str, value=int)
    grouped = stream.group_by_key()
    closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    hopping = TimeWindows(size=ms(10), grace=ms(3), advance=ms(5))
    counts = grouped.windowed_by(hopping).count(store="counts").suppress(closed, store="closing")
    counts.to_delta("counts")
    sessions = SessionWindows(gap=ms(3), grace=ms(4))
    strict = Suppressed.until_window_closes(BufferConfig.of_max_records(2).shut_down_when_full())
    visits = grouped.windowed_by(sessions).count(store="sessions").suppress(strict, store="closing-sessions")
    visits.to_stream().to("visits")
    rows = stream.to_table(store="rows").map_values(failing, value=int)
    early = BufferConfig.of_max_records(2).with_max_bytes(200).emit_early_when_full()
    limited = rows.suppress(Suppressed.until_time_limit(ms(7), early), store="limited")
    limited.filter(is_even).to_stream().map_values(failing, value=int).to("limited")
    stream.left_join(limited, lambda value, row: value * 100 + (row or 0), value=int).to("seen")


BY_UPDATE: dict[str, Build] = {"suppressed": suppressed}
"""Their results depend on how many updates come, so they are the same for every cut only without a record cache."""


def sliding_sum(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int)
    windows = SlidingWindows(difference=ms(7), grace=ms(5))
    table = stream.group_by_key().windowed_by(windows).reduce(sum_deleted_by_seven, store="sums")
    table.to_delta("sums")
    table.filter(lambda _, total: total > 20).to_stream().to("large")


def unlimited_list(builder: StreamsBuilder) -> None:
    windows = UnlimitedWindows(start=datetime.fromtimestamp(0.01, UTC))
    builder.stream(TOPIC, key=str, value=int).group_by_key().windowed_by(windows).aggregate(
        list[int | None], lambda _, value, values: [*values, value], value=Json(list[int | None]), store="all"
    ).to_delta("all")


def closed_windows(builder: StreamsBuilder) -> None:
    groups = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int).group_by_key()
    windows = TimeWindows(size=ms(10), grace=ms(4), advance=ms(4))
    for name, retention in (("closed", None), ("closed-kept", ms(40))):
        counts = groups.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table = counts.aggregate(
            lambda: 0, lambda _, value, total: total + (value or 0), value=int, store=name, retention=retention
        )
        table.to_delta(name.replace("-", "_"))
        table.to_stream().to(name)


@dataclass(frozen=True, kw_only=True)
class Uneven(Windows):
    """Windows of 3, 7, 3, 7, ... ms, and one of 20 ms that overlaps some of them; it begins earlier and ends later."""

    size: timedelta = timedelta(milliseconds=20)

    def windows_for(self, timestamp_ms: int) -> Iterable[tuple[int, int]]:
        pair_ms = timestamp_ms // 10 * 10
        yield (pair_ms, pair_ms + 3) if timestamp_ms < pair_ms + 3 else (pair_ms + 3, pair_ms + 10)
        long_ms = (timestamp_ms - 5) // 20 * 20 + 5
        if long_ms > 0:
            yield long_ms, long_ms + 20


def own_windows(builder: StreamsBuilder) -> None:
    """Windows that differ in length."""
    stream = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int)
    sums = stream.group_by_key().windowed_by(Uneven(grace=ms(4))).reduce(sum_deleted_by_seven, store="sums")
    sums.to_delta("sums")
    sums.to_stream().to("sums")


def closed_own_windows(builder: StreamsBuilder) -> None:
    groups = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int).group_by_key()
    for name, retention in (("closed", None), ("closed-kept", ms(40))):
        counts = groups.windowed_by(Uneven(grace=ms(4))).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table = counts.aggregate(
            lambda: 0, lambda _, value, total: total + (value or 0), value=int, store=name, retention=retention
        )
        table.to_delta(name.replace("-", "_"))
        table.to_stream().to(name)


def closed_sliding_windows(builder: StreamsBuilder) -> None:
    windows = SlidingWindows(difference=ms(6), grace=ms(3))
    groups = builder.stream(TOPIC, key=str, value=int).group_by_key()
    table = groups.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="closed")
    table.to_delta("closed")
    table.to_stream().to("closed")


def closed_sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows(gap=ms(4), grace=ms(3))
    groups = builder.stream(TOPIC, key=str, value=int).map_values(failing, value=int).group_by_key()
    for name, retention in (("closed", None), ("closed-kept", ms(40))):
        table = (
            groups.windowed_by(windows)
            .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
            .reduce(sum_deleted_by_seven, store=name, retention=retention)
        )
        table.to_delta(name.replace("-", "_"))
        table.to_stream().to(name)


def short_sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows(gap=ms(5), grace=ms(9), max_duration=ms(8))
    table = builder.stream(TOPIC, key=str, value=int).group_by_key().windowed_by(windows).count(store="sessions")
    table.to_delta("sessions")
    table.to_stream().to("sessions")


def cogrouped(windows: AnyWindows | None) -> Build:
    """Small and large values of one topic; each kind has its own time, and they share a store."""

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(TOPIC, key=str, value=int)
        small = stream.filter(lambda _, value: (value or 0) < 8).group_by_key()
        large = stream.filter(lambda _, value: (value or 0) >= 8).group_by_key()
        cogroup = small.cogroup(lambda _, value, text: f"{text}s{value}", value=str)
        cogroup = cogroup.cogroup(large, lambda _, value, text: f"{text}l{failing(value)}")
        match windows:
            case None:
                cogroup.aggregate(str, store="texts").to_delta("texts")
            case SessionWindows():
                sessions = cogroup.windowed_by(windows)
                sessions.aggregate(str, lambda _, left, right: left + right, store="texts").to_delta("texts")
            case _:
                cogroup.windowed_by(windows).aggregate(str, store="texts").to_delta("texts")

    return build


def own_times(builder: StreamsBuilder) -> None:
    """Times from values, or from the partition, or none; topics by value; a dead letter after a write."""

    def time_of(record: ConsumedRecord, partition_time_ms: int) -> int:
        if record.value is None or record.value == 9:
            return partition_time_ms
        return -1 if record.value == 4 else record.timestamp_ms + int(record.value)

    stream = builder.stream(TOPIC, key=str, value=int, timestamp_extractor=time_of)
    stream.to_extracted(lambda key, value, context: f"{context.topic}-{(value or 0) % 3}")
    checked = stream.map_values(failing, value=int)
    checked.to(
        "placed", partitioner=lambda topic, key, value, partitions: None if value is None else value % partitions
    )
    checked.group_by_key().windowed_by(TimeWindows(size=ms(8), grace=timedelta(0))).count(store="own").to_delta("own")


SINGLE_INPUT: dict[str, Build] = {
    "own times": own_times,
    "sliding sum": sliding_sum,
    "unlimited list": unlimited_list,
    "own windows": own_windows,
    "closed own windows": closed_own_windows,
    "closed windows": closed_windows,
    "closed sliding windows": closed_sliding_windows,
    "closed sessions": closed_sessions,
    "short sessions": short_sessions,
    "cogroup": cogrouped(None),
    "cogroup in windows": cogrouped(TimeWindows(size=ms(6), grace=ms(3), advance=ms(2))),
    "cogroup in sliding windows": cogrouped(SlidingWindows(difference=ms(5), grace=ms(3))),
    "cogroup in own windows": cogrouped(Uneven(grace=ms(3))),
    "cogroup in sessions": cogrouped(SessionWindows(gap=ms(3), grace=ms(3))),
    "joined streams": joined_streams,
    "waiting for versions": waiting_for_versions,
    "hopping sum": hopping_sum,
    "session list": session_list,
    "session count": session_count,
    "table and reduce": table_and_reduce,
    "versions": versions,
    "joined tables": joined_tables,
    "stores of processors": stores_of_processors,
    "punctuated": punctuated,
}


def plan(build: Build, *, record_cache: bool) -> Plan:
    builder = StreamsBuilder(record_cache=record_cache)
    build(builder)
    return builder.build()


def encoded(value: int | None) -> bytes | None:
    return None if value is None else value.to_bytes(8, "big")


_KEYS = st.sampled_from([b"a", b"ab", b"b", b"", None])
_VALUES = st.one_of(
    st.none(), st.integers(min_value=0, max_value=15).map(encoded), st.just(b"short"), st.just(encoded(POISON))
)
_HEADERS = st.sampled_from([(), (), (("h", b"v"),)])


@st.composite
def records(draw: st.DrawFn, max_size: int = 40) -> list[Record]:
    """Records whose time moves forward with jumps back."""
    now_ms = 0
    result: list[Record] = []
    for _ in range(draw(st.integers(min_value=1, max_value=max_size))):
        now_ms += draw(st.integers(min_value=0, max_value=6))
        timestamp_ms = max(0, now_ms - draw(st.sampled_from([0, 0, 0, 1, 3, 9, 20])))
        result.append((timestamp_ms, draw(_KEYS), draw(_VALUES), draw(_HEADERS)))
    return result


def batch(rows: Sequence[Record], topic: str = TOPIC, partition: int = 0) -> RecordBatch:
    headers = [row[3] for row in rows]
    return RecordBatch(
        topic,
        partition,
        list(range(len(rows))),
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        headers if any(headers) else None,
    )


def fingerprint(value: object) -> bytes:
    """Bytes that are equal if two results are."""
    return msgspec.msgpack.encode(value, enc_hook=lambda other: other.__dict__)
