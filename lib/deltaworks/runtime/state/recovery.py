"""Recovery of stores: which state a task may trust, and how a batch becomes part of it.

Only the checkpoint counts. Per task it holds the version `(number, nonce)` of the state, and the changelog segments,
each with the version that it leads to. A local store holds only what committed batches have left, with their version.
At the start of a batch:

- same version: go on;
- the version that the last batch of this process began with: apply its changes, which have waited in memory;
- the version of a segment: apply the segments after it;
- anything else: rebuild from the changelog.

At the end of a batch its changes become a changelog segment with the next version, which has a new random nonce, and
wait in memory (`Pending`) until Spark has committed the batch. So an attempt that fails has never been in a local
store.

A rebuild holds one document of the changelog (`changelog`) and what it has written since it last committed. It commits
every few documents, as a state that nobody's is, so one that was interrupted begins anew. Another process that wants
the same store waits for it as long as it goes on (`local_store`), and finds it done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks import clock
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.faults import reach
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.changelog import SegmentRef
from deltaworks.runtime.state.local_store import EMPTY, Changes, LocalStore, LocalTransaction, StateVersion

FORMAT = 3
"""The format of a task's state in Spark: its header, and the segments of its changelog."""
_READ = (2, FORMAT)
"""Segments of format 2 say so themselves (`changelog.decode`), and are read until they are merged."""
_DOCUMENTS_PER_COMMIT = 16
_NONCE_BYTES = 12
TELL_EVERY_S = 5.0
"""How often a restore says how far it has come; a shorter one says nothing."""
_log = logging.getLogger(__name__)


class StateHeader(msgspec.Struct, frozen=True, array_like=True):
    """What Spark's state says about a task."""

    version: StateVersion
    segments: tuple[SegmentRef, ...]
    next_segment: int


