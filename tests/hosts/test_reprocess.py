"""Replays that publish only what differs, of days that are complete, beside a stream in this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import time, timedelta
from pathlib import Path

import msgspec
import pytest

from deltaworks import ChangeLimit, HandOver, Pipeline, Reprocess, SessionWindows, StreamsBuilder, TimeWindows
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse.publish.comparison import Sum
from deltaworks.lakehouse.publish.decision import decide
from deltaworks.lakehouse.publish.publication import Publication
from deltaworks.replay import runs
from deltaworks.replay.days import NoCompleteDayError
from deltaworks.replay.model import PHASES
from deltaworks.replay.plan import DAY_MS
from deltaworks.replay.report import comparison_of
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.beside import Beside, stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

HOUR = timedelta(hours=1)
FIRST_DAY = 20_513
DAYS = 6
ODD = 777
"""An amount that occurs on the third day only."""


def day(number: int) -> int:
    return (FIRST_DAY + number) * DAY_MS


def topology(*, odd: int = ODD, gap: timedelta = HOUR) -> Callable[[StreamsBuilder], None]:
    """Amounts one by one, their sums per hour, how many per hour, visits."""

    def build(builder: StreamsBuilder) -> None:
        payments = builder.stream("payments", key=str, value=int, name="payments-in").map_values(
            lambda amount: odd if amount == ODD else amount, value=int, name="counted"
        )
        payments.to_delta("amounts")
        by_key = payments.group_by_key()
        hours = by_key.windowed_by(TimeWindows(size=HOUR, grace=HOUR))
        hours.reduce(lambda total, amount: total + amount, store="sums-store").to_delta("sums")
        hours.count(store="counts-store").to_delta("counts")
        by_key.windowed_by(SessionWindows(gap=gap, grace=HOUR)).count(store="visits-store").to_delta("visits")

    return build


def streamed(home: Path, *, gap: timedelta = HOUR, silent_ms: int = 3 * 3_600_000) -> InProcessStream:
    """Six days, silent around midnight, so that no visit crosses it."""
    rng = random.Random(7)
    kafka = MemoryKafka({"payments": 1})
    for number in range(DAYS):
        for time_ms in range(day(number) + silent_ms, day(number + 1) - silent_ms, 1_800_000):
            amount = ODD if number == 2 and rng.random() < 0.5 else rng.randrange(100)
            kafka.write("payments", RawRecord(b"k%d" % rng.randrange(4), amount.to_bytes(8, "big"), time_ms))
    settings = replace(Settings.from_environment({}), home=home)
    pipeline = Pipeline(name="payments", topology=topology(gap=gap))
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 10, elsewhere=None)
    return stream


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    return stand_beside(streamed(tmp_path), monkeypatch)


def test_only_the_tables_and_days_that_differ_are_published(beside: Beside) -> None:
    before = beside.rows()
    beside.pipeline = replace(beside.pipeline, topology=topology(odd=778))
    run = beside.start(from_ms=day(0), to_ms=day(5), only_different=True)

    beside.advance(run, "gate")
    chosen = run.paths.read_state().narrowed
    assert chosen is not None
    assert (chosen.tables, chosen.from_ms, chosen.to_ms) == (("amounts", "sums"), day(2), day(3))

    assert beside.advance(run) == list(PHASES)
    done = msgspec.json.decode(run.paths.publication.read_bytes(), type=Publication)
    assert set(done.tables) == {"amounts", "sums"}
    assert (done.request.from_ms, done.request.to_ms) == (day(2), day(3))
    after = beside.rows()
    assert {table for table in after if after[table] != before[table]} == {"amounts", "sums"}
    again = beside.start(from_ms=day(0), to_ms=day(5))
    beside.advance(again, "compare")
    assert comparison_of(again.paths).equal, "nothing that differs was left out"


def test_if_nothing_differs_nothing_is_published_and_nothing_is_left(beside: Beside) -> None:
    before = beside.rows()
    run = beside.start(from_ms=day(1), to_ms=day(3), only_different=True)

    assert beside.advance(run) == list(PHASES)

    assert not run.paths.root.exists() and not run.paths.publication.exists()
    assert beside.rows() == before


def test_a_replay_of_all_days_is_narrowed_too(beside: Beside) -> None:
    beside.pipeline = replace(beside.pipeline, topology=topology(odd=778))
    run = beside.start(only_different=True)
    beside.advance(run, "compare")

    chosen = run.paths.read_state().narrowed
    assert chosen is not None and (chosen.from_ms, chosen.to_ms) == (day(2), day(3))


def test_of_the_requested_days_those_that_are_complete_are_published(beside: Beside) -> None:
    run = beside.start(from_ms=day(3), to_ms=day(30), complete_days=True)
    beside.advance(run, "run")

    state = run.paths.read_state()
    assert (state.from_ms, state.to_ms) == (day(3), day(DAYS - 1))


def test_without_a_complete_day_nothing_is_begun(beside: Beside) -> None:
    with pytest.raises(NoCompleteDayError, match=r"None of the days from 2026-03-06 on is complete"):
        beside.start(from_ms=day(DAYS - 1), to_ms=day(DAYS), complete_days=True)
    assert runs.all_unfinished(beside.settings) == []


def test_days_whose_last_session_reaches_into_an_open_day_are_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits without a pause: all days are connected with the last one."""
    beside = stand_beside(streamed(tmp_path, gap=8 * HOUR, silent_ms=0), monkeypatch)
    with pytest.raises(NoCompleteDayError):
        beside.start(from_ms=day(2), to_ms=day(DAYS - 1), complete_days=True, tables=("visits",))

    run = beside.start(from_ms=day(2), to_ms=day(DAYS - 1), complete_days=True, tables=("sums",))
    beside.advance(run, "run")
    assert run.paths.read_state().to_ms == day(DAYS - 1)


