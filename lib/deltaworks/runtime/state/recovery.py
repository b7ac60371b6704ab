"""The store protocol: which state a task may trust, and how a batch becomes part of it.

Spark's checkpoint is the only truth. Per task it holds the stamp `(version, nonce)`, the list of changelog segments and
the segments, each with the stamp that it leads to. A local store holds what committed batches have left, with their
stamp, and nothing else. At the start of a batch:

- same stamp: go on;
- the stamp from which the last batch of this process has gone on: apply its changes, which have waited in memory;
- the stamp of a segment: apply the segments after it;
- anything else: rebuild from the changelog.

At the end of a batch its changes become a changelog segment with the next stamp, which has a new random nonce, and wait
in memory (`Pending`) until Spark has committed the batch. So an attempt that fails has never been in a local store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.faults import reach
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.changelog import SegmentRef
from deltaworks.runtime.state.local_store import EMPTY, Changes, LocalStore, LocalTransaction, Stamp

FORMAT = 2
"""Of what Spark's state holds of a task."""
_NONCE_BYTES = 12


class TruthHeader(msgspec.Struct, frozen=True, array_like=True):
    """What Spark's state says about a task."""

    stamp: Stamp
    segments: tuple[SegmentRef, ...]
    next_segment: int


class _Encoded(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: int
    header: msgspec.Raw


NOTHING = TruthHeader(EMPTY, (), 0)
"""About a task that has never run."""


def encode_header(header: TruthHeader) -> bytes:
    """A header with its format."""
    return msgspec.msgpack.encode(_Encoded(FORMAT, msgspec.Raw(msgspec.msgpack.encode(header))))


def decode_header(data: bytes, what: str) -> TruthHeader:
    """What `encode_header` has made.

    Args:
        data: from Spark's state, or a seed.
        what: where it is, for the message.

    Raises:
        IncompatibleCheckpointError: it has another format.
    """
    try:
        encoded = msgspec.msgpack.decode(data, type=_Encoded)
        if encoded.format == FORMAT:
            return msgspec.msgpack.decode(encoded.header, type=TruthHeader)
        found = f"format {encoded.format}"
    except msgspec.DecodeError:
        found = "no format that is known"
    raise IncompatibleCheckpointError(
        f"{what} has {found}; this version of deltaworks reads format {FORMAT}.",
        hint="run the version that wrote it, or begin a new checkpoint",
    )


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
    APPLIED = "applied"
    """The changes of the batch before had waited in memory."""
    CAUGHT_UP = "caught up"
    """By some segments."""
    REBUILD = "rebuild"
    NEW = "new"


@dataclass(frozen=True)
class Pending:
    """The changes of a batch that wait until Spark has committed it."""

    batch: int
    """By Spark's count."""
    base: Stamp
    """Of the state that they were made from."""
    stamp: Stamp
    """Of the state that they lead to."""
    changes: Changes
    since_s: float
    """By `clock.ticks_s`."""


def same_stamp(local: Stamp, truth: Stamp) -> bool:
    """Whether the local store holds exactly the committed state: the version alone may be another attempt's."""
    return local.version == truth.version and local.nonce == truth.nonce


def open_store(local: LocalStore, truth: Truth, pending: Pending | None = None) -> tuple[TruthHeader, Opened]:
    """Brings the local store to the committed state.

    Args:
        local: The store.
        truth: What Spark's state says.
        pending: What this process has kept of the batch before, committed or not.

    Raises:
        StateError: the local store cannot be read.
        IncompatibleCheckpointError: Spark's state has another format.
    """
    header = truth.header() or NOTHING
    found = local.stamp()
    if same_stamp(found, header.stamp):
        return header, Opened.NEW if found == EMPTY else Opened.SAME
    with local.transaction() as transaction:  # what is there now cannot change until it ends
        return header, _bring_forward(transaction, truth, header, pending)


def _bring_forward(transaction: LocalTransaction, truth: Truth, header: TruthHeader, pending: Pending | None) -> Opened:
    found = transaction.stamp()
    if same_stamp(found, header.stamp):
        return Opened.SAME
    if pending is not None and same_stamp(pending.stamp, header.stamp) and same_stamp(found, pending.base):
        _apply(transaction, iter([pending.changes]), header.stamp)
        return Opened.APPLIED
    newer = _after(header.segments, found)
    if newer is not None:
        _apply(transaction, _history(truth, newer), header.stamp)
        return Opened.CAUGHT_UP
    reach("store.before_rebuild")
    transaction.clear()
    for changes in _history(truth, header.segments):
        transaction.apply(changes)
    transaction.commit(header.stamp)
    reach("store.after_rebuild")
    return Opened.REBUILD


def _apply(transaction: LocalTransaction, history: Iterator[Changes], stamp: Stamp) -> None:
    reach("store.before_apply")
    for changes in history:
        transaction.apply(changes)
    transaction.commit(stamp)
    reach("store.after_apply")


def _after(segments: Sequence[SegmentRef], found: Stamp) -> Sequence[SegmentRef] | None:
    """The segments that lead from a state to the last one; None if they do not.

    The oldest one is never among them: it keeps no deletes once it has been merged.
    """
    for number, segment in enumerate(segments, start=1):
        if same_stamp(found, segment.stamp):
            return segments[number:]
    return None


def next_stamp(header: TruthHeader) -> Stamp:
    """Of the state after this batch; never the same twice."""
    return Stamp(header.stamp.version + 1, os.urandom(_NONCE_BYTES))


def append(truth: Truth, header: TruthHeader, stamp: Stamp, changes: Changes) -> TruthHeader:
    """All changes of a batch as one segment, then the stamp; they count once Spark commits its checkpoint."""
    segments, next_id = _merged(truth, header)
    ref = _write(truth, next_id, 0, changes, stamp)
    reach("store.after_append")
    header = TruthHeader(stamp, (*segments, ref), next_id + ref.chunks)
    truth.update(header)
    reach("store.after_stamp")
    return header


def _merged(truth: Truth, header: TruthHeader) -> tuple[list[SegmentRef], int]:
    """The segments, with no tier full, and the next id."""
    segments, next_id = list(header.segments), header.next_segment
    while run := changelog.tier_to_merge(segments):
        oldest = len(run) == len(segments)
        merged = changelog.merge([_read(truth, segment) for segment in run], oldest=oldest)
        for segment in run:
            for segment_id in range(segment.first, segment.first + segment.chunks):
                truth.remove_segment(segment_id)
        ref = _write(truth, next_id, run[0].tier + 1, merged, run[-1].stamp)
        segments[-len(run) :] = [ref]
        next_id += ref.chunks
    return segments, next_id


def _write(truth: Truth, first: int, tier: int, changes: Changes, stamp: Stamp) -> SegmentRef:
    chunks = changelog.encode(changes)
    for number, chunk in enumerate(chunks):
        truth.put_segment(first + number, chunk)
    return SegmentRef(first, len(chunks), tier, changelog.entry_count(changes), stamp)


def _read(truth: Truth, segment: SegmentRef) -> dict[str, StoreChanges]:
    return changelog.decode([truth.segment(i) for i in range(segment.first, segment.first + segment.chunks)])


def _history(truth: Truth, segments: Sequence[SegmentRef]) -> Iterator[Changes]:
    for segment in segments:
        yield _read(truth, segment)


def local_path(root: Path, stage: int, task: int) -> Path:
    """Directory of one task's local store."""
    return root / f"{stage}-{task}"
