"""When a day of a table is closed, and that each is told of once, whoever looks how often."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks.control import closed_days, heartbeat
from deltaworks.control.closed_days import Told
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.lakehouse import cuts
from deltaworks.settings import Settings
from tests.unit.lakehouse.lake import DEAD, QUERY, Expected, open_tables, task_tables, write_batch

NAME = "shop"
DAY = date(2026, 9, 21)
"""The day of the first batches; the windows of a batch close a few hours later."""
PLAIN = [DEAD, "orders", "users", "users_changelog"]
EVERY = sorted([*PLAIN, "counts"])
MIDNIGHT = datetime(2026, 9, 22, tzinfo=UTC)


def lake(home: Path, batches: int) -> Settings:
    """The tables of a stream that has made so many batches, 20 minutes of event time each."""
    settings = replace(Settings.from_environment(), home=home)
    committer, tables, expected = open_tables(settings.tables), task_tables(settings.tables), Expected()
    for number in range(batches):
        committer.commit(number, write_batch(tables, number, expected))
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    return settings


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Settings]]:
    """Before and after the last window of the day has closed."""
    top = tmp_path_factory.mktemp("lakes")
    yield {"early": lake(top / "early", 2), "late": lake(top / "late", 48)}


class Stream:
    """A stream as its driver reports it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.paths = PipelinePaths.of(settings, NAME)

    def beats(self, at: datetime, *, lag_s: float | None = 0.0, **other: Any) -> None:
        cut = cuts.latest(self.settings.tables, NAME)
        assert cut is not None
        said = {"query_id": QUERY, "batch_id": cut.batch_id, "state": "running", "pid": 1, "generation": 1, **other}
        self.paths.root.mkdir(parents=True, exist_ok=True)
        beat = msgspec.convert({"pipeline": NAME, "at": at.timestamp(), "lag_seconds": lag_s, **said}, Heartbeat)
        heartbeat.write(self.paths.heartbeat, beat)

    def claim(self, claimant: str = "first", told: Told = lambda _: None) -> dict[str, list[date]]:
        found = closed_days.claim(self.settings, NAME, claimant, told)
        assert all(each.cut == cuts.latest(self.settings.tables, NAME) for each in found)
        return {each.table: list(each.days) for each in found}


@pytest.fixture
def early(lakes: dict[str, Settings]) -> Iterator[Stream]:
    yield from _fresh(lakes["early"])


@pytest.fixture
def late(lakes: dict[str, Settings]) -> Iterator[Stream]:
    yield from _fresh(lakes["late"])


def _fresh(settings: Settings) -> Iterator[Stream]:
    stream = Stream(settings)
    yield stream
    shutil.rmtree(stream.paths.root, ignore_errors=True)


def test_a_day_closes_when_all_records_of_it_are_in_the_tables(late: Stream) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))

    assert late.claim() == {table: [DAY] for table in EVERY}
    assert closed_days.through(late.settings, NAME) == dict.fromkeys(EVERY, DAY)


@pytest.mark.parametrize(
    "state",
    [
        {"at": MIDNIGHT + timedelta(minutes=4)},
        {"at": MIDNIGHT + timedelta(hours=9), "lag_s": 9 * 3600.0},
        {"at": MIDNIGHT + timedelta(hours=9), "lag_s": None},
        {"at": MIDNIGHT + timedelta(hours=9), "batch_id": None},
        {"at": MIDNIGHT + timedelta(hours=9), "batch_id": 1_000},
        {"at": MIDNIGHT + timedelta(hours=9), "query_id": "another"},
    ],
    ids=["its end was just now", "lag", "lag unknown", "no batch", "tables behind the stream", "another checkpoint"],
)
def test_until_then_it_does_not(late: Stream, state: dict[str, Any]) -> None:
    late.beats(MIDNIGHT - timedelta(hours=1))
    late.claim()

    late.beats(**state)

    assert late.claim("second", told=lambda _: True) == {}
    assert set(closed_days.through(late.settings, NAME).values()) == {DAY - timedelta(days=1)}


def test_a_stream_that_never_ran_has_no_closed_days(late: Stream) -> None:
    assert late.claim() == {}
    assert closed_days.through(late.settings, NAME) == {}


def test_windows_that_may_change_keep_the_day_open_in_their_table_alone(early: Stream) -> None:
    early.beats(MIDNIGHT + timedelta(minutes=6))

    assert early.claim() == {table: [DAY] for table in sorted(PLAIN)}
    assert closed_days.through(early.settings, NAME)["counts"] == DAY - timedelta(days=1)

    early.beats(MIDNIGHT + timedelta(days=3, minutes=6))
    assert "counts" not in early.claim()


def test_days_before_the_first_look_are_told_to_nobody_and_later_ones_all(late: Stream) -> None:
    late.beats(MIDNIGHT - timedelta(hours=1))
    assert late.claim()["orders"] == [DAY - timedelta(days=1)]

    late.beats(MIDNIGHT + timedelta(days=2, minutes=6))

    assert late.claim("second", told=lambda _: True)["orders"] == [DAY + timedelta(days=n) for n in range(3)]


def test_who_looks_later_is_not_told_again(late: Stream) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))
    assert late.claim("first") != {}

    assert late.claim("second", told=lambda _: None) == {}, "the first may still tell"
    assert late.claim("third", told=lambda _: True) == {}
    assert late.claim("first") == {}, "it has told"


def test_a_try_that_is_repeated_gets_what_it_has_claimed(late: Stream) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))

    assert late.claim("first") == late.claim("first") == {table: [DAY] for table in EVERY}


def test_who_has_failed_for_good_is_replaced(late: Stream) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))
    late.claim("first")

    assert late.claim("second", told=lambda who: {"first": False}[who]) == {table: [DAY] for table in EVERY}
    assert late.claim("first") == {}


def test_of_many_who_look_at_once_one_is_told(late: Stream) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: late.claim(f"run {n}"), range(24)))

    assert [each for each in found if each] == [{table: [DAY] for table in EVERY}]


def test_a_table_that_was_made_anew_has_no_day_twice(late: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))
    late.claim()
    newest = cuts.latest(late.settings.tables, NAME)
    assert newest is not None
    anew = msgspec.structs.replace(newest, query="another")
    monkeypatch.setattr(cuts, "latest", lambda *_: anew)
    late.beats(MIDNIGHT + timedelta(minutes=7), query_id="another")

    assert late.claim("second", told=lambda _: True) == {}


@pytest.mark.parametrize("content", ["", "{", '{"format": 9, "tables": {}}'])
def test_a_mark_that_cannot_be_read_is_refused_and_kept(late: Stream, content: str) -> None:
    late.beats(MIDNIGHT + timedelta(minutes=6))
    late.paths.closed_days.write_text(content)

    with pytest.raises(IncompatibleCheckpointError, match="how far days are closed") as raised:
        late.claim()

    assert "move it away" in str(raised.value.hint)
    assert late.paths.closed_days.read_text() == content
