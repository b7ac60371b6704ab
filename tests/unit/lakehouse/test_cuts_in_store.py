"""Cuts in an object store, which cannot append: that of an hour is replaced now and then, the latest at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.object_path import ObjectPath, take_requests

PIPELINE = "shop"
START = datetime(2026, 3, 1, 11, 30, tzinfo=UTC)


class Ticks:
    """The clock that the writer sees."""

    def __init__(self) -> None:
        self.now_s = 1_000.0


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    found = Ticks()
    monkeypatch.setattr(cuts, "ticks_s", lambda: found.now_s)
    return found


def cut(batch: int, *, after: timedelta = timedelta(0)) -> Cut:
    at_ms = round((START + after).timestamp() * 1000) + batch
    return Cut(pipeline=PIPELINE, query="q", batch_id=batch, at_ms=at_ms, tables={"orders": batch})


def stored(root: Path, hour: str = "2026-03-01T11.jsonl") -> list[int]:
    """The batches in the file of an hour."""
    return [found.batch_id for found in cuts._cuts_in(cuts.folder(root, PIPELINE) / hour)]


def latest(root: Path) -> int:
    found = cuts.latest(root, PIPELINE)
    assert found is not None
    return found.batch_id


def as_of(root: Path, batch: int) -> int | None:
    """The batch of the cut of the time of a batch."""
    found = cuts.as_of(root, PIPELINE, cut(batch).at)
    return None if found is None else found.batch_id


def test_the_latest_cut_is_there_at_once_and_its_hour_half_a_minute_later(in_store: ObjectPath, ticks: Ticks) -> None:
    writer, seen = CutWriter(in_store, PIPELINE), []
    for batch in range(10):
        writer.write(cut(batch))
        assert latest(in_store) == batch
        assert as_of(in_store, batch) == batch
        seen.append(len(stored(in_store)))
        ticks.now_s += 10

    assert seen == [1, 1, 1, 4, 4, 4, 7, 7, 7, 10]
    assert stored(in_store) == list(range(10))


def test_a_cut_costs_two_requests_and_an_hour_one_more_every_half_a_minute(in_store: ObjectPath, ticks: Ticks) -> None:
    writer = CutWriter(in_store, PIPELINE)
    writer.write(cut(0))
    take_requests()

    for batch in range(1, 61):
        ticks.now_s += 1
        writer.write(cut(batch))

    assert take_requests() == {"PUT": 62, "GET": 62}


def test_all_cuts_are_there_when_the_writer_is_closed(in_store: ObjectPath, ticks: Ticks) -> None:
    writer = CutWriter(in_store, PIPELINE)
    for batch in range(5):
        writer.write(cut(batch))
    assert stored(in_store) == [0]

    writer.close()

    assert stored(in_store) == [0, 1, 2, 3, 4]
    take_requests()
    writer.close()
    assert take_requests() == {}, "there is nothing new"


def test_the_cuts_of_an_hour_survive_a_new_writer(in_store: ObjectPath, ticks: Ticks) -> None:
    first = CutWriter(in_store, PIPELINE)
    for batch in range(3):
        first.write(cut(batch))
    first.close()

    second = CutWriter(in_store, PIPELINE)
    for batch in range(3, 6):
        second.write(cut(batch))
    second.close()

    assert stored(in_store) == [0, 1, 2, 3, 4, 5]
    assert [as_of(in_store, batch) for batch in range(6)] == [0, 1, 2, 3, 4, 5]


def test_an_hour_that_is_over_is_whole(in_store: ObjectPath, ticks: Ticks) -> None:
    writer = CutWriter(in_store, PIPELINE)
    for batch in range(3):
        writer.write(cut(batch))
    writer.write(cut(3, after=timedelta(hours=1)))

    assert stored(in_store) == [0, 1, 2]
    assert (latest(in_store), as_of(in_store, 2)) == (3, 2)
    writer.close()
    assert stored(in_store, "2026-03-01T12.jsonl") == [3]
    first = cuts.first(in_store, PIPELINE)
    assert first == cut(0)


def test_a_killed_writer_takes_the_cuts_of_the_last_half_minute_with_it(in_store: ObjectPath, ticks: Ticks) -> None:
    killed = CutWriter(in_store, PIPELINE)
    for batch in range(6):
        killed.write(cut(batch))
        ticks.now_s += 10

    assert [as_of(in_store, batch) for batch in range(6)] == [0, 1, 2, 3, 3, 5], (
        "that of 4 is gone, and 5 is the latest"
    )

    again = CutWriter(in_store, PIPELINE)
    again.write(cut(6))
    again.close()
    assert [as_of(in_store, batch) for batch in range(7)] == [0, 1, 2, 3, 3, 3, 6]
    assert cuts.last_in(cuts.hour_file(in_store, cut(6))) == cut(6)
