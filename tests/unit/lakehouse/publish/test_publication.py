"""What a replay has computed replaces what the stream had written, exactly, and can be taken back."""

from __future__ import annotations

import errno
import json
import shutil
import time
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from deltaworks import faults, files
from deltaworks.errors import FencedError, TableError
from deltaworks.lakehouse import checkpoints, compaction, parquet, row_origins
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.log import Commit
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.retention import Retention
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.crashes import Crash, crash_at
from tests.unit.lakehouse.lake import sweep
from tests.unit.lakehouse.publication_lake import (
    DAY_MS,
    DEAD,
    FIRST_MS,
    HOUR_MS,
    TABLES,
    Stream,
    check,
    contents,
    expected,
    publish,
    request_for,
)

DAYS = (0, 3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stream, Stream]:
    """A stream of 13 batches and a replay of them; nobody changes these."""
    live = Stream(tmp_path_factory.mktemp("live") / "tables")
    live.run(13)
    live.committer.settle()
    live.committer.refresh_snapshots()  # a copy of one that has begun would have files that no table knows
    return live, live.replay(tmp_path_factory.mktemp("staging") / "tables", "run-1", 1)


@pytest.fixture
def live(tmp_path: Path, base: tuple[Stream, Stream]) -> Stream:
    return base[0].copy(tmp_path / "tables")


@pytest.fixture
def staging(base: tuple[Stream, Stream]) -> Stream:
    return base[1]


@pytest.fixture
def publications(tmp_path: Path) -> Path:
    return tmp_path / "publications"


def files_of(stream: Stream) -> dict[str, set[str]]:
    """The files of every table."""
    return {name: set(table.log.files) for name, table in stream.committer.tables.items()}


def assert_no_stray_files(stream: Stream, *, is_new: bool = True) -> None:
    """A driver that starts leaves no file that no table knows."""
    if is_new:
        stream.restart()
        sweep(stream.committer)
    stream.committer.refresh_snapshots(force=True)  # one that has begun has files that no table knows yet
    for name, table in stream.committer.tables.items():
        known = set(table.log.files) | {path for _, path in table.log.tombstones}
        found = {file.relative_to(table.log.path).as_posix() for file in table.log.path.rglob("*.parquet")}
        assert {path for path in found if not path.startswith("_")} == known, name


def test_the_tables_are_right_before_anything_is_published(tmp_path: Path, live: Stream, staging: Stream) -> None:
    check(live)
    check(staging.copy(tmp_path / "copy"))


def test_a_publish_replaces_the_days_and_the_stream_goes_on(publications: Path, live: Stream, staging: Stream) -> None:
    live.run(2)

    done = publish(live, staging, request_for(staging, days=DAYS), publications)

    assert done.state == "published"
    assert all(told.version_after == told.version_before + 1 for told in done.tables.values())
    check(live)
    live.run(5)
    check(live)
    live.restart()
    check(live)


def test_a_rollback_brings_back_every_row(publications: Path, live: Stream, staging: Stream) -> None:
    live.committer.refresh_snapshots(force=True)
    before, old, files = contents(live.root), live.rows, files_of(live)
    publication.publish(live.committer, staging.root, request_for(staging, days=DAYS), publications)
    assert contents(live.root) != before

    done = publication.rollback(live.committer, publications, "run-1")

    assert done.state == "rolled back"
    assert contents(live.root) == before
    assert {name: paths for name, paths in files_of(live).items() if name != "users"} == {
        name: paths for name, paths in files.items() if name != "users"
    }
    live.rows = old
    live.run(3)
    check(live)


def test_tables_that_were_not_asked_for_stay_as_they_are(publications: Path, live: Stream, staging: Stream) -> None:
    before = files_of(live)

    done = publish(live, staging, request_for(staging, days=DAYS, tables=("orders",)), publications)

    after = files_of(live)
    assert set(done.tables) == {"orders"}
    assert {name for name in before if before[name] != after[name]} == {"orders"}
    check(live)


def test_a_changelog_brings_its_snapshot_along(publications: Path, live: Stream, staging: Stream) -> None:
    done = publish(live, staging, request_for(staging, tables=("users",)), publications)

    assert list(done.tables) == ["users", "users_changelog"]
    check(live)


