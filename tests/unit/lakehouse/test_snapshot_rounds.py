"""The snapshots of a pipeline are refreshed together, and the round says what they stand for only if all of them do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deltaworks.lakehouse import snapshot_rounds
from deltaworks.lakehouse.snapshot_rounds import REST, REST_S, SnapshotRounds
from deltaworks.lakehouse.snapshots import SnapshotRefresh


class Fake:
    """A snapshot without tables."""

    def __init__(self, name: str) -> None:
        self.name, self.as_of_batch = name, -1
        self.stale = self.ready = self.is_replaced = False
        self.begun, self.expected_s = 0, 0.0

    def begin(self) -> None:
        self.begun += 1
        self.ready = False

    def finish(self) -> SnapshotRefresh | None:
        if self.is_replaced:
            return None
        self.stale, self.expected_s = False, 1.5
        return SnapshotRefresh(self.name, 1, 1, 1, seconds=1.5)


class Rounds:
    """Two snapshots, whose rounds stand for a batch."""

    def __init__(self) -> None:
        self.now_s, self.batch = 100.0, 0
        self.small, self.large = Fake("small"), Fake("large")
        self.of: SnapshotRounds[int] = SnapshotRounds((), lambda: 0)

    def open(self) -> None:
        snapshots: Any = (self.small, self.large)
        self.of = SnapshotRounds(snapshots, lambda: self.batch)

    def refreshed(self) -> list[str]:
        return [done.table for done in self.of.refresh()]

    def change(self) -> None:
        self.small.stale = self.large.stale = True


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rounds]:
    rounds = Rounds()
    monkeypatch.setattr(snapshot_rounds, "ticks_s", lambda: rounds.now_s)
    rounds.open()
    rounds.change()
    yield rounds


def test_all_begin_together_and_end_together(rounds: Rounds) -> None:
    assert (rounds.refreshed(), rounds.of.shown) == ([], None)
    rounds.small.ready = True
    assert (rounds.refreshed(), rounds.of.shown) == ([], None)
    rounds.large.ready = True

    assert (rounds.refreshed(), rounds.of.shown) == (["small", "large"], 0)
    assert (rounds.small.begun, rounds.large.begun) == (1, 1)


def test_the_pause_follows_what_all_that_have_changed_will_take(rounds: Rounds) -> None:
    rounds.of.refresh(force=True)
    rounds.change()
    rounds.now_s += 2 * 1.5 * REST - 0.1
    rounds.refreshed()
    assert rounds.small.begun == 1

    rounds.now_s += 0.1
    rounds.refreshed()
    assert rounds.small.begun == 2


def test_few_changes_do_not_wait_for_what_many_have_cost(rounds: Rounds) -> None:
    rounds.of.refresh(force=True)
    rounds.small.stale, rounds.large.expected_s = True, 100.0
    rounds.small.expected_s = 0.1
    rounds.now_s += REST_S - 0.1
    rounds.refreshed()
    assert rounds.small.begun == 1

    rounds.now_s += 0.1
    rounds.refreshed()
    assert rounds.small.begun == 2


def test_those_that_existed_before_rest_first(rounds: Rounds) -> None:
    rounds.large.as_of_batch = 7
    rounds.open()
    rounds.refreshed()
    assert rounds.small.begun == 0

    rounds.now_s += REST_S
    rounds.refreshed()
    assert rounds.small.begun == 1


def test_a_round_without_one_of_them_stands_for_nothing(rounds: Rounds) -> None:
    rounds.of.refresh(force=True)
    assert rounds.of.shown == 0
    rounds.change()
    rounds.large.is_replaced = True
    rounds.of.refresh(eager=True)
    rounds.small.ready = rounds.large.ready = True

    assert [done.table for done in rounds.of.refresh()] == ["small"]
    assert rounds.of.shown is None


def test_a_round_that_began_before_a_change_of_history_stands_for_nothing(rounds: Rounds) -> None:
    rounds.refreshed()
    rounds.of.forget()
    rounds.small.ready = rounds.large.ready = True

    assert (rounds.refreshed(), rounds.of.shown) == (["small", "large"], None)
    rounds.change()
    rounds.batch = 1
    rounds.of.refresh(force=True)
    assert rounds.of.shown == 1


def test_they_stand_for_later_batches_until_something_changes(rounds: Rounds) -> None:
    rounds.of.refresh(force=True)
    rounds.batch = 1
    rounds.refreshed()
    assert rounds.of.shown == 1

    rounds.batch = 2
    rounds.change()
    rounds.refreshed()
    assert rounds.of.shown == 1
