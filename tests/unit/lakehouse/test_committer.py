"""Batches become commits exactly once, whatever fails in between."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import pytest

from deltaworks import clock, faults
from deltaworks.errors import TableError
from deltaworks.lakehouse import checkpoints, layout, log, old_versions
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.retention import Retention
from tests.unit.lakehouse.lake import (
    COUNTS,
    DEAD,
    QUERY,
    SINKS,
    Expected,
    check,
    open_tables,
    run,
    skipped,
    sweep,
    task_tables,
    write_batch,
)

BATCHES = 12
POINTS = (
    "delta.before_parquet",
    "delta.after_parquet",
    "delta.before_commit:orders",
    "delta.after_commit:orders",
    "delta.before_commit:users_changelog",
    "delta.after_commit:users_changelog",
    "delta.before_commit:counts",
    "delta.after_commit:counts",
    "delta.before_pages",
    "delta.before_commit:dead_letters",
    "delta.after_commit:dead_letters",
    "snapshot.before_commit:users",
    "snapshot.after_commit:users",
)


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(None)


def test_tables_hold_what_the_batches_said(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, 30)
    committer.refresh_snapshots(force=True)

    check(tmp_path, expected)


def test_a_restart_between_any_two_batches_changes_nothing(tmp_path: Path) -> None:
    expected = Expected()
    for batch_id in range(BATCHES):
        open_tables(tmp_path).commit(batch_id, write_batch(task_tables(tmp_path), batch_id, expected))
    open_tables(tmp_path).refresh_snapshots(force=True)

    check(tmp_path, expected)


def test_a_batch_committed_twice_counts_once(tmp_path: Path) -> None:
    committer, tables, expected = open_tables(tmp_path), task_tables(tmp_path), Expected()
    for batch_id in range(BATCHES):
        writes = write_batch(tables, batch_id, expected)
        committer.commit(batch_id, writes)
        assert all(commit.skipped for commit in committer.commit(batch_id, writes))
    committer.refresh_snapshots(force=True)

    check(tmp_path, expected)


def test_a_batch_that_is_run_again_after_its_commit_is_skipped_and_its_files_are_gone(tmp_path: Path) -> None:
    _, expected = run(tmp_path, BATCHES)
    before = deepcopy(expected)
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)
    repeated = write_batch(tables, BATCHES, expected)
    committer.commit(BATCHES, repeated)

    again = write_batch(task_tables(tmp_path), BATCHES, before)
    commits = open_tables(tmp_path).commit(BATCHES, again)

    assert skipped(commits) == {write.table for write in again}
    assert not any((tmp_path / write.table / new.path).exists() for write in again for new in write.added)
    open_tables(tmp_path).refresh_snapshots(force=True)
    check(tmp_path, expected)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_of_any_batch_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    expected, crashes = Expected(), 0
    for batch_id in range(BATCHES):
        attempt = deepcopy(expected)
        faults.arm(lambda reached: crash_at(point, reached))
        try:
            one_batch(tmp_path, batch_id, attempt)
        except Crash:
            crashes += 1
            faults.arm(None)
            attempt = deepcopy(expected)
            one_batch(tmp_path, batch_id, attempt)
        expected = attempt
    faults.arm(None)
    open_tables(tmp_path).refresh_snapshots(force=True)

    assert crashes >= BATCHES // 2
    check(tmp_path, expected)


def one_batch(root: Path, batch_id: int, expected: Expected) -> None:
    """What a fresh driver does with one batch."""
    committer = open_tables(root)
    committer.commit(batch_id, write_batch(task_tables(root), batch_id, expected))
    committer.refresh_snapshots(force=True)


def crash_at(point: str, reached: str) -> None:
    if reached == point:
        raise Crash(point)


def test_files_of_attempts_that_were_never_committed_are_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected = run(tmp_path, 3)
    lost = write_batch(task_tables(tmp_path), 3, deepcopy(expected))
    paths = [tmp_path / write.table / new.path for write in lost for new in write.added]
    assert paths
    assert all(path.exists() for path in paths)

    later_ms = clock.wall_ms() + 16 * 60_000  # the clock of an object store may be behind ours
    monkeypatch.setattr(old_versions, "wall_ms", lambda: later_ms)
    again = open_tables(tmp_path)
    sweep(again)

    assert not any(path.exists() for path in paths)
    trashed = [path for write in lost for path in (tmp_path / write.table / layout.TRASH_FOLDER).rglob("*.parquet")]
    assert {path.name for path in trashed} == {path.name for path in paths}
    for name, table in again.tables.items():
        kept = set(table.log.files) | {path for _, path in table.log.tombstones}
        there = {p.relative_to(tmp_path / name).as_posix() for p in (tmp_path / name).rglob("*.parquet")}
        assert {path for path in there if not path.startswith("_trash/")} == kept
    again.refresh_snapshots(force=True)
    check(tmp_path, expected)


def test_files_of_another_query_are_left_alone(tmp_path: Path) -> None:
    run(tmp_path, 2)
    foreign = tmp_path / "orders" / layout.part_name("part", 0, 0, layout.query_tag("another"))
    foreign.write_bytes(b"")

    open_tables(tmp_path)

    assert foreign.exists()


def test_a_batch_without_rows_makes_no_commit(tmp_path: Path) -> None:
    committer = open_tables(tmp_path)
    opened_at = committer.tables["orders"].log.version
    tables = task_tables(tmp_path)
    for table in tables:
        table.begin(0)

    assert committer.commit(0, [write for table in tables for write in table.finish()]) == []
    assert committer.committed_batch("orders") is None
    assert committer.tables["orders"].log.version == opened_at


def test_rows_of_a_batch_that_was_not_finished_are_forgotten(tmp_path: Path) -> None:
    open_tables(tmp_path)
    tables = task_tables(tmp_path)[0]
    tables.begin(0)
    tables.rows("counts").add(("k", 1, 0, 0, 1))
    tables.begin(1)

    assert tables.finish() == []


def test_tasks_refuse_to_write_a_table_that_no_driver_opened(tmp_path: Path) -> None:
    tables = task_tables(tmp_path)[0]
    tables.begin(0)
    tables.rows("counts").add(("k", 1, 0, 0, 1))

    with pytest.raises(TableError, match="was not opened by a driver"):
        tables.finish()


def test_the_names_of_all_points_are_those_that_are_reached(tmp_path: Path) -> None:
    reached: set[str] = set()
    faults.arm(reached.add)

    expected = Expected()
    for batch_id in range(3):
        one_batch(tmp_path, batch_id, expected)

    assert set(POINTS) <= reached


def test_one_committer_knows_only_its_tables(tmp_path: Path) -> None:
    committer = TableCommitter(tmp_path, "shop", "q", [COUNTS])
    committer.open(1)

    assert set(committer.tables) == {"counts"}


def test_checkpoints_are_written_beside_the_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_MIN_ACTIONS", 5)
    committer, expected = run(tmp_path, 20)
    committer.refresh_snapshots(force=True)
    committer.close()

    assert len(list((tmp_path / "counts" / "_delta_log").glob("*.checkpoint.parquet"))) >= 1
    open_tables(tmp_path)
    check(tmp_path, expected)


def test_a_checkpoint_that_fails_is_not_kept_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(table: Path, state: checkpoints.State) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(log, "_CHECKPOINT_MIN_ACTIONS", 1)
    monkeypatch.setattr(checkpoints, "write", fail)
    committer = open_tables(tmp_path)
    expected = Expected()

    with pytest.raises(OSError, match="no space left"):
        for batch_id in range(3):
            committer.commit(batch_id, write_batch(task_tables(tmp_path), batch_id, expected))
            committer.settle()


def test_replaced_files_do_not_pile_up(tmp_path: Path) -> None:
    options = TableOptions(retention=Retention.only(timedelta(0)))
    committer = TableCommitter(tmp_path, "shop", QUERY, SINKS, DEAD, options=options)
    committer.open(1)
    tables, expected = task_tables(tmp_path), Expected()
    for batch_id in range(40):
        last = write_batch(tables, batch_id, expected)
        committer.commit(batch_id, last)
    committer.refresh_snapshots(force=True)

    sweep(committer)
    on_disk = len(list((tmp_path / "counts").rglob("*.parquet")))
    active = len(committer.tables["counts"].log.files)
    replaced = sum(len(write.removed) for write in last)
    assert active <= on_disk <= active + replaced
    check(tmp_path, expected)
