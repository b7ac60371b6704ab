"""Rows of several batches in one commit: each carries its own batch, and is what it was then."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaworks.errors import TableError
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import NOON_MS, User, open_tables, task_tables

SOURCE = Coordinates("t", 0, 0)


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    return sorted(DeltaTable(root / table).to_pyarrow_table().to_pylist(), key=str)


def test_changes_carry_the_batch_of_their_step(tmp_path: Path) -> None:
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)[0]
    tables.begin(9)
    for batch_id, keys in ((3, "ab"), (5, ""), (6, "c"), (9, "")):
        tables.step(batch_id)
        for key in keys:
            tables.rows("users").add((key, User(key, Decimal(1)), NOON_MS, SOURCE))
    committer.commit(9, tables.finish())

    assert [(row["key"], row["batch_id"]) for row in rows(tmp_path, "users_changelog")] == [
        ("a", 3),
        ("b", 3),
        ("c", 6),
    ]
    assert committer.committed_batch("users_changelog") == 9


def test_without_steps_all_rows_are_of_the_batch(tmp_path: Path) -> None:
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)[0]
    tables.begin(4)
    tables.rows("users").add(("a", User("a", Decimal(1)), NOON_MS, SOURCE))
    committer.commit(4, tables.finish())
    assert [row["batch_id"] for row in rows(tmp_path, "users_changelog")] == [4]


def test_a_value_that_is_changed_in_a_later_batch_was_another_then(tmp_path: Path) -> None:
    sink = DeltaSink(name="n", table="seen", kind=TableKind.APPEND, key=str, value=list[int])
    committer = TableCommitter(tmp_path, "shop", "q", (sink,))
    committer.open(generation=1)
    tables = TaskTables(tmp_path, (sink,), None, stage=0, task=0)
    tables.begin(2)
    value = [1]
    for batch_id in (1, 2):
        tables.step(batch_id)
        tables.rows("seen").add(("k", value, NOON_MS + batch_id, SOURCE))
        value.append(2)
        tables.rows("seen").add(("k", value, NOON_MS + batch_id, SOURCE))
    committer.commit(2, tables.finish())
    found = sorted((row["timestamp"], row["value"]) for row in rows(tmp_path, "seen"))
    assert [cells for _, cells in found] == [[1, 2], [1, 2], [1, 2, 2], [1, 2, 2]]


def test_many_rows_are_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.lakehouse.task_tables._PART_ROWS", 3)
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)[0]
    tables.begin(20)
    for batch_id in range(21):
        tables.step(batch_id)
        tables.rows("orders").add((f"{batch_id:02}", User("u", Decimal(1)), NOON_MS, SOURCE))
        tables.rows("users").add((f"{batch_id:02}", None, NOON_MS, SOURCE))
    committer.commit(20, tables.finish())
    assert [row["key"] for row in rows(tmp_path, "orders")] == [f"{number:02}" for number in range(21)]
    assert [row["batch_id"] for row in rows(tmp_path, "users_changelog")] == list(range(21))
    assert len(DeltaTable(tmp_path / "orders").file_uris()) == 1


def test_a_window_that_an_earlier_step_closed_must_not_change(tmp_path: Path) -> None:
    open_tables(tmp_path)
    tables = task_tables(tmp_path)[0]
    tables.begin(5)
    tables.step(4)
    tables.rows("counts").add(("late", 1, NOON_MS, NOON_MS, NOON_MS + 100))
    tables.rows("counts").close_windows(NOON_MS + 101)
    tables.step(5)
    tables.rows("counts").add(("late", 2, NOON_MS, NOON_MS, NOON_MS + 100))
    with pytest.raises(TableError, match=r"Batch 5 changes a window of table 'counts' that was final already: .*late"):
        tables.finish()
