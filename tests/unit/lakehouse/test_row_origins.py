"""The batch of every row, in files that were made of several."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from deltaworks.lakehouse import layout, parquet, row_origins
from deltaworks.lakehouse.schema import schemas
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

SCHEMA = schemas(DeltaSink(name="n", table="t", kind=TableKind.APPEND, key=str, value=int))[0]


def rows(*values: int) -> pa.Table:
    columns = [pa.nulls(len(values), field.type) for field in SCHEMA.file]
    columns[SCHEMA.file.get_field_index("value")] = pa.array(values, pa.int64())
    return pa.table(columns, schema=SCHEMA.file)


def test_merged_rows_come_in_the_order_of_their_batches() -> None:
    merged, written = row_origins.in_order(rows(50, 70, 71, 60, 51), [[(5, 1), (7, 2)], [(6, 1)], [(5, 1)]])

    assert merged.column("value").to_pylist() == [50, 51, 60, 70, 71]
    assert written == [(5, 2), (6, 1), (7, 2)]


def test_rows_that_are_left_keep_their_batches() -> None:
    mask = pa.chunked_array([[True, False], [False, True, True]])

    assert row_origins.chosen([(1, 3), (4, 2)], mask) == [(1, 1), (4, 2)]
    assert row_origins.chosen([(1, 2)], pa.array([False, False])) == []


def test_rows_up_to_a_batch() -> None:
    assert [row_origins.rows_up_to([(3, 2), (5, 1)], last) for last in (2, 3, 4, 5)] == [0, 2, 2, 3]


def test_a_footer_says_more_than_a_name(tmp_path: Path) -> None:
    tag = layout.query_tag("q")
    part, merged, unknown = (layout.part_name(kind, 7, 0, tag) for kind in ("part", "merged", "merged"))
    parquet.write(tmp_path, SCHEMA, part, rows(1, 2))
    parquet.write(tmp_path, SCHEMA, merged, rows(1, 2), [(7, 1), (9, 1)])
    parquet.write(tmp_path, SCHEMA, unknown, rows(1, 2))

    assert row_origins.of_file(tmp_path, SCHEMA, part, 2) == [(7, 2)]
    assert row_origins.of_file(tmp_path, SCHEMA, merged, 2) == [(7, 1), (9, 1)]
    assert row_origins.of_file(tmp_path, SCHEMA, unknown, 2) is None
    assert parquet.read(tmp_path, SCHEMA, merged).schema.metadata is None