PUBLISH_POINTS = [
    "publish.before_record",
    "publish.after_record",
    "publish.between_tables",
    "publish.after_commits",
    *(f"publish.{side}_commit:{name}" for side in ("before", "after") for name in TABLES),
]
ROLLBACK_POINTS = [point.replace("publish", "rollback") for point in PUBLISH_POINTS]


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after more batches"])
@pytest.mark.parametrize("point", PUBLISH_POINTS)
def test_a_publish_that_crashed_is_completed_by_the_same_call(
    publications: Path, live: Stream, staging: Stream, point: str, goes_on: bool
) -> None:
    request = request_for(staging, days=DAYS)
    crash_at(point)
    with pytest.raises(Crash):
        publication.publish(live.committer, staging.root, request, publications)
    live.restart()
    if goes_on:
        live.run(2)

    publish(live, staging, request, publications)

    live.run(1)
    check(live)
    again = publication.publish(live.committer, staging.root, request, publications)
    assert again.state == "published"
    assert again.round == 1
    check(live)
    assert_no_stray_files(live)
    rolled_back = publication.rollback(live.committer, publications, "run-1")
    assert all(told.rolled_back_version is not None for told in rolled_back.tables.values())
    live.rows = deepcopy(live.written)
    check(live)


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after more batches"])
@pytest.mark.parametrize("point", ROLLBACK_POINTS)
def test_a_rollback_that_crashed_is_completed_by_the_same_call(
    publications: Path, live: Stream, staging: Stream, point: str, goes_on: bool
) -> None:
    publication.publish(live.committer, staging.root, request_for(staging, days=DAYS), publications)
    live.run(1)
    crash_at(point)
    with pytest.raises(Crash):
        publication.rollback(live.committer, publications, "run-1")
    live.restart()
    if goes_on:
        live.run(2)

    done = publication.rollback(live.committer, publications, "run-1")

    assert done.state == "rolled back"
    live.run(1)
    check(live)
    assert publication.rollback(live.committer, publications, "run-1") == done
    check(live)
    assert_no_stray_files(live)


def test_a_publish_that_crashed_can_be_taken_back_instead(publications: Path, live: Stream, staging: Stream) -> None:
    crash_at("publish.after_commit:users")
    with pytest.raises(Crash):
        publication.publish(live.committer, staging.root, request_for(staging, days=DAYS), publications)
    live.restart()
    live.run(2)

    done = publication.rollback(live.committer, publications, "run-1")

    assert [name for name, told in done.tables.items() if told.rolled_back_version is not None] == ["users"]
    check(live)


def test_an_attempt_that_failed_leaves_no_files_when_it_is_repeated(
    publications: Path, live: Stream, staging: Stream
) -> None:
    request = request_for(staging, days=DAYS)
    crash_at("publish.after_record")
    with pytest.raises(Crash):
        publication.publish(live.committer, staging.root, request, publications)

    publish(live, staging, request, publications)

    assert_no_stray_files(live, is_new=False)
    for table in live.committer.tables.values():
        assert len(list((table.log.path / "_retained").iterdir())) == 1


def test_the_names_of_all_points_are_those_that_are_reached(publications: Path, live: Stream, staging: Stream) -> None:
    reached: list[str] = []
    faults.arm(reached.append)

    publication.publish(live.committer, staging.root, request_for(staging, days=DAYS), publications)
    publication.rollback(live.committer, publications, "run-1")

    assert {point for point in reached if point.startswith(("publish.", "rollback."))} == {
        *PUBLISH_POINTS,
        *ROLLBACK_POINTS,
    }


def test_the_commit_says_what_was_published_and_why(publications: Path, live: Stream, staging: Stream) -> None:
    done = publication.publish(
        live.committer, staging.root, request_for(staging, days=DAYS, reason="tax"), publications
    )

    log = live.committer.tables["orders"].log
    entry = DeltaTable(log.path).history(1)[0]
    said = json.loads(entry["userMetadata"])
    assert entry["version"] == done.tables["orders"].version_after
    assert (entry["operation"], entry["operationParameters"]["run"]) == ("PUBLISH", "run-1")
    assert (said["codeVersion"], said["batches"], said["reason"]) == ("abc", [0, 12], "tax")
    assert said["endOffsets"] == {"raw": {"0": 13000, "1": 13000}}
    assert log.transaction_version("shop/orders/publication/run-1") == 1


