"""The snapshot of a KTable is its changelog, reduced, as of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse import snapshot_files, snapshot_rounds, snapshots
from deltaworks.lakehouse.catalog import table
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.snapshot_files import RangeWriter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import opened, query

USERS = DeltaSink(name="n", table="users", kind=TableKind.CHANGELOG, key=str, value=str)


@dataclass(frozen=True)
class Seat:
    """A key whose fields are called as columns that a snapshot is made with."""

    number: int
    op: str
    number_max: int


class Users:
    """One KTable with two tasks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.committer = TableCommitter(root, "app", "q", [USERS])
        self.committer.open(1)
        self.tasks = [TaskTables(root, [USERS], None, stage=0, task=task) for task in range(2)]
        self.batch_id = -1

    def batch(self, *changes: tuple[int, str, str | None]) -> None:
        self.batch_id += 1
        for tables in self.tasks:
            tables.begin(self.batch_id)
        for task, key, value in changes:
            self.tasks[task].rows("users").add((key, value, 1000, Coordinates("users", task, 0)))
        self.committer.commit(self.batch_id, [write for tables in self.tasks for write in tables.finish()])

    def snapshot(self) -> dict[str, str]:
        with opened(self.root) as connection:
            rows = query(connection, "select key, value from users")
        assert len(dict(rows)) == len(rows)
        return dict(rows)