class _Encoded(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: int
    header: msgspec.Raw


NOTHING = StateHeader(EMPTY, (), 0)
"""The header of a task that has never run."""


def encode_header(header: StateHeader) -> bytes:
    """A header with its format."""
    return msgspec.msgpack.encode(_Encoded(FORMAT, msgspec.Raw(msgspec.msgpack.encode(header))))


def decode_header(data: bytes, what: str) -> StateHeader:
    """Decodes the result of `encode_header`.

    Args:
        data: from Spark's state, or from an initial state.
        what: its place, for the message.

    Raises:
        IncompatibleCheckpointError: it has another format.
    """
    try:
        encoded = msgspec.msgpack.decode(data, type=_Encoded)
        if encoded.format in _READ:
            return msgspec.msgpack.decode(encoded.header, type=StateHeader)
        found = f"format {encoded.format}"
    except msgspec.DecodeError:
        found = "no format that is known"
    raise IncompatibleCheckpointError(
        f"{what} has {found}; this version of deltaworks reads format {FORMAT}.",
        hint="run the version that wrote it, or begin a new checkpoint",
    )


class CommittedState(Protocol):
    """What a checkpoint says of one task, for reading."""

    def header(self) -> StateHeader | None: ...

    def segment(self, segment_id: int) -> bytes: ...


class CheckpointState(CommittedState, Protocol):
    """The state of one task in Spark's checkpoint."""

    def update(self, header: StateHeader) -> None: ...

    def put_segment(self, segment_id: int, data: bytes) -> None: ...

    def remove_segment(self, segment_id: int) -> None: ...


class RecoveryAction(Enum):
    """What had to be done to the local store."""

    SAME = "same"
    APPLIED = "applied"
    """Applied the changes of the batch before, which had waited in memory."""
    CAUGHT_UP = "caught up"
    """Applied some segments."""
    REBUILD = "rebuild"
    NEW = "new"


@dataclass(frozen=True)
class Pending:
    """The changes of a batch that wait until Spark has committed it."""

    batch: int
    """The id of the batch, by Spark's count."""
    base: StateVersion
    """The version that they were made from."""
    version: StateVersion
    """The version that they lead to."""
    changes: Changes
    since_s: float
    """When they began to wait, by `clock.ticks_s`."""


class Restore:
    """How far the restore of a task's store has come; one that takes long says so in the log.

    Args:
        name: of the task, for the log.
        tell: hears it when the log does: entries that are done, and all of them; the same number at the end.
    """

    def __init__(self, name: str, tell: Callable[[int, int], None] | None = None) -> None:
        self._name, self._tell = name, tell
        self._told = False
        self._total = 0
        self._begun_s = self._told_s = 0.0
        self.entries = 0
        """Those that were read from the checkpoint."""
        self.seconds = 0.0
        """How long it took."""

    @contextmanager
    def of(self, segments: Sequence[SegmentRef]) -> Iterator[None]:
        """Measures the restore of segments."""
        self._total, self.entries = sum(segment.entries for segment in segments), 0
        self._begun_s = self._told_s = clock.ticks_s()
        try:
            yield
        finally:
            if self._told:
                self._say(self._total)
        self.seconds = clock.ticks_s() - self._begun_s

    def add(self, changes: Changes) -> None:
        """Changes are in the store."""
        self.entries += changelog.entry_count(changes)
        now_s = clock.ticks_s()
        if now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            rate = self.entries / (now_s - self._begun_s)
            _log.warning(
                "%s: %s of %s entries restored, %s/s",
                self._name,
                *(f"{n:,.0f}" for n in (self.entries, self._total, rate)),
            )
            self._told = True
            self._say(self.entries)

    def _say(self, done: int) -> None:
        if self._tell is not None:
            with suppress(OSError):  # it only helps people
                self._tell(done, self._total)


def same_version(local: StateVersion, committed: StateVersion) -> bool:
    """Whether the local store holds exactly the committed state: another attempt may have the same number."""
    return local.number == committed.number and local.nonce == committed.nonce


def open_store(
    local: LocalStore, committed: CommittedState, pending: Pending | None = None, restore: Restore | None = None
) -> tuple[StateHeader, RecoveryAction]:
    """Brings the local store to the committed state.

    Args:
        local: The store.
        committed: What Spark's state says.
        pending: Changes of the batch before that this process has kept, committed or not.
        restore: Hears how far it has come.

    Raises:
        StateError: the local store cannot be read.
        IncompatibleCheckpointError: Spark's state has another format.
    """
    header = committed.header() or NOTHING
    found = local.version()
    if same_version(found, header.version):
        return header, RecoveryAction.NEW if found == EMPTY else RecoveryAction.SAME
    with local.transaction() as transaction:  # the store cannot change until it ends
        return header, _bring_forward(transaction, committed, header, pending, restore or Restore("a store"))


def _bring_forward(
    transaction: LocalTransaction,
    committed: CommittedState,
    header: StateHeader,
    pending: Pending | None,
    restore: Restore,
) -> RecoveryAction:
    found = transaction.version()
    if same_version(found, header.version):
        return RecoveryAction.SAME
    if pending is not None and same_version(pending.version, header.version) and same_version(found, pending.base):
        reach("store.before_apply")
        transaction.apply(pending.changes)
        transaction.commit(header.version)
        reach("store.after_apply")
        return RecoveryAction.APPLIED
    newer = _after(header.segments, found)
    if newer is not None:
        reach("store.before_apply")
        with restore.of(newer):
            for changes in _documents(committed, newer):
                transaction.apply(changes)
                transaction.restored(unfinished=False)
                restore.add(changes)
            transaction.commit(header.version)
        reach("store.after_apply")
        return RecoveryAction.CAUGHT_UP
    reach("store.before_rebuild")
    with restore.of(header.segments):
        transaction.clear()
        for number, changes in enumerate(_documents(committed, header.segments), start=1):
            transaction.apply(changes)
            transaction.restored(unfinished=number % _DOCUMENTS_PER_COMMIT == 0)
            restore.add(changes)
            reach("store.rebuilding")
        transaction.commit(header.version)
    reach("store.after_rebuild")
    return RecoveryAction.REBUILD


def _after(segments: Sequence[SegmentRef], found: StateVersion) -> Sequence[SegmentRef] | None:
    """The segments that lead from a state to the last one; None if they do not.

    The oldest segment is never among them: it keeps no deletes once it has been merged.
    """
    for number, segment in enumerate(segments, start=1):
        if same_version(found, segment.version):
            return segments[number:]
    return None


def next_version(header: StateHeader) -> StateVersion:
    """The version of the state after this batch; never the same twice."""
    return StateVersion(header.version.number + 1, os.urandom(_NONCE_BYTES))


def append(
    committed: CheckpointState,
    header: StateHeader,
    version: StateVersion,
    changes: Changes,
    chunks: Sequence[bytes] | None = None,
) -> StateHeader:
    """Adds all changes of a batch as one segment, then the version; they count once Spark commits its checkpoint.

    Args:
        committed: the state of the task.
        header: its header.
        version: the version that the changes lead to.
        changes: those of the batch.
        chunks: `changelog.encode(changes)`, if it is known.
    """
    segments, next_id = _merged(committed, header)
    ref = _write(committed, next_id, 0, changes, version, chunks)
    reach("store.after_append")
    header = StateHeader(version, (*segments, ref), next_id + ref.chunks)
    committed.update(header)
    reach("store.after_version")
    return header


def _merged(committed: CheckpointState, header: StateHeader) -> tuple[list[SegmentRef], int]:
    """The segments after merges, so that no tier is full, and the next id."""
    segments, next_id = list(header.segments), header.next_segment
    while run := changelog.tier_to_merge(segments):
        oldest = len(run) == len(segments)
        merged = changelog.merge(_documents(committed, run), oldest=oldest)
        for segment in run:
            for segment_id in range(segment.first, segment.first + segment.chunks):
                committed.remove_segment(segment_id)
        ref = _write(committed, next_id, run[0].tier + 1, merged, run[-1].version)
        segments[-len(run) :] = [ref]
        next_id += ref.chunks
    return segments, next_id


def _write(
    committed: CheckpointState,
    first: int,
    tier: int,
    changes: Changes,
    version: StateVersion,
    chunks: Sequence[bytes] | None = None,
) -> SegmentRef:
    chunks = changelog.encode(changes) if chunks is None else chunks
    for number, chunk in enumerate(chunks):
        committed.put_segment(first + number, chunk)
    return SegmentRef(first, len(chunks), tier, changelog.entry_count(changes), version)


def _documents(committed: CommittedState, segments: Sequence[SegmentRef]) -> Iterator[Changes]:
    """The changes of segments in their order, read when they are needed."""
    for segment in segments:
        yield from changelog.decode(map(committed.segment, range(segment.first, segment.first + segment.chunks)))


def local_path(root: Path, stage: int, task: int) -> Path:
    """The folder of one task's local store."""
    return root / f"{stage}-{task}"