def test_readers_see_the_old_rows_or_the_new_ones(publications: Path, live: Stream, staging: Stream) -> None:
    before = {name: DeltaTable(live.root / name).version() for name in TABLES}
    rows = {name: DeltaTable(live.root / name).to_pyarrow_dataset() for name in TABLES}
    old = {name: dataset.count_rows() for name, dataset in rows.items()}

    done = publish(live, staging, request_for(staging, days=DAYS), publications)

    for name in TABLES:
        assert DeltaTable(live.root / name).version() == before[name] + 1 == done.tables[name].version_after
        assert DeltaTable(live.root / name, version=before[name]).to_pyarrow_dataset().to_table().num_rows == old[name]
        assert rows[name].to_table().num_rows == old[name], "a reader that had begun goes on with the old files"
    assert contents(live.root) == expected(live.rows) | {"users": contents(live.root)["users"]}


def test_the_staging_tables_are_not_needed_any_more(
    tmp_path: Path, publications: Path, live: Stream, staging: Stream
) -> None:
    copy = staging.copy(tmp_path / "copy")
    request = request_for(copy, days=DAYS)
    publish(live, copy, request, publications)
    shutil.rmtree(copy.root)

    assert publication.publish(live.committer, copy.root, request, publications).state == "published"
    live.run(2)
    check(live)


@pytest.mark.parametrize("table", ["orders", "counts"])
def test_rows_that_somebody_else_has_compacted_are_not_published_over(
    live: Stream, staging: Stream, publications: Path, table: str
) -> None:
    """Which batches they are of, only our files say."""
    path = live.root / table
    filters = [("window_date", "=", "2024-10-04")] if table == "counts" else None
    assert DeltaTable(path).optimize.compact(partition_filters=filters)["numFilesAdded"]
    live.committer.replace(table, Commit())
    before = files_of(live)

    with pytest.raises(TableError, match=f"of table '{table}' was written by somebody else"):
        publish(live, staging, request_for(staging, days=(0, 2), tables=(table,)), publications)

    assert files_of(live) == before


