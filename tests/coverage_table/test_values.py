"""Value objects: equal when they hold the same, with one hash, and shown as what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import deltaworks as dw
from deltaworks import testing

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Example:
    """A value, another one that differs, and what is told of it."""

    make: Callable[[], Any]
    other: Callable[[], Any]
    shown: str
    members: dict[str, Any]


EXAMPLES = {
    "TimeWindows": Example(
        lambda: dw.TimeWindows.of_size_and_grace(MINUTE, SECOND),
        lambda: dw.TimeWindows.of_size_with_no_grace(MINUTE),
        "TimeWindows(size_ms=60000, advance_ms=60000, grace_ms=1000)",
        {"size_ms": 60_000, "advance_ms": 60_000, "grace_ms": 1_000},
    ),
    "SessionWindows": Example(
        lambda: dw.SessionWindows.of_inactivity_gap_and_grace(MINUTE, SECOND),
        lambda: dw.SessionWindows.of_inactivity_gap_with_no_grace(MINUTE),
        "SessionWindows(gap_ms=60000, grace_ms=1000",
        {"gap_ms": 60_000, "grace_ms": 1_000},
    ),
    "JoinWindows": Example(
        lambda: dw.JoinWindows.of_time_difference_and_grace(MINUTE, SECOND),
        lambda: dw.JoinWindows.of_time_difference_with_no_grace(MINUTE),
        "JoinWindows(before_ms=60000, after_ms=60000, grace_ms=1000)",
        {"before_ms": 60_000, "after_ms": 60_000, "grace_ms": 1_000, "size_ms": 120_000},
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
        lambda: dw.TimeWindowed(dw.String(), 60_000),
        lambda: dw.TimeWindowed(dw.String(), 1),
        "TimeWindowed(inner=String(), size_ms=60000)",
        {"inner": dw.String(), "size_ms": 60_000},
    ),
    "SessionWindowed": Example(
        lambda: dw.SessionWindowed(dw.String()),
        lambda: dw.SessionWindowed(dw.Long()),
        "SessionWindowed(inner=String())",
        {"inner": dw.String()},
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
