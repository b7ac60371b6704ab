"""Which batch wrote each row of a file: one of an append-only table, or of windows that are final.

A row says where its record was read, and that is not when it was written: a result that was held back (`suppress`, a
join that waited) comes in a later batch than its record, and one that time alone has caused has no record at all. But
a file of a task is of one batch, which its name says; a file that was made of several says it in its footer. Final
windows are of the batch that closed them.

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
"""`(batch, rows)`, in the order of a file. Of a replay's rows: the last batch of those that it committed at once."""
_OF_SEVERAL = ("merged", layout.PUBLISHED, layout.REMAINING)


def of_file(root: Path, schema: TableSchema, path: str, rows: int) -> Origins | None:
    """The origins of a file with so many rows; None: it was merged by a version that kept no account of them."""
    found, kind = layout.batch_of(path), path.rpartition("/")[2].partition("-")[0]
    if found is None:
        return None
    if kind in _OF_SEVERAL and (written := parquet.origins(root, schema, path)) is not None:
        return written
    return None if kind == "merged" else [(found[0], rows)]


def rows_up_to(origins: Origins, last_batch: int) -> int:
    """How many rows, from the beginning of the file, are of batches up to one."""
    return sum(rows for batch, rows in origins if batch <= last_batch)


def chosen(origins: Origins, mask: pa.ChunkedArray) -> Origins:
    """What is left of the origins when rows are filtered."""
    batches = _per_row(origins).filter(mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask)
    return _runs(batches)


def in_order(rows: pa.Table, parts: Sequence[Origins]) -> tuple[pa.Table, Origins]:
    """The rows of several files in the order of their batches; rows of one batch stay as they are."""
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