def test_on_another_disk_files_are_copied(live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_disk(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.link", other_disk)
    entry = live.committer.tables["orders"]
    path = next(iter(staging.committer.tables["orders"].log.files))

    files.link(staging.root / "orders" / path, entry.log.path / "copied")

    assert (entry.log.path / "copied").read_bytes() == (staging.root / "orders" / path).read_bytes()
    assert (entry.log.path / "copied").stat().st_nlink == 1


def test_published_again_after_a_rollback(publications: Path, live: Stream, staging: Stream) -> None:
    request = request_for(staging, days=DAYS)
    publish(live, staging, request, publications)
    publication.rollback(live.committer, publications, "run-1")
    live.rows = deepcopy(live.written)
    live.run(2)

    done = publish(live, staging, request, publications)

    assert done.round == 2
    live.run(1)
    check(live)
    publication.rollback(live.committer, publications, "run-1")
    live.rows = deepcopy(live.written)
    check(live)


def test_a_later_publication_has_to_go_first(tmp_path: Path, publications: Path, live: Stream, staging: Stream) -> None:
    publish(live, staging, request_for(staging, days=(0, 2)), publications)
    live.run(3)
    after_first = deepcopy(live.rows)
    second = live.replay(tmp_path / "second", "run-2", 2)
    publish(live, second, request_for(second, days=(1, 4)), publications)
    check(live)

    with pytest.raises(TableError, match=r"Run run-2 has replaced some of what run run-1 published in table"):
        publication.rollback(live.committer, publications, "run-1")
    check(live)

    publication.rollback(live.committer, publications, "run-2")
    live.rows = after_first
    check(live)
    publication.rollback(live.committer, publications, "run-1")
    live.rows = deepcopy(live.written)
    check(live)


def test_publications_of_other_days_do_not_stand_in_each_others_way(
    tmp_path: Path, publications: Path, live: Stream, staging: Stream
) -> None:
    publish(live, staging, request_for(staging, days=(0, 1), tables=("counts",)), publications)
    second = live.replay(tmp_path / "second", "run-2", 2)
    publish(live, second, request_for(second, days=(1, 3), tables=("counts",)), publications)

    publication.rollback(live.committer, publications, "run-1")

    live.rows = live.rows.replaced(live.written, ("counts",), FIRST_MS, FIRST_MS + DAY_MS, 12)
    check(live)


def test_a_later_publication_of_other_rows_in_the_same_files_has_to_go_first(
    tmp_path: Path, publications: Path, live: Stream, staging: Stream
) -> None:
    publish(live, staging, request_for(staging, days=(0, 1), tables=("orders",)), publications)
    second = live.replay(tmp_path / "second", "run-2", 2)
    publish(live, second, request_for(second, days=(1, 3), tables=("orders",)), publications)
    check(live)

    with pytest.raises(TableError, match=r"Run run-2 has replaced some of what run run-1 published"):
        publication.rollback(live.committer, publications, "run-1")


def test_a_snapshot_that_is_being_written_does_not_bring_old_rows_back(
    publications: Path, live: Stream, staging: Stream
) -> None:
    for is_published in (True, False):
        live.batch()
        live.committer.refresh_snapshots(eager=True)
        live.committer.settle()
        if is_published:
            publish(live, staging, request_for(staging, tables=("users",)), publications)
        else:
            publication.rollback(live.committer, publications, "run-1")
            live.rows = deepcopy(live.written)
        written = set(live.committer.tables["users"].log.files)
        assert live.committer.refresh_snapshots() == []
        assert set(live.committer.tables["users"].log.files) == written
        check(live)
        live.run(1)
        check(live)


def test_small_files_that_are_being_merged_do_not_come_back(
    publications: Path, live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_FAN_IN", (6, 8, 8))
    live.restart()
    live.batch()  # begins to merge
    live.committer.settle()
    assert any("merged-" in file.name for file in (live.root / "orders").glob("*.parquet"))

    publish(live, staging, request_for(staging, days=DAYS), publications)

    live.run(6)
    check(live)
    merged = [path for path in live.committer.tables["orders"].log.files if path.startswith("merged-")]
    assert merged, "the stream goes on merging"
    publication.rollback(live.committer, publications, "run-1")
    live.rows = deepcopy(live.written)
    live.run(2)
    check(live)


def test_what_was_replaced_is_kept_whatever_is_cleaned_up(tmp_path: Path, publications: Path, staging: Stream) -> None:
    live = Stream(tmp_path / "tables", options=TableOptions(retention=Retention.only(timedelta(0))))
    live.run(13)
    publish(live, staging, request_for(staging, days=DAYS), publications)
    live.run(3)
    for table in live.committer.tables.values():
        checkpoints.write(table.log.path, table.log.state())
    live.restart()
    live.run(1)
    sweep(live.committer)
    removed = [file.path for file in read_record(publications).files["orders"].removed]
    assert not any((live.root / "orders" / path).exists() for path in removed)

    publication.rollback(live.committer, publications, "run-1")

    live.rows = deepcopy(live.written)
    live.run(1)
    check(live)
    assert not list((live.root / "orders" / "_retained").iterdir())


def test_a_publication_can_be_rolled_back_as_long_as_it_is_kept(
    tmp_path: Path, publications: Path, staging: Stream
) -> None:
    live = Stream(tmp_path / "tables", options=TableOptions(keep_retained_ms=3_600_000))
    live.run(13)
    live.committer.refresh_snapshots(force=True)
    publish(live, staging, request_for(staging, days=DAYS), publications)
    folders = [live.root / name / "_retained" for name in TABLES]
    assert all(len(list(folder.iterdir())) == 1 for folder in folders)
    for table in live.committer.tables.values():
        table.kept.expire(time.time_ns() // 1_000_000 + 3_500_000)
    assert all(len(list(folder.iterdir())) == 1 for folder in folders)

    for table in live.committer.tables.values():
        table.kept.expire(time.time_ns() // 1_000_000 + 3_700_000)

    assert not any(list(folder.iterdir()) for folder in folders)
    with pytest.raises(TableError, match="cannot be rolled back any more"):
        publication.rollback(live.committer, publications, "run-1")
    check(live)


def test_an_older_generation_publishes_nothing(publications: Path, live: Stream, staging: Stream) -> None:
    zombie = live.committer
    live.restart()
    before = files_of(live)

    with pytest.raises(FencedError):
        publication.publish(zombie, staging.root, request_for(staging, days=DAYS), publications)

    live.restart()
    assert files_of(live) == before


def test_the_history_of_a_table_says_who_has_approved_and_who_completes_it_may_be_another(
    publications: Path, live: Stream, staging: Stream
) -> None:
    request = replace(request_for(staging, days=DAYS, tables=("counts",)), approved_by="airflow ada")

    publish(live, staging, request, publications)

    [said] = [commit for commit in DeltaTable(live.root / "counts").history() if commit["operation"] == "PUBLISH"]
    assert json.loads(said["userMetadata"])["approvedBy"] == "airflow ada"
    again = publication.publish(live.committer, staging.root, replace(request, approved_by="bob at here"), publications)
    assert (again.state, again.round, again.request.approved_by) == ("published", 1, "airflow ada")


def test_what_cannot_be_published_is_refused_and_changes_nothing(
    tmp_path: Path, publications: Path, live: Stream, staging: Stream
) -> None:
    good = request_for(staging, days=DAYS)
    other = request_for(staging, days=(0, 1))
    cases = [
        (replace(good, pipeline="taxi"), r"a replay of 'taxi', not of 'shop'"),
        (replace(good, tables=("orders", "nothing")), r"'shop' writes no table nothing"),
        (replace(good, run_id="run-9"), r"'users' below .* is that of run run-1, not of run run-9"),
        (replace(good, batches=(0, 11)), r"holds batch 12, but batches up to 11"),
        (replace(good, from_ms=1), r"1970-01-01T00:00:00.001\+00:00 is not the beginning of a UTC day"),
        (replace(good, from_ms=good.to_ms), r"The range of days is empty"),
        (request_for(staging), r"2024-10-0\d of table 'counts' is not complete: production has windows"),
    ]
    before = files_of(live)
    for request, message in cases:
        with pytest.raises(TableError, match=message):
            publication.publish(live.committer, staging.root, request, publications)
    with pytest.raises(TableError, match=r"no staging table 'users' below"):
        publication.publish(live.committer, tmp_path / "nowhere", good, publications)
    with pytest.raises(TableError, match=r"Run run-1 has published nothing"):
        publication.rollback(live.committer, publications, "run-1")
    assert files_of(live) == before
    assert not publications.exists()

    publication.publish(live.committer, staging.root, good, publications)
    with pytest.raises(TableError, match=r"was published with another request"):
        publication.publish(live.committer, staging.root, other, publications)
    crash_at("rollback.after_record")
    with pytest.raises(Crash):
        publication.rollback(live.committer, publications, "run-1")
    with pytest.raises(TableError, match=r"is being rolled back"):
        publication.publish(live.committer, staging.root, good, publications)
    (publications / "run-1.json").unlink()
    with pytest.raises(TableError, match=r"record of what it has replaced is gone"):
        publication.publish(live.committer, staging.root, good, publications)


def test_a_day_that_is_still_open_in_staging_is_refused(tmp_path: Path, publications: Path, live: Stream) -> None:
    short = live.replay(tmp_path / "short", "run-2", 2, batches=8)

    with pytest.raises(TableError, match=r"of table 'counts' is not complete: the replay has windows of that day"):
        publication.publish(live.committer, short.root, request_for(short, days=DAYS), publications)


def test_an_older_replay_cannot_replace_a_part_of_what_a_newer_one_has_published(
    tmp_path: Path, publications: Path, live: Stream, staging: Stream
) -> None:
    publish(live, staging, request_for(staging, days=DAYS, tables=("orders",)), publications)
    older = live.replay(tmp_path / "older", "run-2", 2, batches=8)

    with pytest.raises(TableError, match=r"'orders' holds rows of batch \d+ that another replay has published"):
        publication.publish(live.committer, older.root, request_for(older, days=DAYS, tables=("orders",)), publications)


def test_merged_files_say_which_batch_wrote_each_row(live: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_FAN_IN", (6, 2, 2))
    live.restart()
    for _ in range(6):
        live.batch()
        live.committer.settle()
    live.batch()

    table = live.committer.tables["orders"]
    merged = [path for path in table.log.files if path.startswith("merged-")]
    assert merged
    for path in merged:
        rows = parquet.read(live.root, table.schema, path)
        written = row_origins.of_file(live.root, table.schema, path, rows.num_rows)
        assert written is not None
        assert [batch for batch, _ in written] == sorted({batch for batch, _ in written})
        told = [batch for batch, count in written for _ in range(count)]
        values = rows.column("value").to_pylist()
        assert told == [value // 10_000 for value in values]


def test_of_a_merged_file_without_account_the_rows_say_what_was_read(
    publications: Path, live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_FAN_IN", (6, 8, 8))
    with monkeypatch.context() as patch:
        patch.setattr(row_origins, "of_file", lambda *_: None)
        live.restart()
        live.batch()
        live.committer.settle()
        live.batch()
    assert any(path.startswith("merged-") for path in live.committer.tables[DEAD].log.files)

    publish(live, staging, request_for(staging, days=DAYS, tables=(DEAD,)), publications)

    check(live)


class Windows:
    """A windowed table of two tasks, whose batches say which windows a task writes and closes."""

    def __init__(self, root: Path, query: str) -> None:
        sink = DeltaSink(name="n", table="t", kind=TableKind.WINDOWED, key=str, value=int)
        self.root, self.query, self.batch_id = root, query, -1
        self.committer = TableCommitter(root, "app", query, [sink])
        self.committer.open(1)
        self.tasks = [TaskTables(root, [sink], None, stage=0, task=task) for task in range(2)]

    def batch(self, task: int, hour: int, close: int) -> None:
        self.batch_id += 1
        tables, start = self.tasks[task], FIRST_MS + hour * HOUR_MS
        tables.begin(self.batch_id)
        tables.rows("t").add((f"k{task}", 1, start, start, start + HOUR_MS))
        tables.rows("t").close_windows(FIRST_MS + close * HOUR_MS)
        self.committer.commit(self.batch_id, tables.finish())

    def publish(self, staging: Windows) -> publication.Publication:
        request = publication.PublicationRequest(
            run_id=staging.query,
            pipeline="app",
            code_version="1",
            batches=(0, staging.batch_id),
            end_offsets={},
            from_ms=FIRST_MS,
            to_ms=FIRST_MS + DAY_MS,
            tables=("t",),
            requested_by="somebody",
        )
        return publication.publish(self.committer, staging.root, request, self.root.parent / "publications")

    def rows(self) -> int:
        return int(DeltaTable(self.root / "t").to_pyarrow_dataset().count_rows())


def test_windows_that_the_replay_has_not_read_are_not_lost(tmp_path: Path) -> None:
    live, staging = Windows(tmp_path / "live", "q"), Windows(tmp_path / "staging", "run")
    for windows in (live, staging):
        windows.batch(0, hour=3, close=30)
    live.batch(1, hour=4, close=2)
    live.batch(1, hour=26, close=30)

    with pytest.raises(TableError, match=r"2024-10-04 of table 't' has windows in production, up to .*T05:00:00.000"):
        live.publish(staging)

    assert live.rows() == 3
    staging.batch(1, hour=4, close=2)
    staging.batch(1, hour=26, close=30)
    live.publish(staging)
    assert live.rows() == 3


def test_windows_that_production_may_still_write_are_not_published(tmp_path: Path) -> None:
    live, staging = Windows(tmp_path / "live", "q"), Windows(tmp_path / "staging", "run")
    for windows, close in ((live, 3), (staging, 40)):
        windows.batch(0, hour=1, close=30)
        windows.batch(1, hour=26, close=close)
    live.publish(staging)  # only the other task has windows of the day

    late = Windows(tmp_path / "late", "run-2")
    late.batch(0, hour=1, close=30)
    late.batch(1, hour=5, close=2)
    late.batch(1, hour=26, close=40)
    with pytest.raises(TableError, match=r"windows in the replay, up to .*T06:00:00.000.*, to which production may"):
        live.publish(late)


def test_a_later_publication_has_to_go_first_even_if_the_earlier_one_added_nothing(tmp_path: Path) -> None:
    live = Windows(tmp_path / "live", "q")
    nothing, something = Windows(tmp_path / "nothing", "run-1"), Windows(tmp_path / "something", "run-2")
    live.batch(0, hour=3, close=30)
    nothing.batch(0, hour=26, close=30)
    something.batch(0, hour=5, close=30)
    live.publish(nothing)
    assert live.rows() == 0
    live.publish(something)

    with pytest.raises(TableError, match=r"Run run-2 has replaced some of what run run-1"):
        publication.rollback(live.committer, tmp_path / "publications", "run-1")

    assert live.rows() == 1


def read_record(publications: Path) -> publication.PublicationRecord:
    return msgspec.json.decode((publications / "run-1.json").read_bytes(), type=publication.PublicationRecord)
