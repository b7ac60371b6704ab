"""The store protocol: which state a task may trust, and how a batch becomes part of it.

Spark's checkpoint is the only truth. Per task it holds the stamp `(version, nonce)`, the list of changelog segments and
the segments. The local store holds a stamp too. At the start of a batch:

- same stamp: go on;
- the local store is one failed attempt ahead of that stamp: undo it with its before-images;
- anything else: rebuild from the changelog.

At the end: local store first, then a changelog segment, then the next stamp with a new random nonce.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks.faults import reach
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.spark import changelog
from deltaworks.spark.changelog import Changes, SegmentRef
from deltaworks.spark.local_store import LocalStore, Stamp

_NONCE_BYTES = 12


class TruthHeader(msgspec.Struct, frozen=True, array_like=True):
    """What Spark's state says about a task."""

    stamp: Stamp
    segments: tuple[SegmentRef, ...]
    next_segment: int


class Truth(Protocol):
    """The state of one task in Spark's checkpoint."""

    def header(self) -> TruthHeader | None: ...

    def update(self, header: TruthHeader) -> None: ...

    def segment(self, segment_id: int) -> bytes: ...

    def put_segment(self, segment_id: int, data: bytes) -> None: ...

    def remove_segment(self, segment_id: int) -> None: ...


class Opened(Enum):
    """What had to be done to the local store."""

    SAME = "same"
    UNDO = "undo"
    REBUILD = "rebuild"
    NEW = "new"


EMPTY = Stamp(0, b"")


def same_stamp(local: Stamp, truth: Stamp) -> bool:
    """Whether the local store holds exactly the committed state: the version alone may be a failed attempt's."""
    return local.version == truth.version and local.nonce == truth.nonce


def open_store(local: LocalStore, truth: Truth) -> tuple[TruthHeader, Opened]:
    """Brings the local store to the committed state."""
    header = truth.header()
    if header is None:
        header = TruthHeader(EMPTY, (), 0)
    found = local.header()
    if found is None and header.stamp == EMPTY:
        return header, Opened.NEW
    if found is not None and same_stamp(found.stamp, header.stamp):
        return header, Opened.SAME
    if found is not None and found.previous is not None and same_stamp(found.previous, header.stamp):
        reach("store.before_undo")
        undo(local)
        reach("store.after_undo")
        return header, Opened.UNDO
    reach("store.before_rebuild")
    local.rebuild(_history(truth, header), header.stamp)
    reach("store.after_rebuild")
    return header, Opened.REBUILD


def undo(local: LocalStore) -> None:
    """Takes back a failed attempt."""
    local.undo()


def commit_store(local: LocalStore, truth: Truth, header: TruthHeader, changes: Changes) -> TruthHeader:
    """Makes the changes of a batch part of the state; they count once Spark commits its checkpoint."""
    stamp = next_stamp(header)
    commit_local(local, header, stamp, changes)
    return append(truth, header, stamp, changes)


def next_stamp(header: TruthHeader) -> Stamp:
    """Of the state after this batch; never the same twice."""
    return Stamp(header.stamp.version + 1, os.urandom(_NONCE_BYTES))


def commit_local(local: LocalStore, header: TruthHeader, stamp: Stamp, changes: Changes) -> None:
    """The first half of `commit_store`; several with one stamp add up."""
    reach("store.before_local_commit")
    local.commit(changes, stamp, header.stamp)
    reach("store.after_local_commit")


def append(truth: Truth, header: TruthHeader, stamp: Stamp, changes: Changes) -> TruthHeader:
    """The second half of `commit_store`: all changes of the batch as one segment, then the stamp."""
    segments, next_id = _append(truth, header, changes)
    reach("store.after_append")
    header = TruthHeader(stamp, segments, next_id)
    truth.update(header)
    reach("store.after_stamp")
    return header


def _append(truth: Truth, header: TruthHeader, changes: Changes) -> tuple[tuple[SegmentRef, ...], int]:
    segments, next_id = list(header.segments), header.next_segment
    ref = _write(truth, next_id, 0, changes)
    segments.append(ref)
    next_id += ref.chunks
    while run := changelog.tier_to_merge(segments):
        oldest = len(run) == len(segments)
        merged = changelog.merge([_read(truth, segment) for segment in run], oldest=oldest)
        for segment in run:
            for segment_id in range(segment.first, segment.first + segment.chunks):
                truth.remove_segment(segment_id)
        ref = _write(truth, next_id, run[0].tier + 1, merged)
        segments[-len(run) :] = [ref]
        next_id += ref.chunks
    return tuple(segments), next_id


def _write(truth: Truth, first: int, tier: int, changes: Changes) -> SegmentRef:
    chunks = changelog.encode(changes)
    for number, chunk in enumerate(chunks):
        truth.put_segment(first + number, chunk)
    return SegmentRef(first, len(chunks), tier, changelog.entry_count(changes))


def _read(truth: Truth, segment: SegmentRef) -> dict[str, StoreChanges]:
    return changelog.decode([truth.segment(i) for i in range(segment.first, segment.first + segment.chunks)])


def _history(truth: Truth, header: TruthHeader) -> Iterator[Changes]:
    for segment in header.segments:
        yield _read(truth, segment)


def local_path(root: Path, stage: int, task: int) -> Path:
    """Directory of one task's local store."""
    return root / f"{stage}-{task}"
