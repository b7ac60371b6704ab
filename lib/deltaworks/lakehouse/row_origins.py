"""Which batch wrote each row of a file of an append-only table, or of a file of final windows.

A row says where its record was read, but not when the row was written. A result that was held back (`suppress`, a join
that waited) comes in a later batch than its record, and one that only time has caused has no record. So the file says
it: a task's file holds one batch, which is in its name, and a file merged from several says it in its footer. Final
windows belong to the batch that closed them.

Within a file, rows are in the order of their batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.schema import TableSchema

Origins = Sequence[tuple[int, int]]
"""`(batch, rows)`, in the order of a file. For rows of a replay: the last batch of the chunk that committed them."""
_OF_SEVERAL = ("merged", layout.PUBLISHED, layout.REMAINING)


def of_file(root: Path, schema: TableSchema, path: str, rows: int) -> Origins | None:
    """The origins of a file with so many rows; None: an earlier version that did not record them merged the file."""
    found, kind = layout.batch_of(path), path.rpartition("/")[2].partition("-")[0]
    if found is None:
        return None
    if kind in _OF_SEVERAL and (written := parquet.origins(root, schema, path)) is not None:
        return written
    return None if kind == "merged" else [(found[0], rows)]


def rows_up_to(origins: Origins, last_batch: int) -> int:
    """How many rows, from the beginning of the file, belong to batches up to one."""
    return sum(rows for batch, rows in origins if batch <= last_batch)


def chosen(origins: Origins, mask: pa.ChunkedArray) -> Origins:
    """The origins that remain when rows are filtered."""
    batches = _per_row(origins).filter(mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask)
    return _runs(batches)


def in_order(rows: pa.Table, parts: Sequence[Origins]) -> tuple[pa.Table, Origins]:
    """The rows of several files in the order of their batches; rows of one batch keep their order."""
    batches = pa.concat_arrays([_per_row(origins) for origins in parts])
    order = pc.sort_indices(batches, sort_keys=[("", "ascending")])
    return rows.take(order), _runs(batches.take(order))


def _per_row(origins: Origins) -> pa.Array:
    arrays = [pa.repeat(pa.scalar(batch, pa.int64()), rows) for batch, rows in origins]
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())


def _runs(batches: pa.Array) -> Origins:
    encoded = pc.run_end_encode(batches)
    ends = encoded.run_ends.to_pylist()
    return [
        (batch, end - begin)
        for batch, begin, end in zip(encoded.values.to_pylist(), [0, *ends][:-1], ends, strict=True)
    ]
