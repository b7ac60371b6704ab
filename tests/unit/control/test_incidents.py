"""What is found about streams and the home, and what keeps an incident open."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.incidents import KINDS, OF_STREAMS, Count, Finding, Trend, increase, of_home, of_stream
from deltaworks.control.model import Observation, PipelineStatus
from deltaworks.topology.alerts import Alerts

STEADY = Trend()


def beat(**fields: Any) -> Heartbeat:
    """Of a driver that has run for long and has nothing to do."""
    known: dict[str, Any] = {"pipeline": "p", "generation": 3, "query_id": "q", "state": "running", "pid": 1, "at": 1.0}
    from deltaworks.clock import Sign

    healthy = {"sign": Sign.now(), "up_s": 90_000.0, "batch_id": 7, "lag_records": 0, "lag_seconds": 0.0}
    return Heartbeat(**known | healthy | fields)


def status(state: Any = "running", of: Heartbeat | None = None, **fields: Any) -> PipelineStatus:
    usual: dict[str, Any] = {"name": "p", "desired": "running", "for_s": 1.0, "restarts": 0, "reason": None}
    seen = Observation(pipeline="p", generation=3, state=state, heartbeat=of, exit_code=fields.pop("exit_code", None))
    return PipelineStatus(**usual | {"seen": seen} | fields)


def found(of: PipelineStatus, trend: Trend = STEADY) -> dict[str, bool]:
    """Kind -> whether the finding opens an incident."""
    findings = of_stream(of, trend)
    assert findings is not None
    assert len({each.kind for each in findings}) == len(findings)
    return {each.kind: each.opens for each in findings}


def only(of: PipelineStatus, trend: Trend = STEADY) -> Finding:
    [finding] = [each for each in of_stream(of, trend) or () if each.opens]
    return finding


def test_a_stream_that_runs_and_has_nothing_to_do_has_no_incident() -> None:
    assert found(status(of=beat())) == {}


@pytest.mark.parametrize("state", ["failed", "dead", "stalled"])
def test_a_stream_that_has_ended_unasked_has_failed_and_nothing_else_is_over(state: str) -> None:
    of = status(state, beat(), reason="it broke", exit_code=70)

    assert found(of) == {kind: kind == "failed" for kind in OF_STREAMS}
    assert (only(of).what, only(of).cause) == (f"generation 3 is {state} with exit code 70", "it broke")


def test_a_stream_that_was_restarted_has_failed_until_its_restarts_no_longer_count() -> None:
    again = status(of=beat(up_s=30.0), restarts=2, reason="generation 2 ended: it broke")

    assert (only(again).kind, only(again).cause) == ("failed", "generation 2 ended: it broke")
    assert "2 times" in only(again).what
    assert found(status(of=beat())) == {}


def test_a_stream_that_is_given_up_is_one_new_incident() -> None:
    of = status("failed", beat(), gave_up="exit code 65 says so", exit_code=65)

    assert (only(of).kind, only(of).cause) == ("given_up", "exit code 65 says so")
    assert found(of)["failed"] is False


@pytest.mark.parametrize("state", ["launching", "draining", "stopped"])
def test_between_two_drivers_nothing_begins_and_nothing_is_over(state: str) -> None:
    assert found(status(state, beat())) == dict.fromkeys(OF_STREAMS, False)


@pytest.mark.parametrize("state", ["unknown", "superseded"])
def test_what_cannot_be_seen_says_nothing(state: str) -> None:
    assert of_stream(status(state, beat()), Trend()) is None


@pytest.mark.parametrize("desired", ["stopped", None])
def test_a_stream_that_nobody_wants_to_run_has_no_incident(desired: str | None) -> None:
    assert found(status("failed", beat(lag_seconds=10_000.0), desired=desired)) == {}


@pytest.mark.parametrize(
    ("lag_s", "outcome"),
    [(901.0, {"lagging": True}), (899.0, {"lagging": False}), (451.0, {"lagging": False}), (450.0, {})],
)
def test_a_lag_begins_above_its_limit_and_is_over_below_half_of_it(lag_s: float, outcome: dict[str, bool]) -> None:
    assert found(status(of=beat(lag_seconds=lag_s, lag_records=5))) == outcome


def test_a_driver_that_has_just_started_does_not_know_that_a_lag_is_over() -> None:
    assert found(status(of=beat(lag_seconds=3.0, lag_records=5, up_s=3.0)))["lagging"] is False
    assert "lagging" not in found(status(of=beat(lag_seconds=0.0, lag_records=0, up_s=3.0)))
    assert found(status(of=beat(lag_seconds=None, lag_records=None)))["lagging"] is False


def test_the_cause_of_a_lag_is_the_partition_that_has_most_of_it() -> None:
    parts = {"orders": {"0": 9_000, "1": 10, "2": 0}}

    assert "orders-0" in str(
        only(status(of=beat(lag_seconds=1_000.0, lag_records=9_010, lag_by_partition=parts))).cause
    )
    even = {"orders": {"0": 4_000, "1": 5_010}}
    assert "more records arrive" in str(
        only(status(of=beat(lag_seconds=1_000.0, lag_records=9_010, lag_by_partition=even))).cause
    )


def test_a_batch_is_stuck_if_records_wait_and_none_ends() -> None:
    stuck = status(of=beat(quiet_s=901.0, lag_records=5))

    assert (only(stuck).kind, only(stuck).what) == (
        "batch_stuck",
        "no batch has ended for 15 min after batch 7, and 5 records wait",
    )
    assert "batch_stuck" not in found(status(of=beat(quiet_s=901.0, lag_records=0)))
    assert "batch_stuck" not in found(status(of=beat(quiet_s=899.0, lag_records=5)))


def test_a_restart_does_not_end_a_stuck_batch_but_a_batch_does() -> None:
    assert found(status(of=beat(quiet_s=2.0, up_s=2.0, lag_records=5, batch_id=None)))["batch_stuck"] is False
    assert "batch_stuck" not in found(status(of=beat(quiet_s=2.0, up_s=9.0, lag_records=5, batch_id=0)))


def test_dead_letters_are_an_incident_from_as_many_on_as_the_pipeline_says() -> None:
    few, many = Trend(dead_letters=9), Trend(dead_letters=10)
    of = status(of=beat(alerts=Alerts(dead_letters=10)))

    assert found(of, few) == {"dead_letters": False}
    assert only(of, many).what == "10 records have become dead letters within an hour"


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (1_000_000, 2_000_001, {"state_growing": True}),
        (1_000_000, 1_600_000, {"state_growing": False}),
        (1_000_000, 1_500_000, {}),
        (1_000, 90_000, {}),
        (None, 9_000_000, {}),
    ],
)
def test_state_grows_if_it_is_a_multiple_of_the_day_before(before: int | None, now: int, outcome: object) -> None:
    assert found(status(of=beat(state_entries=now)), Trend(state_before=before)) == outcome


def test_what_a_pipeline_leaves_out_is_no_incident() -> None:
    none = Alerts(lag=None, batch=None, dead_letters=None, state_growth=None)
    bad = beat(lag_seconds=9e9, lag_records=9, quiet_s=9e9, state_entries=9_000_000, alerts=none)

    assert found(status(of=bad), Trend(state_before=1, dead_letters=9)) == {}


@pytest.mark.parametrize(
    ("counts", "before", "total"),
    [
        ([], None, 0),
        ([(1, 5)], None, 5),
        ([(1, 5)], (1, 5), 0),
        ([(1, 5), (1, 7)], (1, 4), 3),
        ([(1, 5), (2, 2), (2, 3)], (1, 5), 3),
        ([(2, 0)], (1, 9), 0),
    ],
)
def test_dead_letters_are_counted_over_several_drivers(
    counts: list[tuple[int, int]], before: tuple[int, int] | None, total: int
) -> None:
    def count(of: tuple[int, int]) -> Count:
        return Count(generation=of[0], dead_letters=of[1])

    assert increase(list(map(count, counts)), None if before is None else count(before), up_s=60.0) == total


def test_dead_letters_of_a_driver_that_nobody_has_watched_are_not_of_the_last_hour() -> None:
    assert increase([Count(generation=1, dead_letters=500)], None, up_s=7_200.0) == 0


@pytest.mark.parametrize(("free", "outcome"), [(0.09, [True]), (0.11, [False]), (0.15, [])])
def test_a_disk_fills_below_a_tenth_and_has_room_again_above_a_seventh(
    free: float, outcome: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = SimpleNamespace(f_bavail=free * 1_000, f_blocks=1_000, f_frsize=4_096, f_favail=900, f_files=1_000)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)

    assert [each.opens for each in of_home(tmp_path)] == outcome


def test_files_run_out_like_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = SimpleNamespace(f_bavail=900, f_blocks=1_000, f_frsize=4_096, f_favail=10, f_files=1_000)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)

    [finding] = of_home(tmp_path)
    assert finding.opens and finding.what.startswith("1% of the disk")


def test_each_kind_says_what_to_do() -> None:
    for text in KINDS.values():
        assert text.advice.format(pipeline="orders") and text.over and text.anchor == text.anchor.lower()
