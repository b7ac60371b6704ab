"""A checkpoint follows some changes of a topology and not others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks import (
    EmitStrategy,
    Json,
    KStream,
    Materialized,
    Serde,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    Windows,
)
from deltaworks.topology import fingerprint
from tests.support.calendar_days import Days

Words = KStream[str, str]
TEN = timedelta(seconds=10)


def fingerprint_of(topology: Callable[[Words], object]) -> dict[str, Any]:
    builder = StreamsBuilder()
    topology(builder.stream("words", key=str, value=str))
    return builder.build().fingerprint()


def counted(words: Words) -> None:
    words.group_by(lambda _, word: word, key=str).count(store="counts").to_delta("counts")


def more_sinks(words: Words) -> None:
    counted(words)
    words.to("copy")
    words.to_delta("words")


def windowed(words: Words, size: timedelta, grace: timedelta = timedelta(0)) -> None:
    words.group_by_key().windowed_by(TimeWindows(size=size, grace=grace)).count(store="counts")


def test_it_is_json() -> None:
    value = fingerprint_of(counted)

    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    "changed",
    [
        lambda words: counted(words.filter(lambda _, word: word > "a")),
        lambda words: words.group_by(lambda _, word: word[:1], key=str).count(store="counts").to_delta("counts"),
        lambda words: words.group_by(lambda _, word: word, key=str).count(store="counts", name="n").to_delta("counts"),
        more_sinks,
    ],
    ids=["another operator", "another function", "another node name", "more sinks"],
)
def test_what_leaves_no_state_may_change(changed: Callable[[Words], object]) -> None:
    assert fingerprint.differences(fingerprint_of(counted), fingerprint_of(changed)) == ()


def test_a_longer_grace_may_come_later() -> None:
    before = fingerprint_of(lambda words: windowed(words, TEN))
    after = fingerprint_of(lambda words: windowed(words, TEN, grace=TEN))

    assert fingerprint.differences(before, after) == ()


def of_days(zone: str, *, grace: timedelta = timedelta(0)) -> dict[str, Any]:
    days = Days(zone=zone, grace=grace)
    return fingerprint_of(lambda words: words.group_by_key().windowed_by(days).count(store="counts"))


def test_own_windows_are_their_class_and_fields_apart_from_the_grace() -> None:
    before = of_days("Europe/Berlin")

    assert fingerprint.differences(before, of_days("Europe/Berlin", grace=TEN)) == ()
    (difference,) = fingerprint.differences(before, of_days("Europe/London"))
    assert difference.what == (
        "store 'counts': filled by was aggregate in the windows Days(size=timedelta(hours=25), zone='Europe/Berlin'),"
        " is aggregate in the windows Days(size=timedelta(hours=25), zone='Europe/London')"
    )


def test_own_windows_with_a_field_that_no_restart_recognises_are_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Holidays(Windows):
        calendar: object

        def windows_for(self, timestamp_ms: int) -> list[tuple[int, int]]:
            return []

    holidays = Holidays(calendar=object(), size=TEN, grace=TEN)
    with pytest.raises(
        TopologyError, match=r"Holidays\(.*calendar=<object object at 0x.*has a field without a lasting"
    ):
        fingerprint_of(lambda words: words.group_by_key().windowed_by(holidays).count(store="counts"))


class Before(msgspec.Struct):
    amount: int


class After(msgspec.Struct):
    amount: float
    tier: str = "STANDARD"


class Other(msgspec.Struct):
    amount: str


def kept(value: type, migrate: tuple[Serde[Any], Callable[[Any], Any]] | None = None) -> dict[str, Any]:
    builder = StreamsBuilder()
    builder.table("words", key=str, value=value, store=Materialized("last", migrate=migrate)).to_delta("last")
    return builder.build().fingerprint()


def test_values_that_can_still_be_read_or_converted_are_no_difference() -> None:
    def convert(before: Before) -> Other:
        return Other(str(before.amount))

    assert fingerprint.differences(kept(Before), kept(After)) == ()
    assert fingerprint.differences(kept(Before), kept(Other, (Json(Before), convert))) == ()
    assert fingerprint.differences(kept(Other), kept(Other, (Json(Before), convert))) == ()


def test_values_that_cannot_be_read_are_told_with_the_field_and_the_way_out() -> None:
    (difference,) = fingerprint.differences(kept(Before), kept(Other))

    assert difference.what == "store 'last': values cannot be read any more: field 'amount' was integer, is string"
    assert "migrate=(old_serde, old_to_new)" in difference.hint


def test_the_number_in_a_generated_exchange_name_does_not_count() -> None:
    def looked_up(words: Words) -> None:
        rekeyed = words.select_key(lambda _, word: word, key=str)
        rekeyed.repartition().to_table(store="last")

    before = fingerprint_of(looked_up)
    after = fingerprint_of(lambda words: looked_up(words.peek(print)))

    assert fingerprint.differences(before, after) == ()


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (
            counted,
            lambda words: words.group_by(lambda _, word: word, key=str).count(store="tally").to_delta("counts"),
            ["store 'counts' (aggregate) is gone", "store 'tally' (aggregate) is new"],
        ),
        (
            lambda words: windowed(words, TEN),
            lambda words: windowed(words, TEN * 2),
            ["was aggregate in windows of 10000 ms every 10000 ms, is aggregate in windows of 20000 ms every 20000 ms"],
        ),
        (
            lambda words: windowed(words, TEN),
            lambda words: (
                words.group_by_key()
                .windowed_by(TimeWindows(size=TEN, grace=timedelta(0)))
                .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
                .count(store="counts")
            ),
            ["is aggregate in windows of 10000 ms every 10000 ms, emitted when they close"],
        ),
        (
            lambda words: words.to_table(store="last"),
            lambda words: words.map_values(len, value=int).to_table(store="last"),
            ["store 'last': values cannot be read any more: it was string, is long"],
        ),
        (
            lambda words: words.to_delta("t"),
            lambda words: words.to_table(store="last").to_delta("t"),
            ["store 'last' (table) is new", "table 't' was written as append, is written as changelog"],
        ),
        (
            lambda words: words.to_table(store="last"),
            lambda words: words.repartition(name="spread").to_table(store="last"),
            ["the topology had 1 stage, has 2 stages"],
        ),
        (
            lambda words: words.to_table(store="last"),
            lambda words: words.to_table(store="last").to_delta("last"),
            ["table 'last' is new, and would lack the rows that have not changed since"],
        ),
    ],
    ids=["renamed store", "window size", "emit strategy", "value type", "table kind", "exchange", "new table"],
)
def test_what_state_depends_on_is_told_in_a_sentence_with_a_hint(
    before: Callable[[Words], object], after: Callable[[Words], object], what: list[str]
) -> None:
    found = fingerprint.differences(fingerprint_of(before), fingerprint_of(after))

    assert len(found) == len(what)
    for difference, part in zip(found, what, strict=True):
        assert part in difference.what
        assert difference.hint


def closing(words: Words) -> None:
    groups = words.group_by_key().windowed_by(TimeWindows(size=TEN, grace=timedelta(0)))
    groups.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")


@pytest.mark.parametrize("before", [True, False])
def test_a_checkpoint_keeps_the_mode_in_which_it_forwards_closed_windows(before: bool) -> None:
    def in_mode(topology: Callable[[Words], object], *, compatible_with_kafka: bool) -> dict[str, Any]:
        builder = StreamsBuilder(compatible_with_kafka=compatible_with_kafka)
        topology(builder.stream("words", key=str, value=str))
        return builder.build().fingerprint()

    first, second = (in_mode(closing, compatible_with_kafka=mode) for mode in (before, not before))
    found = fingerprint.differences(first, second)
    assert [each.what for each in found] == [f"compatible_with_kafka was {before}, is {not before}"]
    assert found[0].hint == f"keep compatible_with_kafka={before} for this checkpoint"
    assert fingerprint.differences(first, first) == ()

    others = [in_mode(counted, compatible_with_kafka=mode) for mode in (True, False)]
    assert fingerprint.differences(*others) == (), "nothing is forwarded when it closes"
