"""Value objects: equal when they hold the same, with one hash, and shown as what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import deltaworks as dw
from deltaworks import testing
from tests.support.calendar_days import Days

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Example:
    """A value, another one that differs, and what is told of it."""

    make: Callable[[], Any]
    other: Callable[[], Any]
    shown: str
    members: dict[str, Any]


DAYS = Days(zone="Europe/Berlin", grace=SECOND)

EXAMPLES = {
    "Days": Example(
        lambda: Days(zone="Europe/Berlin", grace=SECOND),
        lambda: Days(zone="Europe/Berlin", grace=MINUTE),
        "Days(size=datetime.timedelta(days=1, seconds=3600), grace=datetime.timedelta(seconds=1), zone='Europe/",
        {"size": timedelta(hours=25), "grace": SECOND},
    ),
    "TimeWindows": Example(
        lambda: dw.TimeWindows(size=MINUTE, grace=SECOND),
        lambda: dw.TimeWindows(size=MINUTE, grace=timedelta(0)),
        "TimeWindows(size=timedelta(minutes=1), grace=timedelta(seconds=1))",
        {"size": MINUTE, "advance": MINUTE, "grace": SECOND},
    ),
    "SessionWindows": Example(
        lambda: dw.SessionWindows(gap=MINUTE, grace=SECOND),
        lambda: dw.SessionWindows(gap=MINUTE, grace=timedelta(0)),
        "SessionWindows(gap=timedelta(minutes=1), grace=timedelta(seconds=1))",
        {"gap": MINUTE, "grace": SECOND},
    ),
    "JoinWindows": Example(
        lambda: dw.JoinWindows(difference=MINUTE, grace=SECOND),
        lambda: dw.JoinWindows(difference=MINUTE, grace=timedelta(0)),
        "JoinWindows(difference=timedelta(minutes=1), grace=timedelta(seconds=1))",
        {"before": MINUTE, "after": MINUTE, "grace": SECOND, "size_ms": 120_000},
    ),
    "BufferConfig": Example(
        lambda: dw.BufferConfig.of_max_records(2).with_max_bytes(3),
        lambda: dw.BufferConfig.unbounded(),
        "BufferConfig(max_records=2, max_bytes=3, emits_early=True)",
        {"max_records": 2, "max_bytes": 3, "emits_early": True},
    ),
    "SlidingWindows": Example(
        lambda: dw.SlidingWindows(difference=MINUTE, grace=SECOND),
        lambda: dw.SlidingWindows(difference=MINUTE, grace=timedelta(0)),
        "SlidingWindows(difference=timedelta(minutes=1), grace=timedelta(seconds=1))",
        {"difference": MINUTE, "grace": SECOND},
    ),
    "UnlimitedWindows": Example(
        lambda: dw.UnlimitedWindows(start=datetime(2026, 1, 1, tzinfo=UTC)),
        lambda: dw.UnlimitedWindows(start=datetime(2026, 1, 2, tzinfo=UTC)),
        "UnlimitedWindows(start=datetime(2026, 1, 1, 0, 0, tzinfo=UTC))",
        {"start": datetime(2026, 1, 1, tzinfo=UTC), "grace_ms": 0},
    ),
    "Windowed": Example(
        lambda: dw.Windowed("ann", 1_000, 2_000),
        lambda: dw.Windowed("ann", 1_000, 3_000),
        "[ann@1000/2000]",
        {
            "key": "ann",
            "start_ms": 1_000,
            "end_ms": 2_000,
            "start": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "end": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        },
    ),
    "TimeWindowed": Example(
        lambda: dw.TimeWindowed(dw.String(), MINUTE),
        lambda: dw.TimeWindowed(dw.String(), SECOND),
        "TimeWindowed(inner=String(), windows=datetime.timedelta(seconds=60))",
        {"inner": dw.String(), "windows": MINUTE},
    ),
    "SessionWindowed": Example(
        lambda: dw.SessionWindowed(dw.String()),
        lambda: dw.SessionWindowed(dw.Long()),
        "SessionWindowed(inner=String())",
        {"inner": dw.String()},
    ),
    "Record": Example(
        lambda: dw.Record("ann", 1, 1_000, (("trace", b"1"),)),
        lambda: dw.Record("ann", 1, 2_000),
        "Record(key='ann', value=1, timestamp_ms=1000, headers=(('trace', b'1'),))",
        {"key": "ann", "value": 1, "timestamp_ms": 1_000, "headers": (("trace", b"1"),)},
    ),
    "FixedKeyRecord": Example(
        lambda: dw.FixedKeyRecord("ann", 1, 1_000, (("trace", b"1"),)),
        lambda: dw.FixedKeyRecord("ann", 1, 2_000),
        "FixedKeyRecord(key='ann', value=1, timestamp_ms=1000, headers=(('trace', b'1'),))",
        {"key": "ann", "value": 1, "timestamp_ms": 1_000, "headers": (("trace", b"1"),)},
    ),
    "ValueAndTimestamp": Example(
        lambda: dw.ValueAndTimestamp("a", 1_000),
        lambda: dw.ValueAndTimestamp("a", 2_000),
        "ValueAndTimestamp(value='a', timestamp_ms=1000)",
        {"value": "a", "timestamp_ms": 1_000},
    ),
    "VersionedRecord": Example(
        lambda: dw.VersionedRecord("a", 1_000),
        lambda: dw.VersionedRecord("a", 2_000),
        "VersionedRecord(value='a', timestamp_ms=1000)",
        {"value": "a", "timestamp_ms": 1_000},
    ),
    "TestRecord": Example(
        lambda: testing.TestRecord("ann", 1, 1_000, (("trace", b"1"),)),
        lambda: testing.TestRecord("ann", 1, 2_000),
        "TestRecord(key='ann', value=1, timestamp_ms=1000, headers=(('trace', b'1'),))",
        {
            "key": "ann",
            "value": 1,
            "timestamp_ms": 1_000,
            "headers": (("trace", b"1"),),
            "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        },
    ),
}
MEMBERS = [f"{name}.{member}" for name, example in EXAMPLES.items() for member in example.members]


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_holds_what_it_is_made_of(name: str) -> None:
    made = EXAMPLES[name].make()

    assert type(made).__name__ == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_that_hold_the_same_are_equal(name: str) -> None:
    example = EXAMPLES[name]

    assert example.make() == example.make()
    assert example.make() != example.other()


@pytest.mark.parametrize("name", EXAMPLES)
def test_equal_values_have_one_hash(name: str) -> None:
    assert hash(EXAMPLES[name].make()) == hash(EXAMPLES[name].make())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_value_shows_what_it_holds(name: str) -> None:
    assert str(EXAMPLES[name].make()).startswith(EXAMPLES[name].shown)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_is_what_was_given(member: str) -> None:
    name, _, attribute = member.partition(".")
    example = EXAMPLES[name]

    assert getattr(example.make(), attribute) == example.members[attribute]


@pytest.mark.parametrize("name", ["TimeWindows", "SlidingWindows", "SessionWindows"])
def test_windows_may_have_no_grace(name: str) -> None:
    assert EXAMPLES[name].other().grace == timedelta(0)


@pytest.mark.parametrize("kind", ["time", "session"])
def test_a_windowed_key_travels(kind: str) -> None:
    key = dw.Windowed("ann", 1_000, 61_000)
    serde = dw.TimeWindowed(dw.String(), MINUTE) if kind == "time" else dw.SessionWindowed(dw.String())

    assert serde.deserialize(serde.serialize(key)) == key


BUFFERS: dict[str, tuple[Callable[[dw.BufferConfig], dw.BufferConfig], tuple[int | None, int | None, bool]]] = {
    "of_max_bytes": (lambda _: dw.BufferConfig.of_max_bytes(3), (None, 3, True)),
    "with_max_records": (lambda buffer: buffer.with_max_records(4), (4, None, True)),
    "with_max_bytes": (lambda buffer: buffer.with_max_bytes(4), (2, 4, True)),
    "with_no_bound": (lambda buffer: buffer.with_no_bound(), (None, None, False)),
    "emit_early_when_full": (lambda buffer: buffer.shut_down_when_full().emit_early_when_full(), (2, None, True)),
}


@pytest.mark.parametrize("how", BUFFERS)
def test_a_buffer_has_the_bounds_it_is_given(how: str) -> None:
    change, bounds = BUFFERS[how]
    buffer = change(dw.BufferConfig.of_max_records(2))

    assert (buffer.max_records, buffer.max_bytes, buffer.emits_early) == bounds


def test_a_join_window_may_have_two_bounds() -> None:
    windows = dw.JoinWindows(before=MINUTE, after=SECOND, grace=timedelta(0))

    assert (windows.before, windows.after) == (MINUTE, SECOND)


def test_own_windows_say_where_they_begin_and_end() -> None:
    builder = dw.StreamsBuilder()
    days = builder.stream("in", key=str, value=str).group_by_key().windowed_by(DAYS)
    days.count(store="counts").to_delta("counts")
    driver = testing.TopologyTestDriver(builder.build())
    driver.create_input_topic("in").pipe_input("ann", "", timestamp_ms=1_774_785_600_000)

    assert [key.end - key.start for key in driver.table("counts").rows] == [timedelta(hours=23)]


def test_an_unlimited_window_starts_where_it_is_told() -> None:
    assert dw.UnlimitedWindows(start=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).start_ms == 1_000


def test_an_unlimited_window_starts_with_the_epoch() -> None:
    assert dw.UnlimitedWindows().start_ms == 0


CHANGES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "key": (lambda record: record.with_key("bob"), "bob"),
    "value": (lambda record: record.with_value(2), 2),
    "timestamp_ms": (lambda record: record.with_timestamp(5), 5),
    "headers": (lambda record: record.with_headers(()), ()),
}


@pytest.mark.parametrize("member", CHANGES)
def test_a_record_can_be_had_with_another(member: str) -> None:
    change, changed = CHANGES[member]

    assert getattr(change(EXAMPLES["Record"].make()), member) == changed


@pytest.mark.parametrize("member", ["value", "timestamp_ms", "headers"])
def test_a_record_that_keeps_its_key_can_be_had_with_another(member: str) -> None:
    change, changed = CHANGES[member]

    assert getattr(change(EXAMPLES["FixedKeyRecord"].make()), member) == changed
