"""The stores that a checkpoint begins with: one file per task, in the form of a changelog.

It is made from local stores that a replay has filled. If Spark's state does not know a task yet, its initial state
serves as its changelog: the local store is rebuilt from it, also after failed attempts, and its segments are merged.
With the task's first batch it becomes part of Spark's state, and is never read again.

A file holds the chunks of all segments one after the other, then an index with their sizes and checksums, then the
size and checksum of the index, and a mark with the format.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

import msgspec

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import part
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.changelog import FANOUT, SegmentRef
from deltaworks.runtime.state.local_store import LocalStore
from deltaworks.runtime.state.recovery import (
    NOTHING,
    CheckpointState,
    StateHeader,
    decode_header,
    encode_header,
    next_version,
)

_MIN_ENTRIES = 50_000
"""The least number of entries per segment, so that a small store is not cut into many."""
_MARK = b"dwinit-3"
"""The last bytes of a whole file of this format."""
_END = struct.Struct(f">QI{len(_MARK)}s")
"""Size and checksum of the index, then the mark."""


class _Index(msgspec.Struct, frozen=True, array_like=True):
    header: bytes
    """The result of `encode_header`."""
    sizes: list[int]
    """The size of each chunk in bytes, from chunk 0."""
    checksums: list[int]


def write(path: Path, local: LocalStore | None, stores: Mapping[str, bool], batches: int) -> None:
    """Writes the initial state of one task durably.

    Args:
        path: from `path_of`.
        local: the task's stores; None: it has none yet, and begins with empty ones.
        stores: their names, including the reserved store.
        batches: the number of batches that have filled them. The segments get the tier in the changelog that it would
            have after so many, so it is merged again, as a whole, after about as many more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    header = NOTHING
    sizes: list[int] = []
    checksums: list[int] = []
    with path.open("wb") as file:
        for changes in _segments(local, stores) if local is not None else ():
            chunks, version = changelog.encode(changes), next_version(header)
            entries = changelog.entry_count(changes)
            segment = SegmentRef(header.next_segment, len(chunks), _tier(batches), entries, version)
            header = StateHeader(version, (*header.segments, segment), header.next_segment + len(chunks))
            for chunk in chunks:
                file.write(chunk)
                sizes.append(len(chunk))
                checksums.append(crc32(chunk))
        index = msgspec.msgpack.encode(_Index(encode_header(header), sizes, checksums))
        file.write(index + _END.pack(len(index), crc32(index), _MARK))
        file.flush()
        os.fsync(file.fileno())


def path_of(root: Path, stage: int, task: int) -> Path:
    """File of one task."""
    return root / f"{stage}-{task}.state"


class InitialState:
    """The initial state of one task, for reading; a `recovery.CommittedState`."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            IncompatibleCheckpointError: there is none, or it is damaged, or has another format, so nobody knows what
                the task should begin with.
        """
        self._path = path
        try:
            index = self._index()
        except FileNotFoundError:
            raise IncompatibleCheckpointError(
                f"{path} is missing: it has the stores that a task of this checkpoint begins with.",
                hint="restore the folder, or undo the checkpoint and hand over once more",
            ) from None
        self._header = decode_header(index.header, str(path))
        self._sizes, self._checksums = index.sizes, index.checksums

    def header(self) -> StateHeader:
        """The version, and the segments that lead to it."""
        return self._header

    def segment(self, segment_id: int) -> bytes:
        """One chunk.

        Raises:
            IncompatibleCheckpointError: the chunk differs from what was written.
        """
        chunk = part(self._path, sum(self._sizes[:segment_id]), self._sizes[segment_id])
        if crc32(chunk) != self._checksums[segment_id]:
            raise self._damaged("a part of it differs from what was written")
        return chunk

    def _index(self) -> _Index:
        whole = self._path.stat().st_size
        if whole < _END.size:
            raise self._damaged("it is cut off")
        size, checksum, mark = _END.unpack(part(self._path, whole - _END.size, _END.size))
        if mark != _MARK:
            raise self._damaged(f"it is cut off, or has another format than {_MARK.decode()}")
        begin = max(0, whole - _END.size - size)
        index = part(self._path, begin, whole - _END.size - begin)
        if crc32(index) != checksum:
            raise self._damaged("its index differs from what was written")
        return msgspec.msgpack.decode(index, type=_Index)

    def _damaged(self, why: str) -> IncompatibleCheckpointError:
        return IncompatibleCheckpointError(
            f"{self._path}, the stores that a task of this checkpoint begins with, cannot be used: {why}.",
            hint="restore the file from a copy, or undo the checkpoint and hand over once more",
        )


def with_initial_state(committed: CheckpointState, root: Path, stage: int, task: int) -> CheckpointState:
    """The state of a task whose checkpoint began with initial state."""
    return _WithInitialState(committed, path_of(root, stage, task))


class _WithInitialState:
    """`recovery.CheckpointState` that serves the initial state until the first update writes it to the state below."""

    def __init__(self, committed: CheckpointState, path: Path) -> None:
        self._committed, self._path = committed, path
        self._initial: InitialState | None = None
        self._pending: dict[int, None] = {}
        """Segments that are only in the initial state so far, in order."""

    def header(self) -> StateHeader | None:
        header = self._committed.header()
        if header is None:
            self._initial = InitialState(self._path)
            header = self._initial.header()
            self._pending = dict.fromkeys(range(header.next_segment))
        return header

    def update(self, header: StateHeader) -> None:
        for segment_id in self._pending:
            self._committed.put_segment(segment_id, self.segment(segment_id))
        self._pending.clear()
        self._committed.update(header)

    def segment(self, segment_id: int) -> bytes:
        if self._initial is not None and segment_id in self._pending:
            return self._initial.segment(segment_id)
        return self._committed.segment(segment_id)

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self._committed.put_segment(segment_id, data)

    def remove_segment(self, segment_id: int) -> None:
        if segment_id in self._pending:
            del self._pending[segment_id]
        else:
            self._committed.remove_segment(segment_id)


def _segments(local: LocalStore, stores: Mapping[str, bool]) -> Iterator[dict[str, StoreChanges]]:
    """All entries of the stores, each in one part; fewer parts than are merged at once."""
    most = max(_MIN_ENTRIES, -(-local.entry_count() // (FANOUT - 1)))
    changes: dict[str, StoreChanges] = {}
    count = 0
    for name in stores:
        for entry in local.reader(name).scan(b"", None):
            changes.setdefault(name, StoreChanges([])).entries.append(entry)
            count += 1
            if count == most:
                yield changes
                changes, count = {}, 0
    if changes:
        yield changes


def _tier(batches: int) -> int:
    tier = 0
    while FANOUT ** (tier + 1) <= batches:
        tier += 1
    return tier
