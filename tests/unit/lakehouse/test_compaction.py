"""Many small files become few, and rows stay what they are."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.compaction import SmallFiles
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import query

ORDERS = DeltaSink(name="n", table="orders", kind=TableKind.APPEND, key=str, value=int)


def test_a_full_group_is_offered_in_the_order_of_batches() -> None:
    small = SmallFiles()
    paths = [layout.part_name("part", batch, 0, "00000000") for batch in range(32)]
    for path in reversed(paths[1:]):
        small.add(path, 100)
        assert small.full_group() is None

    small.add(paths[0], 100)

    assert small.full_group() == paths


def test_files_of_other_partitions_and_sizes_and_pages_are_apart() -> None:
    small = SmallFiles()
    for batch in range(31):
        small.add(f"window_date=2026-01-01/{layout.part_name('final', batch, 0, '00000000')}", 100)
        small.add(f"window_date=2026-01-02/{layout.part_name('final', batch, 0, '00000000')}", 100)
        small.add(layout.page_path("2026-01-01", 0, 0, batch, 0, 1, batch, "00000000"), 100)
        small.add(layout.part_name("part", batch, 0, "00000000"), 1 << 30)

    assert small.full_group() is None


def test_a_removed_file_does_not_count() -> None:
    small = SmallFiles()
    paths = [layout.part_name("part", batch, 0, "00000000") for batch in range(33)]
    for path in paths[:31]:
        small.add(path, 100)
    small.remove(paths[0])
    small.add(paths[31], 100)
    assert small.full_group() is None

    small.add(paths[32], 100)

    assert small.full_group() == paths[1:]


def test_an_append_table_keeps_few_files_and_all_rows(tmp_path: Path) -> None:
    committer = TableCommitter(tmp_path, "app", "q", [ORDERS])
    committer.open(1)
    tables = TaskTables(tmp_path, [ORDERS], None, stage=0, task=0)
    for batch_id in range(100):
        tables.begin(batch_id)
        for number in range(3):
            tables.rows("orders").add(("k", number, 0, Coordinates("raw", 0, batch_id * 3 + number)))
        committer.commit(batch_id, tables.finish())
        committer.settle()  # else a slow machine merges later

    committer.close()

    files = DeltaTable(tmp_path / "orders").file_uris()
    with duckdb_connection(tmp_path) as connection:
        offsets = [row[0] for row in query(connection, "select source_offset from orders order by 1")]

    assert len(files) < 64
    assert offsets == list(range(300))


def test_merging_is_no_change_of_data_for_readers_of_the_stream(tmp_path: Path) -> None:
    committer = TableCommitter(tmp_path, "app", "q", [ORDERS])
    committer.open(1)
    tables = TaskTables(tmp_path, [ORDERS], None, stage=0, task=0)
    for batch_id in range(32):
        tables.begin(batch_id)
        tables.rows("orders").add(("k", 1, 0, Coordinates("raw", 0, batch_id)))
        committer.commit(batch_id, tables.finish())
    committer.close()

    last = sorted((tmp_path / "orders" / "_delta_log").glob("*.json"))[-1].read_text()

    assert '"operation":"OPTIMIZE"' in last
    assert '"dataChange":true' not in last
