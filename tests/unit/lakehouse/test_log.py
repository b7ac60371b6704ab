"""The Delta log as this package writes it, read by delta-rs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from deltaworks.errors import TableError
from deltaworks.lakehouse import checkpoints, parquet
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import TableSchema, schemas
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

PROPERTIES = {"delta.checkpointInterval": "1000"}


def schema(value: object = int) -> TableSchema:
    return schemas(DeltaSink(name="n", table="t", kind=TableKind.CHANGELOG, key=str, value=value))[1]


def open_log(root: Path, query: str = "q") -> DeltaLog:
    return DeltaLog.create_or_open(root, schema(), query_id=query, properties=PROPERTIES)


def add(root: Path, log: DeltaLog, name: str, batch: int, removed: tuple[str, ...] = ()) -> int:
    source = ["raw"], [0], [batch], [batch]
    rows = pa.table([pa.array(c) for c in (["k"], [batch], [batch], *source)], names=schema().file.names)
    new = parquet.write(root, schema(), name, rows.cast(schema().file))
    return log.commit(Commit(added=[new], removed=removed, transactions={"app": batch}))


def test_delta_rs_reads_what_was_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(tmp_path, log, "a.parquet", 0)
    add(tmp_path, log, "b.parquet", 1)
    add(tmp_path, log, "c.parquet", 2, removed=("a.parquet",))

    table = DeltaTable(tmp_path / "t")

    assert sorted(Path(uri).name for uri in table.file_uris()) == ["b.parquet", "c.parquet"]
    assert table.version() == log.version == 3
    assert table.transaction_version("app") == 2
    assert table.to_pyarrow_dataset().count_rows() == table.count() == 2
    assert table.protocol().min_reader_version == 1
    assert [entry["operation"] for entry in table.history()][:3] == ["STREAMING UPDATE"] * 3


def test_a_log_read_again_is_the_log_that_was_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for batch in range(5):
        add(tmp_path, log, f"{batch}.parquet", batch, removed=(f"{batch - 1}.parquet",) if batch % 2 else ())
        if batch == 2:
            checkpoints.write(log.path, log.state())

    again = open_log(tmp_path)

    assert again.version == log.version
    assert again.files.keys() == log.files.keys() == set(DeltaTable(tmp_path / "t").to_pyarrow_dataset().files)
    assert {path: entry.rows for path, entry in again.files.items()} == dict.fromkeys(log.files, 1)
    assert again.transactions == log.transactions
    assert list(again.tombstones) == list(log.tombstones)
    assert again.properties == log.properties


def test_a_log_is_read_from_its_checkpoint_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(tmp_path, log, "a.parquet", 0)
    checkpoints.write(log.path, log.state())
    for file in (tmp_path / "t" / "_delta_log").glob("*.json"):
        file.unlink()

    again = open_log(tmp_path)

    assert (again.version, set(again.files), again.transactions) == (1, {"a.parquet"}, {"app": 0})


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_a_table_may_get_another_owner_with_other_columns(tmp_path: Path, from_checkpoint: bool) -> None:
    """Read from JSON and from Parquet, whose maps are lists of pairs."""
    log = open_log(tmp_path / "old")
    add(tmp_path / "old", log, "a.parquet", 0)
    other = DeltaLog.create_or_open(tmp_path / "new", schema(str), query_id="new", properties={"delta.other": "1"})
    if from_checkpoint:
        for each in (log, other):
            checkpoints.write(each.path, each.state())
            each.load()

    log.commit(Commit(removed=["a.parquet"], definition=log.owned_by("new", like=other)))

    table = DeltaTable(tmp_path / "old" / "t")
    log.check(schema(str), "new")
    assert table.metadata().id == json.loads(json.dumps(log.definition))["id"]
    assert table.metadata().configuration == log.properties == log.properties | PROPERTIES
    assert "delta.other" not in log.properties
    assert json.loads(log.schema_text) == json.loads(table.schema().to_json())
    assert table.to_pyarrow_dataset().schema.field("value").type == pa.string()
    with pytest.raises(TableError, match="belongs to the checkpoint of query new"):
        open_log(tmp_path / "old")


def test_steps_are_those_of_the_owner(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    theirs = {"shop/t/rows/before": 9, "shop/t/closed-t0001/before": 5}
    log.commit(Commit(transactions={"shop/t/rows/q": 3, "shop/t/closed-t0000/q": 7, **theirs}))

    assert log.steps == {"rows": 3, "closed-t0000": 7}
    assert log.closed_ms == {0: 7}


def test_a_checkpoint_follows_the_growth_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    commits = 0
    while not log.checkpoint_due():
        log.commit(Commit(transactions={"app": commits}))
        commits += 1

    log.checkpoint_begins()
    checkpoints.write(log.path, log.state())

    assert 500 <= commits <= 1000
    assert not log.checkpoint_due()
    assert DeltaTable(tmp_path / "t").transaction_version("app") == commits - 1


def test_a_commit_of_somebody_else_is_taken_in_when_it_does_not_contradict(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(tmp_path, log, "a.parquet", 0)
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})

    add(tmp_path, log, "b.parquet", 1)

    assert log.version == 3
    assert log.properties["delta.logRetentionDuration"] == "interval 1 day"
    assert DeltaTable(tmp_path / "t").to_pyarrow_dataset().count_rows() == len(log.files) == 2


def test_a_commit_of_somebody_else_that_removes_the_same_file_is_an_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(tmp_path, log, "a.parquet", 0)
    rows = DeltaTable(tmp_path / "t").to_pyarrow_table()
    write_deltalake(tmp_path / "t", rows, mode="overwrite")

    with pytest.raises(TableError, match=r"version 2 \(WRITE.*changes rows"):
        add(tmp_path, log, "b.parquet", 1, removed=("a.parquet",))


def test_a_batch_that_somebody_else_has_committed_is_an_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = schema().arrow.empty_table()
    marker = CommitProperties(app_transactions=[Transaction("app", 0)])
    write_deltalake(tmp_path / "t", rows, mode="append", commit_properties=marker)

    with pytest.raises(TableError, match="only one driver"):
        add(tmp_path, log, "a.parquet", 0)


def test_removing_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    with pytest.raises(TableError, match=r"has no file a\.parquet"):
        log.commit(Commit(removed=["a.parquet"]))


def test_a_table_belongs_to_one_checkpoint(tmp_path: Path) -> None:
    open_log(tmp_path)

    with pytest.raises(TableError, match="belongs to the checkpoint of query q, not to that of query other"):
        open_log(tmp_path, "other")


def test_a_table_with_other_columns_is_refused_with_the_difference(tmp_path: Path) -> None:
    open_log(tmp_path)

    with pytest.raises(TableError, match="value: long -> string"):
        DeltaLog.create_or_open(tmp_path, schema(str), query_id="q", properties=PROPERTIES)


def test_replaced_files_are_deleted_when_nobody_needs_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(tmp_path, log, "a.parquet", 0)
    add(tmp_path, log, "b.parquet", 1, removed=("a.parquet",))

    assert log.expire(older_than_ms=0) == 0
    assert log.expire(older_than_ms=1 << 60) == 1
    assert [path.name for path in (tmp_path / "t").glob("*.parquet")] == ["b.parquet"]


def test_statistics_hold_bounds_and_nulls(tmp_path: Path) -> None:
    rows = pa.table(
        [["a", "b"], [1, 2], [1_000_500, None], ["r", "r"], [0, 1], [5, 6], [7, 7]], names=schema().file.names
    ).cast(schema().file)

    found = json.loads(parquet.write(tmp_path, schema(), "a.parquet", rows).statistics)

    assert found["numRecords"] == 2
    assert found["minValues"]["key"] == "a"
    assert found["maxValues"]["source_offset"] == 6
    assert found["minValues"]["timestamp"] == found["maxValues"]["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert found["nullCount"]["timestamp"] == 1
