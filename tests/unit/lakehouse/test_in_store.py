"""The essential rules of tables hold in an object store.

All tests of this folder run there with DELTAWORKS_TESTS_TABLES=s3, which takes long.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import pytest

from deltaworks import clock
from deltaworks.errors import FencedError
from deltaworks.lakehouse import layout, old_versions
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.retention import Retention
from deltaworks.object_path import ObjectPath
from tests.unit.lakehouse import publication_lake
from tests.unit.lakehouse.crashes import Crash, crash_at
from tests.unit.lakehouse.lake import (
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
from tests.unit.lakehouse.publication_lake import Stream, contents, request_for
from tests.unit.lakehouse.test_pages import Windows, hour, many


def test_tables_hold_what_the_batches_said_and_none_of_it_is_on_this_machine(
    in_store: ObjectPath, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    committer, expected = run(in_store, 5)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    committer.close()

    check(in_store, expected)
    found = [path for path in here.rglob("*") if path.is_file()]
    assert found
    assert all(layout.CONTROL_FOLDER in path.parts for path in found), "what every start makes anew, for its tasks"
    assert {path.name for path in in_store.iterdir()} == {"_cuts", *committer.tables}


@pytest.mark.parametrize("point", ["delta.after_commit:users_changelog", "delta.before_commit:counts"])
def test_a_crash_between_the_commits_of_two_tables_is_repeated_exactly(in_store: ObjectPath, point: str) -> None:
    committer, expected = run(in_store, 3)
    batch_id = 3
    crashed = deepcopy(expected)
    crash_at(point)
    with pytest.raises(Crash):
        committer.commit(batch_id, write_batch(task_tables(in_store), batch_id, crashed))
    committer._threads.shutdown()  # a thread of a dead process commits no more; one of a test would
    committer.settle()

    again = open_tables(in_store)
    repeated = again.commit(batch_id, write_batch(task_tables(in_store), batch_id, expected))
    again.refresh_snapshots(force=True)

    assert "orders" in skipped(repeated)
    assert "counts" not in skipped(repeated) or point != "delta.before_commit:counts"
    check(in_store, expected)


def test_a_batch_that_is_run_again_after_its_commit_counts_once(in_store: ObjectPath) -> None:
    expected = Expected()
    for batch_id in range(3):
        before = deepcopy(expected)
        open_tables(in_store).commit(batch_id, write_batch(task_tables(in_store), batch_id, expected))
        again = write_batch(task_tables(in_store), batch_id, before)
        assert skipped(open_tables(in_store).commit(batch_id, again)) == {write.table for write in again}
        assert not any((in_store / write.table / new.path).exists() for write in again for new in write.added)
    open_tables(in_store).refresh_snapshots(force=True)

    check(in_store, expected)


def test_an_older_generation_cannot_commit(in_store: ObjectPath) -> None:
    zombie, expected = open_tables(in_store, generation=1), Expected()
    zombie.commit(0, write_batch(task_tables(in_store), 0, expected))
    written_before = write_batch(task_tables(in_store), 1, deepcopy(expected))

    newer = open_tables(in_store, generation=2)

    with pytest.raises(FencedError, match=r"Generation 1 .* generation 2 has taken over"):
        zombie.commit(1, written_before)
    with pytest.raises(FencedError, match="generation 2 has taken over"):
        open_tables(in_store, generation=1)
    newer.commit(1, write_batch(task_tables(in_store), 1, expected))
    newer.refresh_snapshots(force=True)
    check(in_store, expected)


def test_a_batch_rewrites_only_the_pages_of_windows_that_it_touches(in_store: ObjectPath) -> None:
    windows = Windows(in_store)
    windows.batch(*many(40, 0), *many(40, 1))
    before = set(windows.pages())

    windows.batch(("k00000", *hour(0), 2), close=hour(0)[0])

    kept = before & set(windows.pages())
    assert len(before) > 4
    assert len(kept) == len(before) - 1
    assert windows.rows("key, value, is_final")[0] == ("k00000", 1, False)
    assert len(windows.rows()) == 80
    windows.batch(close=hour(3)[0])
    assert {final for _, final in windows.rows("key, is_final")} == {True}


def test_a_publication_replaces_what_the_stream_had_written_and_its_rollback_brings_it_back(
    in_store: ObjectPath, here: Path
) -> None:
    live = Stream(in_store / "live")
    live.run(5)
    live.committer.settle()
    staging = live.replay(in_store / "staging", "run-1", 1)
    live.committer.refresh_snapshots(force=True)
    before, old = contents(live.root), deepcopy(live.rows)

    publication_lake.publish(live, staging, request_for(staging, days=(0, 1)), here / "publications")
    publication_lake.check(live)
    assert contents(live.root) != before

    for table in live.committer.tables.values():
        table.log.expire(1 << 60)  # what the publication has removed is kept elsewhere
    done = publication.rollback(live.committer, here / "publications", "run-1")
    live.rows = old

    assert done.state == "rolled back"
    assert contents(live.root) == before
    live.run(1)
    publication_lake.check(live)


def test_old_versions_and_strays_are_cleaned_up(in_store: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    options = TableOptions(retention=Retention.only(timedelta(0)))
    committer = TableCommitter(in_store, "shop", QUERY, SINKS, DEAD, options=options)
    committer.open(1)
    tables, expected = task_tables(in_store), Expected()
    for batch_id in range(6):
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
    committer.close()
    lost = write_batch(task_tables(in_store), 6, deepcopy(expected))
    strays = [in_store / write.table / new.path for write in lost for new in write.added]

    too_early = TableCommitter(in_store, "shop", QUERY, SINKS, DEAD, options=options)
    too_early.open(1)
    sweep(too_early)
    assert all(path.exists() for path in strays), "the clock of the store may be behind ours"
    too_early.close()

    later_ms = clock.wall_ms() + 16 * 60_000
    monkeypatch.setattr(old_versions, "wall_ms", lambda: later_ms)
    again = TableCommitter(in_store, "shop", QUERY, SINKS, DEAD, options=options)
    again.open(1)
    sweep(again)

    for name, table in again.tables.items():
        there = {path.relative_to(in_store / name).as_posix() for path in (in_store / name).rglob("*.parquet")}
        kept = {path for path in there if not path.startswith("_")}
        assert kept == set(table.log.files) | {path for _, path in table.log.tombstones}
        trashed = {path.name for path in (in_store / name / layout.TRASH_FOLDER).rglob("*.parquet")}
        assert trashed == {path.name for path in strays if path.is_relative_to(in_store / name)}
        table.housekeeping._trash.expire(2 * later_ms)
        assert not (in_store / name / layout.TRASH_FOLDER).exists()
    again.refresh_snapshots(force=True)
    check(in_store, expected)
