"""Tables as analysts see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.errors import TableError
from deltaworks.lakehouse.catalog import duckdb_connection, table, table_names, tables
from tests.unit.lakehouse.lake import query, run


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
