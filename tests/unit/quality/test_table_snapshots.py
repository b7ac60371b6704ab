"""Tables are seen after the same batch, whatever the driver is doing."""

from __future__ import annotations

from pathlib import Path

from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.quality import invariants
from deltaworks.quality.table_snapshots import TableSnapshots
from tests.unit.lakehouse.lake import DEAD, SINKS, Expected, open_tables, run, task_tables, write_batch

SCHEMAS = plan_schemas(SINKS, DEAD)


def rows(root: Path, last_batch: int | None = None) -> dict[str, int]:
    opened = TableSnapshots.below(root, SCHEMAS, last_batch)
    return {name: table.rows.count_rows() for name, table in opened.by_name.items()}


def test_a_batch_that_is_being_committed_is_in_no_table(tmp_path: Path) -> None:
    committer, tables, expected = open_tables(tmp_path), task_tables(tmp_path), Expected()
    for batch in range(4):
        committer.commit(batch, write_batch(tables, batch, expected))
    before = rows(tmp_path)

    writes = write_batch(tables, 4, expected)
    for name in ("counts", "users_changelog", "orders"):
        committer.commit(4, [write for write in writes if write.table == name])
        assert rows(tmp_path, 3) == before
    committer.commit(4, writes)

    assert rows(tmp_path, 4) == rows(tmp_path) != before


def test_every_batch_of_the_past_can_be_seen(tmp_path: Path) -> None:
    committer, tables, expected = open_tables(tmp_path), task_tables(tmp_path), Expected()
    seen = []
    for batch in range(40):  # small files are merged in between
        committer.commit(batch, write_batch(tables, batch, expected))
        committer.refresh_snapshots(force=batch % 5 == 0)
        committer.settle()
        seen.append(rows(tmp_path))

    for batch in range(40):
        found = TableSnapshots.below(tmp_path, SCHEMAS, batch)
        assert {name: table.rows.count_rows() for name, table in found.by_name.items()} == seen[batch]
        assert [verdict for verdict in invariants.alone(found) if not verdict.passed] == []


def test_a_snapshot_says_its_batch_and_a_windowed_table_what_is_closed(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, 6)
    committer.refresh_snapshots(force=True)

    opened = TableSnapshots.below(tmp_path, SCHEMAS).by_name

    assert opened["users"].as_of_batch == 5
    assert opened["counts"].closed_before_ms == dict(enumerate(expected.closed_ms))
    assert opened["counts"].pages and not opened["orders"].pages


def test_tables_that_are_not_there_are_named(tmp_path: Path) -> None:
    committer = open_tables(tmp_path)
    committer.close()
    (tmp_path / "orders").rename(tmp_path / "elsewhere")

    opened = TableSnapshots.below(tmp_path, SCHEMAS)

    assert opened.missing == ("orders",)
    assert "orders" not in opened.sources
