"""Readers see all tables of a pipeline as of one batch, whatever the driver is doing."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deltaworks import clock, faults, tables
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import cuts, log
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.lakehouse.log import Commit
from deltaworks.settings import Settings
from tests.unit.lakehouse.lake import Expected, check, open_tables, task_tables, write_batch

PIPELINE = "shop"
START = datetime(2026, 3, 1, 11, 59, tzinfo=UTC)


def seen(root: Path) -> Cut:
    cut = cuts.latest(root, PIPELINE)
    assert cut is not None
    return cut


def tables_of(root: Path) -> tables.Tables:
    return tables.open(PIPELINE, settings=replace(Settings.from_environment(), home=root.parent))


@pytest.mark.parametrize("seed", range(6))
def test_a_reader_at_any_moment_sees_one_batch_in_all_tables(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    committer, expected = open_tables(tmp_path), Expected()
    history = {-1: deepcopy(expected)}
    behind, shown = [], -1
    for batch in range(25):
        writes = write_batch(task_tables(tmp_path), batch, expected)
        history[batch] = deepcopy(expected)
        for name in committer.tables:
            committer.commit(batch, [write for write in writes if write.table == name])
            if cuts.latest(tmp_path, PIPELINE) is not None and choose.random() < 0.3:
                check(tmp_path, history[seen(tmp_path).batch_id])
        committer.refresh_snapshots(force=choose.random() < 0.2, eager=choose.random() < 0.5)
        committer.publish_cut()
        if choose.random() < 0.2:
            committer.settle()
        if choose.random() < 0.2:
            committer = restarted(tmp_path, batch)
        if cuts.latest(tmp_path, PIPELINE) is None:
            continue
        assert seen(tmp_path).batch_id >= shown
        shown = seen(tmp_path).batch_id
        behind.append(batch - seen(tmp_path).batch_id)
        check(tmp_path, history[seen(tmp_path).batch_id])

    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    assert seen(tmp_path).batch_id == 24
    check(tmp_path, expected)
    assert {0} < set(behind), "snapshots were behind in between"


def test_a_cut_does_not_go_back_when_a_quiet_ktable_changes_again(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    for batch in (5, 6):
        writes = write_batch(task_tables(tmp_path), batch, expected)
        committer.commit(batch, [write for write in writes if batch == 6 or write.table != "users_changelog"])
        committer.refresh_snapshots()
        committer.publish_cut()

        assert (seen(tmp_path).batch_id, bool(committer.stale_snapshots)) == (5, batch == 6)


def restarted(root: Path, last: int) -> TableCommitter:
    committer = open_tables(root)
    committer.settled(last)
    return committer


def test_a_driver_that_finds_half_a_batch_says_nothing_before_it_is_whole(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    before = deepcopy(expected)
    writes = write_batch(task_tables(tmp_path), 5, expected)
    committer.commit(5, [write for write in writes if write.table == "orders"])

    committer = restarted(tmp_path, 4)
    assert committer.publish_cut() is None
    check(tmp_path, before)

    committer.commit(5, write_batch(task_tables(tmp_path), 5, before))
    committer.refresh_snapshots(force=True)
    assert committer.publish_cut() == seen(tmp_path)
    check(tmp_path, expected)


def test_a_round_that_began_beside_half_a_batch_stands_for_nothing(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    before = deepcopy(expected)
    writes = write_batch(task_tables(tmp_path), 5, expected)
    committer.commit(5, [write for write in writes if write.table in ("orders", "users_changelog")])

    committer = restarted(tmp_path, 4)
    committer.refresh_snapshots(eager=True)
    committer.settle()
    again = deepcopy(before)
    committer.commit(5, write_batch(task_tables(tmp_path), 5, again))
    committer.commit(6, write_batch(task_tables(tmp_path), 6, again))
    assert [done.as_of_batch for done in committer.refresh_snapshots()] == [5]

    assert committer.publish_cut() is None
    check(tmp_path, before)


def test_a_batch_that_fails_between_two_tables_is_in_no_cut(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    before = deepcopy(expected)
    writes = write_batch(task_tables(tmp_path), 5, expected)

    def fail(point: str) -> None:
        if point == "delta.before_commit:counts":
            raise OSError("no space left")

    faults.arm(fail)
    try:
        with pytest.raises(OSError, match="no space left"):
            committer.commit(5, writes)
    finally:
        faults.arm(None)
    committer.refresh_snapshots(force=True)

    assert committer.publish_cut() is None
    check(tmp_path, before)


def whole(root: Path, batches: int) -> tuple[TableCommitter, Expected]:
    """Tables without anything that is still to be done."""
    committer, expected = open_tables(root), Expected()
    for batch in range(batches):
        committer.commit(batch, write_batch(task_tables(root), batch, expected))
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    return committer, expected


def test_a_change_of_history_is_seen_in_all_tables_at_once(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    before = deepcopy(expected)
    committer.commit(5, write_batch(task_tables(tmp_path), 5, expected))
    committer.refresh_snapshots(eager=True)  # begins
    committer.settle()

    for table in ("orders", "users_changelog"):
        files = list(committer.tables[table].log.files)
        committer.replace(table, Commit(removed=files, operation="DELETE"))
        check(tmp_path, before)
    committer.refresh_snapshots(eager=True)  # what had begun is obsolete
    assert committer.publish_cut() is None
    check(tmp_path, before)

    committer.refresh_snapshots(force=True)
    assert committer.publish_cut() == seen(tmp_path)
    expected.orders, expected.changes = [], 0
    expected.users = before.users
    check(tmp_path, expected)


def test_a_snapshot_that_was_replaced_is_not_mixed_with_tables_of_before(tmp_path: Path) -> None:
    committer, expected = whole(tmp_path, 5)
    before = deepcopy(expected)
    committer.commit(5, write_batch(task_tables(tmp_path), 5, expected))
    assert committer.stale_snapshots == ["users"]

    for table in ("users_changelog", "users"):
        committer.replace(table, Commit(removed=list(committer.tables[table].log.files), operation="DELETE"))

    assert committer.publish_cut() is None
    check(tmp_path, before)


def test_nothing_is_written_when_nothing_has_happened(tmp_path: Path) -> None:
    committer, _ = whole(tmp_path, 3)

    assert committer.publish_cut() is None
    committer.commit(3, [])
    assert committer.publish_cut() == seen(tmp_path)
    assert seen(tmp_path).batch_id == 3


def test_files_of_the_newest_cut_stay_however_old_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, expected = whole(tmp_path, 5)
    before, later = deepcopy(expected), clock.wall_ms() + 24 * 3_600_000
    monkeypatch.setattr("deltaworks.lakehouse.housekeeping.cautious_ms", lambda: later)
    monkeypatch.setattr(log, "_CHECKPOINT_MAX_COMMITS", 1)
    for batch in range(5, 12):  # snapshots rest, so there is no newer cut
        committer.commit(batch, write_batch(task_tables(tmp_path), batch, expected))
        committer.publish_cut()
        committer.settle()
    assert len(list(tmp_path.glob("orders/_delta_log/*.checkpoint.parquet"))) > 3

    assert seen(tmp_path).batch_id == 4
    check(tmp_path, before)


def test_tables_that_were_made_anew_are_not_those_of_the_cut(tmp_path: Path) -> None:
    whole(tmp_path / "tables", 3)
    anew = TableCommitter(tmp_path / "other", PIPELINE, "another-query", ())
    root, old = tmp_path / "tables", tables_of(tmp_path / "tables")
    assert anew.publish_cut() is None
    (root / "counts").rename(tmp_path / "gone")
    (root / "counts").symlink_to(tmp_path / "gone")
    assert old["counts"].version == seen(root).tables["counts"]

    cuts.CutWriter(root, PIPELINE).write(cut(START, query="another-query", **seen(root).tables))

    with pytest.raises(ConfigurationError, match="'counts' is not the one of batch 7 any more"):
        tables_of(root)["counts"]


def cut(at: datetime, query: str = "q", **versions: int) -> Cut:
    at_ms = int(at.timestamp() * 1000)
    return Cut(pipeline=PIPELINE, query=query, batch_id=7, at_ms=at_ms, tables=versions)


def test_the_cut_of_a_time_is_the_last_one_before_it(tmp_path: Path) -> None:
    writer = CutWriter(tmp_path, PIPELINE)
    for minute in range(0, 300, 10):
        writer.write(cut(START + timedelta(minutes=minute), counts=minute))
    with (cuts.folder(tmp_path, PIPELINE) / "2026-03-01T16.jsonl").open("ab") as file:
        file.write(b'{"format":1,"pipe')  # a crash

    def version(minutes: float) -> int | None:
        found = cuts.as_of(tmp_path, PIPELINE, START + timedelta(minutes=minutes))
        return None if found is None else found.tables["counts"]

    assert [version(minutes) for minutes in (290, 289.9, 1_000, 241, 235)] == [290, 280, 290, 240, 230]
    assert version(-1) is None
    assert cuts.first(tmp_path, PIPELINE) == cut(START, counts=0)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format":2}', b'{"format":1}', b"\xff\xfe"])
def test_a_cut_that_cannot_be_read_is_none(tmp_path: Path, damage: bytes) -> None:
    _, expected = whole(tmp_path, 3)
    (cuts.folder(tmp_path, PIPELINE) / "latest.json").write_bytes(damage)

    assert cuts.latest(tmp_path, PIPELINE) is None
    check(tmp_path, expected)


def test_programs_open_the_tables_by_name(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    committer, expected = whole(root, 4)
    committer.commit(4, write_batch(task_tables(root), 4, deepcopy(expected)))

    shop = tables_of(root)

    assert list(shop) == ["counts", "dead_letters", "orders", "users", "users_changelog"]
    assert (shop.pipeline, shop.batch_id) == (PIPELINE, 3)
    assert shop["orders"].rows.count_rows() == len(expected.orders)
    assert shop["orders"].path == root / "orders"
    assert "as of batch 3" in repr(shop)
    with pytest.raises(ConfigurationError, match="has no table 'order'"):
        shop["order"]


def test_a_pipeline_or_a_time_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    settings = replace(Settings.from_environment(), home=tmp_path)
    with pytest.raises(ConfigurationError) as raised:
        tables.open(PIPELINE, settings=settings)
    assert raised.value.hint == "pipelines with tables: none yet"

    whole(root, 2)
    with pytest.raises(ConfigurationError, match="'stop' are not known") as raised:
        tables.open("stop", settings=settings)
    assert raised.value.hint == "pipelines with tables: shop"
    with pytest.raises(ConfigurationError, match="at 2020-01-01 00:00:00") as raised:
        tables.open(PIPELINE, "2020-01-01", settings=settings)
    assert str(raised.value.hint).startswith(f"they are known since {seen(root).at:%Y-%m-%d}")
    with pytest.raises(ConfigurationError, match="There is no pin 'yesterday'"):
        tables.open(PIPELINE, "yesterday", settings=settings)
    assert tables.open(PIPELINE, datetime.now(UTC), settings=settings).batch_id == 1
