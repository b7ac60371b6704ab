"""A clone has the rows of a version, and neither table sees what happens to the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.errors import TransientError
from deltaworks.lakehouse.clone import clone


def numbers(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("n").to_pylist())


def append(path: Path, n: int, day: str = "2026-11-22") -> None:
    write_deltalake(path, pa.table({"day": [day], "n": [n]}), mode="append", partition_by=["day"])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a table"
    for n in range(4):
        append(path, n, f"2026-11-{20 + n % 2}")
    return path


def test_it_has_the_rows_of_a_version(table: Path, tmp_path: Path) -> None:
    assert clone(table, tmp_path / "then", 1).version == 1
    assert numbers(tmp_path / "then") == [0, 1]
    assert clone(table, tmp_path / "now").version == 3
    assert numbers(tmp_path / "now") == [0, 1, 2, 3]


def test_files_have_a_second_name(table: Path, tmp_path: Path) -> None:
    clone(table, tmp_path / "clone")
    for file in table.rglob("*.parquet"):
        assert file.samefile(tmp_path / "clone" / file.relative_to(table))


def test_each_goes_on_alone(table: Path, tmp_path: Path) -> None:
    clone(table, tmp_path / "clone")
    append(tmp_path / "clone", 10)
    DeltaTable(tmp_path / "clone").delete("n = 0")
    append(table, 20)
    DeltaTable(tmp_path / "clone").vacuum(0, enforce_retention_duration=False, dry_run=False)

    assert numbers(table) == [0, 1, 2, 3, 20]
    assert numbers(tmp_path / "clone") == [1, 2, 3, 10]


def test_it_begins_with_a_checkpoint_where_there_is_one(table: Path, tmp_path: Path) -> None:
    DeltaTable(table).create_checkpoint()
    append(table, 4)
    for number in range(4):
        (table / "_delta_log" / f"{number:020d}.json").unlink()

    assert clone(table, tmp_path / "clone").version == 4
    assert numbers(tmp_path / "clone") == [0, 1, 2, 3, 4]
    with pytest.raises(TransientError, match="'a table' has no version 2 any more"):
        clone(table, tmp_path / "earlier", 2)


def test_a_file_that_is_gone_is_an_error_that_may_pass(table: Path, tmp_path: Path) -> None:
    next(table.rglob("*.parquet")).unlink()
    with pytest.raises(TransientError, match="a file of version 3 was replaced and removed while it was cloned"):
        clone(table, tmp_path / "clone")
