"""Somebody else writes to a table of a stream: what does no harm, and what is refused and taken back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from deltaworks.errors import FencedError, TableError, TransientError
from deltaworks.lakehouse import layout, versions
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.repair import plan, repair
from tests.unit.lakehouse.lake import Expected, check, open_tables, run, task_tables, write_batch

BATCHES = 8
Writer = Callable[[Path], Any]


def append(path: Path) -> None:
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")


def clean_up(path: Path) -> None:
    """The log becomes a checkpoint alone."""
    long_ago = time.time() - 7200
    for file in (path / "_delta_log").glob("*.json"):
        os.utime(file, (long_ago, long_ago))
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).cleanup_metadata()


def restore(path: Path) -> None:
    DeltaTable(path).restore(DeltaTable(path).version() - 3)


def merge(path: Path) -> None:
    rows = DeltaTable(path).to_pyarrow_table().slice(0, 1)
    DeltaTable(path).merge(rows, "t.key = s.key", source_alias="s", target_alias="t").when_matched_delete().execute()


def spark(path: Path, operation: str, *actions: dict[str, Any]) -> None:
    """A commit as Spark writes it."""
    log = DeltaLog(path)
    log.load()
    info = {"timestamp": 1_790_000_000_000, "operation": operation, "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0"}
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
    (path / "_delta_log" / versions.file_name(log.version + 1)).write_text("\n".join(lines))


def definition(path: Path, **changes: Any) -> dict[str, Any]:
    log = DeltaLog(path)
    log.load()
    return {"metaData": {**log.definition, **changes}}


def properties(path: Path, **changes: str) -> dict[str, Any]:
    log = DeltaLog(path)
    log.load()
    return {"metaData": {**log.definition, "configuration": log.properties | changes}}


def feature(path: Path, name: str) -> None:
    features = {"readerFeatures": [name], "writerFeatures": [name]}
    spark(path, "UPGRADE PROTOCOL", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})


def rename(path: Path) -> None:
    log = DeltaLog(path)
    log.load()
    spark(path, "RENAME COLUMN", definition(path, schemaString=log.schema_text.replace('"timestamp"', '"time"', 1)))


REFUSED: dict[str, tuple[str, Writer]] = {
    "append": ("orders", append),
    "overwrite": ("orders", lambda path: write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="overwrite")),
    "delete": ("orders", lambda path: DeltaTable(path).delete("source_partition = 0")),
    "delete all": ("users", lambda path: DeltaTable(path).delete()),
    "update": ("users_changelog", lambda path: DeltaTable(path).update(updates={"name": "'x'"})),
    "merge": ("orders", merge),
    "restore": ("orders", restore),
    "restore windows": ("counts", restore),
    "optimize windows": ("counts", lambda path: DeltaTable(path).optimize.compact()),
    "z-order windows": ("counts", lambda path: DeltaTable(path).optimize.z_order(["key"])),
    "optimize a changelog": ("users_changelog", lambda path: DeltaTable(path).optimize.compact()),
    "z-order a changelog": ("users_changelog", lambda path: DeltaTable(path).optimize.z_order(["key"])),
    "add a column": ("orders", lambda path: DeltaTable(path).alter.add_columns([Field("new", PrimitiveType("long"))])),
    "rename a column": ("orders", rename),
    "constraint": ("orders", lambda path: DeltaTable(path).alter.add_constraint({"some": "source_offset >= 0"})),
    "append only": (
        "counts",
        lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    ),
    "change data feed": (
        "counts",
        lambda path: DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
    ),
    "deletion vectors": ("counts", lambda path: feature(path, "deletionVectors")),
    "column mapping": (
        "counts",
        lambda path: spark(path, "SET TBLPROPERTIES", properties(path, **{"delta.columnMapping.mode": "name"})),
    ),
    "type widening": ("counts", lambda path: feature(path, "typeWidening")),
    "a batch of ours": (
        "orders",
        lambda path: write_deltalake(
            path,
            DeltaTable(path).to_pyarrow_table().slice(0, 0),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction("shop/orders/rows/0b7f6a0e-query", 99)]),
        ),
    ),
}

HARMLESS: dict[str, tuple[str, Writer]] = {
    "optimize": ("orders", lambda path: DeltaTable(path).optimize.compact()),
    "z-order": ("orders", lambda path: DeltaTable(path).optimize.z_order(["key"])),
    "optimize a snapshot": ("users", lambda path: DeltaTable(path).optimize.z_order(["key"])),
    "optimize dead letters": ("dead_letters", lambda path: DeltaTable(path).optimize.compact()),
    "vacuum": ("counts", lambda path: DeltaTable(path).vacuum(dry_run=False)),
    "vacuum of everything": (
        "counts",
        lambda path: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
    ),
    "properties": (
        "counts",
        lambda path: DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 2 days"}),
    ),
    "description": ("counts", lambda path: DeltaTable(path).alter.set_table_description("counts of users")),
    "comment on a column": (
        "counts",
        lambda path: DeltaTable(path).alter.set_column_metadata("value", {"comment": "how many"}),
    ),
    "checkpoint": ("counts", lambda path: DeltaTable(path).create_checkpoint()),
    "checkpoint and cleanup": ("counts", clean_up),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_what_the_stream_cannot_go_on_with_is_refused_and_can_be_taken_back(
    tmp_path: Path, what: str, is_running: bool
) -> None:
    name, write = REFUSED[what]
    committer, expected = run(tmp_path, BATCHES)
    committer.settle()
    committer.refresh_snapshots(force=True)
    wanted = described(tmp_path, name)
    if is_running:
        tasks = task_tables(tmp_path)
    else:
        committer.close()

    write(tmp_path / name)
    with pytest.raises(TableError, match=rf"Somebody else has changed the Delta table '{name}'") as told:
        if is_running:
            if name == "users":
                committer.replace(name, Commit())  # snapshots are not written with a batch
            committer.commit(BATCHES, every_table(tasks, BATCHES, deepcopy(expected)))
        else:
            open_tables(tmp_path)

    assert f"deltaworks tables repair {name}" in str(told.value)
    assert f"version {DeltaTable(tmp_path / name).version()} (" in str(told.value)
    repair(tmp_path, name, generation=2)
    assert described(tmp_path, name) == wanted
    assert not plan(tmp_path, name).is_needed
    goes_on(tmp_path, expected)


@pytest.mark.parametrize("what", HARMLESS)
@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_what_does_no_harm_is_tolerated(tmp_path: Path, what: str, is_running: bool) -> None:
    name, write = HARMLESS[what]
    committer, expected = run(tmp_path, BATCHES)
    committer.settle()
    write(tmp_path / name)
    if not is_running:
        committer.close()
        goes_on(tmp_path, expected)
        return
    tables = task_tables(tmp_path)
    for batch_id in range(BATCHES, BATCHES + 40):  # long enough for merges
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
        committer.settle()
    committer.refresh_snapshots(force=True)
    committer.close()
    check(tmp_path, expected)
    assert open_tables(tmp_path, generation=2)


@pytest.mark.parametrize("what", ["optimize", "z-order"])
def test_a_merge_and_a_snapshot_that_somebody_else_has_overtaken_are_recreated(tmp_path: Path, what: str) -> None:
    committer, expected = run(tmp_path, 1)
    tables = task_tables(tmp_path)
    for batch_id in range(1, 60):
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
        committer.refresh_snapshots(eager=True)
        if batch_id % 5 == 0:
            HARMLESS[what][1](tmp_path / "orders")
            HARMLESS[what][1](tmp_path / "users")
    committer.refresh_snapshots(force=True)
    committer.refresh_snapshots(force=True)
    committer.close()

    check(tmp_path, expected)


def test_the_reason_names_the_commit_its_time_and_its_engine(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)[0].close()
    spark(tmp_path / "counts", "OPTIMIZE", *compaction(tmp_path / "counts"))

    with pytest.raises(TableError) as told:
        open_tables(tmp_path)

    assert "(OPTIMIZE, 2026-09-21T14:13:20.000+00:00, Apache-Spark/4.2.0 Delta-Lake/4.4.0)" in str(told.value)


def test_a_change_is_found_though_the_log_does_not_have_it_any_more(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)
    path = tmp_path / "orders"
    DeltaTable(path).delete("source_partition = 0")
    DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").glob("*.json"):
        file.unlink()

    with pytest.raises(TableError, match="the log does not say any more who did it"):
        open_tables(tmp_path)
    with pytest.raises(TableError, match="does not say any more what it was") as told:
        repair(tmp_path, "orders", generation=2)
    assert "deltaworks replay shop --hand-over" in str(told.value)


def test_a_vacuum_after_the_change_takes_nothing_from_a_repair_once_a_driver_has_seen_it(tmp_path: Path) -> None:
    _, expected = run(tmp_path, BATCHES)
    DeltaTable(tmp_path / "counts").optimize.compact()
    with pytest.raises(TableError):
        open_tables(tmp_path)
    DeltaTable(tmp_path / "counts").vacuum(0, dry_run=False, enforce_retention_duration=False)

    repair(tmp_path, "counts", generation=2)

    goes_on(tmp_path, expected)


def test_a_stock_vacuum_after_the_change_takes_nothing_from_a_repair(tmp_path: Path) -> None:
    _, expected = run(tmp_path, BATCHES)
    DeltaTable(tmp_path / "orders").delete()
    DeltaTable(tmp_path / "orders").vacuum(dry_run=False)

    repair(tmp_path, "orders", generation=2)

    goes_on(tmp_path, expected)


def test_what_is_lost_is_said_and_how_to_build_it_again(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)
    DeltaTable(tmp_path / "orders").delete()
    DeltaTable(tmp_path / "orders").vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(TableError, match=r"cannot be repaired: \d+ of its files, with \d+ rows.*are gone") as told:
        repair(tmp_path, "orders", generation=2)

    assert "deltaworks replay shop --hand-over" in str(told.value)


def test_several_commits_of_others_are_taken_back_together(tmp_path: Path) -> None:
    _, expected = run(tmp_path, BATCHES)
    path = tmp_path / "orders"
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.add_columns([Field("new", PrimitiveType("long"))])
    DeltaTable(path).delete("source_partition = 1")
    DeltaTable(path).create_checkpoint()

    assert [version.info["operation"] for version in plan(tmp_path, "orders").foreign] == [
        "OPTIMIZE",
        "ADD COLUMN",
        "DELETE",
    ]
    repair(tmp_path, "orders", generation=2)

    goes_on(tmp_path, expected)


def test_after_a_repair_an_older_driver_cannot_write(tmp_path: Path) -> None:
    zombie, expected = run(tmp_path, BATCHES)
    DeltaTable(tmp_path / "counts").optimize.compact()
    repair(tmp_path, "counts", generation=2)

    with pytest.raises(FencedError, match="generation 2 has taken over"):
        zombie.commit(BATCHES, every_table(task_tables(tmp_path), BATCHES, deepcopy(expected)))


def test_a_file_that_vanished_before_its_commit_lets_the_batch_run_again(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, BATCHES)
    before = deepcopy(expected)
    writes = write_batch(task_tables(tmp_path), BATCHES, expected)
    lost = next(write for write in writes if write.table == "orders")
    (tmp_path / "orders" / lost.added[0].path).unlink()
    version = DeltaTable(tmp_path / "orders").version()

    with pytest.raises(TransientError, match=r"part-b0000000008.* is gone"):
        committer.commit(BATCHES, writes)

    assert DeltaTable(tmp_path / "orders").version() == version
    again = open_tables(tmp_path)
    again.commit(BATCHES, write_batch(task_tables(tmp_path), BATCHES, before))
    again.refresh_snapshots(force=True)
    check(tmp_path, expected)


def test_a_file_that_is_shorter_than_it_was_is_not_committed(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, BATCHES)
    writes = write_batch(task_tables(tmp_path), BATCHES, expected)
    for write in writes:
        for new in write.added:
            (tmp_path / write.table / new.path).write_bytes(b"")

    with pytest.raises(TransientError, match="of 0 bytes instead of"):
        committer.commit(BATCHES, writes)


def test_the_trash_and_what_publications_keep_are_not_touched_by_a_vacuum(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)[0].close()
    for folder in (layout.TRASH_FOLDER, layout.RETAINED_FOLDER):
        (tmp_path / "orders" / folder / "1").mkdir(parents=True)
        (tmp_path / "orders" / folder / "1" / "part-x.parquet").write_bytes(b"")

    DeltaTable(tmp_path / "orders").vacuum(0, dry_run=False, enforce_retention_duration=False)

    assert len(list((tmp_path / "orders").glob("_*/1/part-x.parquet"))) == 2


def every_table(tables: Any, batch_id: int, expected: Expected) -> Any:
    """A batch that writes to all tables."""
    writes = write_batch(tables, batch_id, expected)
    assert {write.table for write in writes} >= {"orders", "counts", "users_changelog"}
    return writes


def goes_on(root: Path, expected: Expected) -> None:
    """A new driver runs the next batches, and every row is there once."""
    committer, tables = open_tables(root, generation=3), task_tables(root)
    for batch_id in range(BATCHES, BATCHES + 12):
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
    committer.refresh_snapshots(force=True)
    committer.close()
    check(root, expected)


def described(root: Path, name: str) -> tuple[Any, ...]:
    """Everything that a reader sees of a table."""
    delta = DeltaTable(root / name)
    log = DeltaLog(root / name)
    log.load()
    rows = sorted(map(str, delta.to_pyarrow_table().to_pylist()))
    return rows, delta.schema().to_json(), delta.metadata().configuration, delta.protocol(), sorted(log.files)


def compaction(path: Path) -> list[dict[str, Any]]:
    """One page rewritten, as Spark does it."""
    log = DeltaLog(path)
    log.load()
    page = next(name for name in log.files if layout.is_page(name))
    new = f"{page.rpartition('/')[0]}/part-00000-0a.c000.snappy.parquet"
    (path / new).write_bytes((path / page).read_bytes())
    values = layout.partition_of(page)
    common = {"dataChange": False, "partitionValues": values, "size": log.files[page].size_bytes}
    return [
        {"remove": {"path": page, "deletionTimestamp": 1, **common}},
        {"add": {"path": new, "modificationTime": 1, "stats": log.files[page].statistics, **common}},
    ]