def test_the_last_update_in_the_order_of_rows_wins_and_deletes_drop_the_key(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"), (0, "a", "2"), (1, "b", "1"), (0, "c", "1"))
    users.batch((0, "a", "3"), (0, "a", "4"), (0, "c", None))

    users.committer.refresh_snapshots(force=True)

    assert users.snapshot() == {"a": "4", "b": "1"}


def test_a_key_may_come_back(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"))
    users.committer.refresh_snapshots(force=True)
    users.batch((0, "a", None))
    users.committer.refresh_snapshots(force=True)
    assert users.snapshot() == {}
    users.batch((0, "a", "2"))
    users.committer.refresh_snapshots(force=True)

    assert users.snapshot() == {"a": "2"}


def test_fields_of_a_key_may_have_any_name(tmp_path: Path) -> None:
    sink = DeltaSink(name="n", table="seats", kind=TableKind.CHANGELOG, key=Seat, value=str)
    committer = TableCommitter(tmp_path, "app", "q", [sink])
    committer.open(1)
    rows = TaskTables(tmp_path, [sink], None, stage=0, task=0)
    rows.begin(0)
    for key, value in ((Seat(7, "a", 1), "free"), (Seat(8, "a", 1), "free"), (Seat(7, "a", 1), "taken")):
        rows.rows("seats").add((key, value, 1000, Coordinates("seats", 0, 0)))
    committer.commit(0, rows.finish())

    committer.refresh_snapshots(force=True)

    with opened(tmp_path) as connection:
        found = query(connection, "select number, key_op, number_max, value from seats order by number")
    assert found == [(7, "a", 1, "taken"), (8, "a", 1, "free")]


def test_a_snapshot_says_up_to_which_batch_it_is_right(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"))
    (refreshed,) = users.committer.refresh_snapshots(force=True)
    users.batch((0, "a", "2"))

    info = table(tmp_path, "users")

    assert (refreshed.as_of_batch, refreshed.rows) == (0, 1)
    assert info.batch_id == 0
    assert info.as_of is not None
    assert int(info.as_of.timestamp() * 1000 + 0.5) == refreshed.as_of_ms
    assert table(tmp_path, "users_changelog").batch_id == 1


@dataclass
class Clock:
    """Time passes when the test says so."""

    now_s: float = 1_000.0

    def ticks_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (snapshots, snapshot_rounds):
        monkeypatch.setattr(module, "ticks_s", clock.ticks_s)
    return clock


def renewed(users: Users) -> bool:
    """Whether a snapshot is begun now; it is committed."""
    begun = users.committer.refresh_snapshots()
    users.committer.settle()
    return bool(begun + users.committer.refresh_snapshots())


def test_a_snapshot_follows_the_first_batch_and_then_rests(tmp_path: Path, clock: Clock) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"))
    assert renewed(users)
    users.batch((0, "a", "2"))
    assert not renewed(users)

    clock.now_s += snapshot_rounds.REST_S
    assert renewed(users)
    assert users.snapshot() == {"a": "2"}
    assert users.committer.stale_snapshots == []

    clock.now_s += snapshot_rounds.REST_S
    assert not renewed(users), "nothing has changed"


def test_one_that_is_dear_rests_longer(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    users = Users(tmp_path)
    apply = RangeWriter.apply

    def slow(*arguments: Any) -> Any:
        clock.now_s += 3.0
        return apply(*arguments)

    monkeypatch.setattr(RangeWriter, "apply", slow)
    users.batch((0, "a", "1"))
    assert renewed(users)
    users.batch((0, "a", "2"))
    clock.now_s += 3.0 * snapshot_rounds.REST - 0.1
    assert not renewed(users)
    clock.now_s += 0.1
    assert renewed(users)


def test_a_few_changes_after_many_are_expected_to_be_cheap(tmp_path: Path, clock: Clock, monkeypatch: Any) -> None:
    monkeypatch.setattr(snapshot_files, "RANGE_ROWS", 8)
    users = Users(tmp_path)
    apply = RangeWriter.apply

    def slow(*arguments: Any) -> Any:
        clock.now_s += 30.0
        return apply(*arguments)

    monkeypatch.setattr(RangeWriter, "apply", slow)
    users.batch(*((0, f"k{number:03}", "1") for number in range(60)))
    assert renewed(users)
    users.batch((0, "k001", "2"))

    assert users.committer.snapshot("users").expected_s == pytest.approx(
        30.0 / len(users.committer.tables["users"].log.files)
    )
    users.batch(*((0, f"k{number:03}", "3") for number in range(60)))
    assert users.committer.snapshot("users").expected_s == 30.0


def test_a_restart_does_not_rewrite_what_was_written_before_it(tmp_path: Path, clock: Clock) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"))
    assert renewed(users)
    users.batch((0, "a", "2"))

    again = Users(tmp_path)
    assert not renewed(again)
    clock.now_s += snapshot_rounds.REST_S
    assert renewed(again)
    assert again.snapshot() == {"a": "2"}


def test_nothing_new_is_nothing_to_do(tmp_path: Path) -> None:
    users = Users(tmp_path)
    assert users.committer.refresh_snapshots(force=True) == []
    users.batch((0, "a", "1"))
    users.committer.refresh_snapshots(force=True)

    assert users.committer.refresh_snapshots(force=True) == []
    assert Users(tmp_path).committer.refresh_snapshots(force=True) == []


def test_merging_the_files_of_the_changelog_changes_no_result(tmp_path: Path) -> None:
    users = Users(tmp_path)
    for batch_id in range(70):
        users.batch(*[(key % 2, f"k{key}", f"{batch_id}/{key}") for key in range(batch_id % 5, 40, 3)])
        if batch_id % 9 == 0:
            users.committer.refresh_snapshots(force=True)
    users.committer.refresh_snapshots(force=True)
    users.committer.close()
    files = table(tmp_path, "users_changelog").files

    with opened(tmp_path) as connection:
        latest = query(
            connection, "select key, arg_max(value, batch_id) from users_changelog where op = 'upsert' group by key"
        )
    assert files < 40
    assert users.snapshot() == dict(latest)


def test_batches_that_come_while_a_snapshot_is_made_belong_to_the_next_one(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "1"))
    snapshots_of = users.committer._snapshots["users_changelog"]
    job = snapshots_of._job()
    users.batch((0, "a", "2"), (0, "b", "1"))

    written = snapshots_of._write(job)

    assert (written.job.target, written.changes.rows) == (0, 1)
    users.committer.refresh_snapshots(force=True)
    assert users.snapshot() == {"a": "2", "b": "1"}


def test_an_eager_refresh_takes_any_change_and_waits_for_nothing(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.batch((0, "a", "0"))
    users.committer.refresh_snapshots(force=True)
    users.batch((0, "a", "1"), (1, "b", "1"))
    assert users.committer.stale_snapshots == ["users"]
    assert not renewed(users), "it rests"

    assert users.committer.refresh_snapshots(eager=True) == []
    users.committer.settle()
    (refreshed,) = users.committer.refresh_snapshots(eager=True)

    assert refreshed.rows == 2
    assert users.snapshot() == {"a": "1", "b": "1"}
    assert users.committer.stale_snapshots == []
    assert users.committer.refresh_snapshots(eager=True) == []