def test_limited_sums_are_in_the_comparison(beside: Beside) -> None:
    limit = ChangeLimit(sums={"amounts.value": 0.01, "sums.value": 0.01})
    beside.pipeline = replace(
        beside.pipeline, topology=topology(odd=ODD - 7), reprocess=Reprocess("@daily", limit=limit)
    )
    run = beside.start(from_ms=day(2), to_ms=day(3))
    beside.advance(run, "compare")

    amounts = [
        row["value"] for row in beside.rows()["amounts"] if day(2) <= row["timestamp"].timestamp() * 1000 < day(3)
    ]
    expected = Sum(before=sum(amounts), change=-7 * amounts.count(ODD))
    found = {table.table: table.sums for table in comparison_of(run.paths).tables}
    assert found["amounts"] == found["sums"] == {"value": expected}
    assert found["counts"] == {}


def test_a_hand_over_takes_everything(beside: Beside) -> None:
    with pytest.raises(ConfigurationError, match="--only-different: a hand-over always includes all tables"):
        beside.start(hand_over=True, only_different=True)


def test_a_table_without_windows_is_compared_for_a_hand_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same point of history, also if production has gone on since."""

    def build(odd: int) -> Callable[[StreamsBuilder], None]:
        def totals(builder: StreamsBuilder) -> None:
            read = builder.stream("payments", key=str, value=int)
            counted = read.map_values(lambda amount: odd if amount == ODD else amount, value=int, name="counted")
            counted.group_by_key().reduce(lambda total, amount: total + amount, store="totals-store").to_delta("totals")

        return totals

    kafka = MemoryKafka({"payments": 1})
    for amount in (ODD, 1, 2, 3):
        kafka.write("payments", RawRecord(b"k%d" % (amount % 2), amount.to_bytes(8, "big"), day(0)))
    settings = replace(Settings.from_environment({}), home=tmp_path)
    stream = InProcessStream(Pipeline(name="payments", topology=build(ODD)), settings, kafka=kafka)
    stream.run_to_the_end(random.Random(7), 2, elsewhere=None)
    beside = stand_beside(stream, monkeypatch)

    same = beside.start(hand_over=True)
    beside.advance(same, "compare")
    assert comparison_of(same.paths).equal
    runs.discard(beside.settings, same.plan.run_id)

    night = HandOver(window=(time(2), time(4)))
    policy = Reprocess("@daily", hand_over=night, limit=ChangeLimit(sums={"totals.value": 0.01}))
    beside.pipeline = replace(beside.pipeline, topology=build(ODD + 5), reprocess=policy)
    other = beside.start(hand_over=True)
    beside.advance(other, "compare")
    comparison = comparison_of(other.paths)
    found = {table.table: table.sums for table in comparison.tables}
    assert found["totals"] == {"value": Sum(before=ODD + 6, change=5)}
    assert (decided := decide(policy, comparison)).answer == "publish", decided.why
    assert decide(replace(policy, hand_over=HandOver()), comparison).answer == "ask"


def test_a_dry_run_may_have_days_of_others_and_is_never_published(beside: Beside) -> None:
    before = beside.rows()
    beside.start(from_ms=day(1), to_ms=day(3))
    beside.pipeline = replace(beside.pipeline, topology=topology(odd=778))
    dry = beside.start(from_ms=day(1), to_ms=day(3), dry_run=True)
    assert beside.advance(dry, "gate")[-1] == "gate"
    assert (dry.paths.read_state().differences or 0) > 0

    with pytest.raises(ConfigurationError, match="is a dry run, which is never published"):
        beside.advance(dry)
    assert beside.rows() == before
    runs.discard(beside.settings, dry.plan.run_id)


def test_the_newest_complete_days(beside: Beside) -> None:
    assert runs.newest_days(beside.settings, "payments", (), 2) == (day(DAYS - 3), day(DAYS - 1))
    without_windows = runs.newest_days(beside.settings, "payments", ("amounts",), 1)
    assert without_windows[1] % DAY_MS == 0 and without_windows[1] > day(DAYS), "days that are over"
