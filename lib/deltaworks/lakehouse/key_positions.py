"""The position of a key: bytes by which the files of a snapshot divide the keys among them.

Equal keys have equal positions, in every process and version: names of files contain positions. Positions mostly
follow the order of the first key column, then the second one, and so on, so that keys that belong together (numbers
that grow, times, ids with a common prefix) share files. A long key has the beginning of its text and a checksum of all.

Equal means what `pyarrow` groups as equal: all bits of all cells. Other columns or encodings need another
`layout.RANGES_FORMAT`.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

_LONGEST = 28
_BEGINNING = 24
_CHUNK_ROWS = 65_536
_SIGN = pa.scalar(-(1 << 63), pa.int64())


def positions(keys: pa.Table) -> list[bytes]:
    """The positions of keys, at most 28 bytes each.

    Args:
        keys: the key columns.
    """
    return [position for chunk in _chunks(keys) for position in chunk]


def order(keys: pa.Table) -> tuple[pa.Array, pa.ChunkedArray]:
    """The row numbers in the order of positions, and the positions of the rows (binary)."""
    found = pa.chunked_array([pa.array(chunk, pa.binary()) for chunk in _chunks(keys)], pa.binary())
    return pc.sort_indices(found), found


def separator(left: bytes, right: bytes) -> bytes:
    """The shortest bytes above `left` that are not above `right`; `left` is less than `right`."""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    return right[: common + 1]


def _chunks(keys: pa.Table) -> Iterator[list[bytes]]:
    for begin in range(0, keys.num_rows, _CHUNK_ROWS):
        chunk = keys.slice(begin, _CHUNK_ROWS).combine_chunks()
        cells = [pc.fill_null(_encoded(column), b"") for column in chunk.columns]
        whole = cells[0] if len(cells) == 1 else pc.binary_join_element_wise(*cells, b"\0")
        yield [
            key if len(key) <= _LONGEST else key[:_BEGINNING] + zlib.crc32(key).to_bytes(4, "big")
            for key in whole.to_pylist()
        ]


def _encoded(column: pa.ChunkedArray) -> pa.Array:
    """Cells as bytes that sort as they do; those of decimals only tell them apart."""
    cells, kind = column.combine_chunks(), column.type
    if isinstance(cells, pa.ChunkedArray):
        cells = pa.concat_arrays(cells.chunks)
    if pa.types.is_binary(kind):
        return cells
    if pa.types.is_string(kind):
        return cells.cast(pa.binary())
    if pa.types.is_decimal(kind):
        return cells.cast(pa.string()).cast(pa.binary())
    if pa.types.is_floating(kind):
        bits = cells.view(pa.int64())
        return _big_endian(pc.if_else(pc.less(bits, 0), pc.bit_wise_not(bits), pc.bit_wise_xor(bits, _SIGN)))
    if pa.types.is_date32(kind):
        cells = cells.cast(pa.int32())
    return _big_endian(pc.bit_wise_xor(cells.cast(pa.int64()), _SIGN))


def _big_endian(numbers: pa.Array) -> pa.Array:
    """Eight bytes each, highest first."""
    filled = array("q", pc.fill_null(numbers, 0).to_pylist())
    filled.byteswap()
    fixed = pa.Array.from_buffers(pa.binary(8), len(filled), [None, pa.py_buffer(filled.tobytes())]).cast(pa.binary())
    return pc.if_else(pc.is_valid(numbers), fixed, pa.scalar(None, pa.binary()))
