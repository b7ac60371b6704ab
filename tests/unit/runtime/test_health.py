"""The rate of the last minute, and the lag in time."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import clock
from deltaworks.control import fence, heartbeat
from deltaworks.control.heartbeat import Heartbeat, StoreSize, TableFacts
from deltaworks.control.intents import Intent
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import SilentReporter
from deltaworks.kafka.ranges import Range
from deltaworks.runtime.health import Health, Lag, Rate
from deltaworks.runtime.messages import TaskCounts, TaskResult
from deltaworks.topology.alerts import Alerts


class Ticks:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def test_the_rate_is_that_of_all_batches_of_the_last_minute(ticks: Ticks) -> None:
    rate = Rate(ticks)
    for _ in range(300):
        ticks.now += 0.5
        rate.add(50)
    assert rate.per_second() == pytest.approx(100.0)


def test_a_stream_that_idles_slows_down_and_has_none_after_a_minute(ticks: Ticks) -> None:
    rate = Rate(ticks)
    ticks.now += 60
    rate.add(6_000)
    found = []
    for _ in range(3):
        found.append(rate.per_second())
        ticks.now += 30
    assert found == [100.0, 100.0, 0.0]


def test_a_stream_that_has_just_begun_is_measured_since_then(ticks: Ticks) -> None:
    rate = Rate(ticks)
    assert rate.per_second() == 0.0
    ticks.now += 10
    rate.add(1_000)
    assert rate.per_second() == 100.0


def test_one_batch_at_once_is_no_rate_without_end(ticks: Ticks) -> None:
    rate = Rate(ticks)
    rate.add(1_000)
    assert rate.per_second() == 1_000.0


def at(offset: int) -> dict[str, dict[str, int]]:
    return {"topic": {"0": offset}}


def test_a_stream_that_has_read_everything_has_no_lag() -> None:
    ticks = Ticks()
    lag = Lag(ticks)
    assert lag.seconds(at(0)) is None, "nobody has looked"
    lag.see(at(10))
    assert lag.seconds(at(10)) == 0.0
    ticks.now += 60
    lag.see(at(10))
    assert lag.seconds(at(10)) == 0.0, "an idle stream has none, however long it idles"


def test_the_lag_is_how_long_ago_the_topics_ended_there() -> None:
    ticks = Ticks()
    lag = Lag(ticks)
    for second in range(30):
        ticks.now = 100.0 + second
        lag.see(at(10 * second))
    assert lag.seconds(at(250)) == 4.0
    assert lag.seconds(at(255)) == 4.0, "half of what came in that second"
    assert lag.seconds(at(290)) == 0.0


def test_the_partition_that_is_furthest_behind_counts() -> None:
    ticks = Ticks()
    lag = Lag(ticks)
    lag.see({"topic": {"0": 1, "1": 1}})
    ticks.now += 5
    lag.see({"topic": {"0": 2, "1": 2}})
    assert lag.seconds({"topic": {"0": 2, "1": 1}}) == 5.0
    assert lag.seconds({"topic": {"0": 2, "1": 2}}) == 0.0


def test_what_was_there_before_the_first_look_is_at_least_as_old() -> None:
    ticks = Ticks()
    lag = Lag(ticks)
    lag.see(at(1_000))
    ticks.now += 7
    lag.see(at(1_500))
    assert lag.seconds(at(3)) == 7.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.2, 30.0), st.integers(0, 50)), min_size=1, max_size=3_000), st.floats(0.0, 1.0))
def test_a_long_lag_is_remembered_in_little_room_and_within_a_few_hundredths(
    steps: list[tuple[float, int]], part: float
) -> None:
    ticks, end = Ticks(), 0
    lag = Lag(ticks)
    seen = []
    for seconds, records in steps:
        ticks.now += seconds
        end += records
        lag.see(at(end))
        seen.append((ticks.now, end))
    assert len(lag._seen) <= 512
    position = int(part * end)
    exact = ticks.now - max((when for when, there in seen if there <= position), default=seen[0][0])
    found = lag.seconds(at(position))
    assert found is not None
    if position >= end:
        assert found == 0.0
    else:
        longest = max((b[0] - a[0] for a, b in pairwise(seen)), default=0.0)
        assert exact <= found <= exact + longest + (ticks.now - seen[0][0]) / 100 + 1.0


def test_lost_results_are_in_the_log_and_in_the_heartbeat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, SilentReporter(), Alerts(lag=None))
    intent = Intent(
        batch=7, lineage="l", query="q", generation=1, code="c", clock_ms=0, tick=False, ranges=[], end={}, previous=""
    )
    for lost in (0, 2, 3):
        counts = TaskCounts(
            records_in=1,
            dropped=0,
            late=0,
            lost_results=lost,
            dead_letters=0,
            sent=0,
            stream_time_ms=0,
            next_tick_ms=None,
        )
        health.add(intent, [TaskResult(0, 1, [], counts, [], "same", False)])
    health.write("running")

    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.lost_results == 5
    assert beat.alerts == Alerts(lag=None) and beat.quiet_s > 0
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 2 and warnings[0].startswith("batch 7, task 0-1: 2 final results are lost")


def test_dead_letters_of_all_tasks_are_counted(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, SilentReporter())
    intent = Intent(
        batch=7, lineage="l", query="q", generation=1, code="c", clock_ms=0, tick=False, ranges=[], end={}, previous=""
    )
    for task, letters in enumerate([0, 2, 3]):
        counts = TaskCounts(
            records_in=5, dropped=0, late=0, lost_results=0, dead_letters=letters, sent=0, stream_time_ms=0,
            next_tick_ms=None,
        )  # fmt: skip
        health.add(intent, [TaskResult(0, task, [], counts, [], "same", False)])
    health.write("running")

    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.dead_letters == 5


def test_what_was_restored_is_in_the_heartbeat_and_a_long_restore_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, SilentReporter())
    intent = Intent(
        batch=7, lineage="l", query="q", generation=1, code="c", clock_ms=0, tick=False, ranges=[], end={}, previous=""
    )
    for task, (entries, seconds) in enumerate([(0, 0.0), (1_000, 0.5), (4_000_000, 8.0)]):
        counts = TaskCounts(
            records_in=1, dropped=0, late=0, lost_results=0, dead_letters=0, sent=0, stream_time_ms=0,
            next_tick_ms=None, restored_entries=entries, restore_s=seconds,
        )  # fmt: skip
        health.add(intent, [TaskResult(0, task, [], counts, [], "rebuild", False)])
    health.write("running")

    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None
    assert (beat.restored_entries, beat.restore_seconds) == (4_001_000, 8.5)
    assert beat.store_openings == {"rebuild": 3}
    assert [each.getMessage() for each in caplog.records] == ["batch 7, task 0-2: 4,000,000 entries restored in 8 s"]


def test_a_heartbeat_that_somebody_reads_does_not_change_with_the_next_batch(tmp_path: Path) -> None:
    """Metrics and the registry read it in threads of their own."""
    told: list[Heartbeat] = []

    class Reporter(SilentReporter):
        def beat(self, beat: Heartbeat) -> None:
            told.append(beat)

    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, Reporter())
    seen = []
    for task, recovery in ((0, "new"), (1, "same")):
        intent = Intent(
            batch=task, lineage="l", query="q", generation=1, code="c", clock_ms=0, tick=False,
            ranges=[Range("in", task, 0, 5)], end={}, previous="",
        )  # fmt: skip
        counts = TaskCounts(
            records_in=5, dropped=0, late=0, lost_results=0, dead_letters=0, sent=0, stream_time_ms=9,
            next_tick_ms=None, stores={"s": (1, 4_096)},
        )  # fmt: skip
        health.add(intent, [TaskResult(0, task, [], counts, [], recovery, False)])
        health.write("running")
        seen.append(msgspec.json.encode(told[0]))

    assert seen[0] == seen[1] and told[1].next_offsets == {"in": {"0": 5, "1": 5}}
    assert told[1].stores == {"s": StoreSize(entries=2, size_bytes=8_192)}


def test_a_heartbeat_knows_tables_and_since_when_they_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, SilentReporter())
    health.begin("q", 12)
    for now_s, changed, stale in (
        (100.0, {"a": (5, 0.25), "a.changelog": (9, 0.5)}, ["a"]),
        (160.0, {"a.changelog": (1, 0.25)}, ["a"]),
    ):
        monkeypatch.setattr(clock, "wall_ns", lambda now_s=now_s: round(now_s * 1e9))
        health.tables(changed, {"a": 3, "a.changelog": 7, "b": 1})
        health.batch_ended(7, 10, {"tasks": 0.5}, stale)

    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.tasks == 12
    assert beat.tables == {
        "a": TableFacts(rows=5, commits=1, commit_seconds=0.25, committed_at=100.0, files=3, stale_since=100.0),
        "a.changelog": TableFacts(rows=10, commits=2, commit_seconds=0.75, committed_at=160.0, files=7),
        "b": TableFacts(files=1),
    }
    monkeypatch.setattr(clock, "wall_ns", lambda: 200 * 10**9)
    health.tables({"a": (0, 0.5)}, {})  # refreshed, and changes have come meanwhile
    health.batch_ended(8, 10, {"tasks": 0.5}, ["a"])
    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.tables["a"].stale_since == 200.0
    health.snapshots([])
    health.write("running")
    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.tables["a"].stale_since is None


def test_spark_is_asked_soon_after_a_batch_and_until_it_has_told(
    tmp_path: Path, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "ticks_s", ticks)
    paths = PipelinePaths.at(tmp_path)
    fence.advance(paths.fence, 1, "p")
    health = Health(paths, "p", 1, SilentReporter())
    waits = [health.waits_for_spark]
    health.batch_ended(7, 10, {"tasks": 0.5}, [])
    health.spark_batch(6, {"addBatch": 0.25})
    waits.append(health.waits_for_spark)
    health.spark_batch(7, {"addBatch": 0.75, "walCommit": 0.125})
    waits.append(health.waits_for_spark)
    health.batch_ended(8, 10, {"tasks": 0.5}, [])
    ticks.now += 6
    waits.append(health.waits_for_spark)
    assert waits == [False, True, False, False], (
        "no batch; it told of an older one; it told; now it tells that it idles"
    )

    health.write("running")
    beat = heartbeat.read(paths.heartbeat)
    assert beat is not None and beat.spark_phases == {"addBatch": 0.75, "walCommit": 0.125}
