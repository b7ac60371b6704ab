"""Tables as analysts see them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from deltaworks.errors import TableError
from deltaworks.lakehouse.catalog import duckdb_connection, table, table_names, tables
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from tests.unit.lakehouse.lake import COUNTS, query, run


def test_every_table_is_listed_with_its_rows_version_and_size(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, 5)
    committer.refresh_snapshots(force=True)

    found = {info.name: info for info in tables(tmp_path)}

    assert list(found) == ["counts", "dead_letters", "orders", "users", "users_changelog"]
    assert found["orders"].rows == len(expected.orders)
    assert found["users"].rows == len(expected.users)
    assert found["counts"].rows == len(expected.counts)
    assert found["orders"].size_bytes > 0
    assert found["orders"].committed_at is not None
    assert found["users"].as_of is not None
    assert found["orders"].as_of is None


def test_every_table_is_a_view(tmp_path: Path) -> None:
    run(tmp_path, 3)

    with duckdb_connection(tmp_path) as connection:
        for name in table_names(tmp_path):
            assert query(connection, f'select count(*) from "{name}"') == [(table(tmp_path, name).rows,)]


def test_a_filter_on_any_column_finds_its_rows_through_any_reader(tmp_path: Path) -> None:
    committer, _ = run(tmp_path, 12)
    committer.refresh_snapshots(force=True)

    for name in table_names(tmp_path):
        delta = DeltaTable(tmp_path / name)
        rows = delta.to_pyarrow_table()
        for column in rows.column_names:
            cell = next((cell for cell in rows.column(column) if cell.is_valid), None)
            if cell is None or pa.types.is_list(cell.type):
                continue
            wanted = rows.filter(pc.equal(rows.column(column), cell)).num_rows
            dataset = delta.to_pyarrow_dataset()
            assert dataset.count_rows(filter=ds.field(column) == cell) == wanted, (name, column)
            with duckdb_connection(tmp_path) as connection:
                found = connection.execute(f'select count(*) from "{name}" where "{column}" = ?', [cell.as_py()])
                assert found.fetchall() == [(wanted,)], (name, column)


def test_long_keys_are_found(tmp_path: Path) -> None:
    committer = TableCommitter(tmp_path, "app", "q", [COUNTS])
    committer.open(1)
    tables = TaskTables(tmp_path, [COUNTS], None, stage=0, task=0)
    keys = [None, "x" * 64, "x" * 65, "x" * 64 + "\U0010ffff" * 3, "\u00fc" * 100, ""]
    tables.begin(0)
    for key in keys:
        tables.rows("counts").add((key, 1, 0, 0, 1))
    committer.commit(0, tables.finish())

    dataset = DeltaTable(tmp_path / "counts").to_pyarrow_dataset()

    assert [dataset.count_rows(filter=ds.field("key") == key) for key in keys[1:]] == [1] * 5
    assert dataset.count_rows(filter=ds.field("key").is_null()) == 1


def test_a_folder_without_tables_has_none(tmp_path: Path) -> None:
    (tmp_path / "no-table").mkdir()

    assert tables(tmp_path) == []
    assert tables(tmp_path / "missing") == []


def test_an_unknown_table_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    run(tmp_path, 1)

    with pytest.raises(TableError, match="There is no Delta table 'order'") as error:
        table(tmp_path, "order")

    assert error.value.hint is not None
    assert "orders" in error.value.hint
