"""The intent of a batch: the meaning of a batch id, durable before the first task of the batch starts.

An intent says which records a batch reads, at what time and with which code. It is one object, put if absent, so each
id has only one, whoever plans it. No part of a batch is done, skipped or considered done without a comparison with its
intent: transactions, tables and tasks carry its digest. Each intent also carries the digest of the previous one, so if
the last one is ours, all are.

An intent is replaced, by compare and swap, only while nothing of its batch is committed anywhere. Intents are kept as
long as Spark's checkpoint may have to be brought forward from an older batch; older history is in the record of batches
(`batches`).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from deltaworks import formats
from deltaworks.errors import IntentError
from deltaworks.files import Files
from deltaworks.kafka.ranges import Offsets, Range

FORMAT = 1
KEEP = 2_000
"""Number of batches whose intents are kept; Spark's checkpoint reaches back by a hundred."""
_DIGITS = 12
_NAME = re.compile(rf"\d{{{_DIGITS}}}\.json")


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch, before it is run."""

    format: int = FORMAT
    batch: int
    lineage: str
    """Identity of the stream, over all its homes and checkpoints."""
    query: str
    """Identity of the checkpoint."""
    generation: int
    """Generation of the driver that planned it."""
    code: str
    """Digest of the code that starts it."""
    clock_ms: int
    """The time of the batch, for every task and every attempt."""
    tick: bool
    """Whether tasks that depend on the clock run, with or without records."""
    ranges: list[Range]
    """The ranges to read, including those of global tables; partitions without records are absent."""
    end: Offsets
    """The position of every partition of the source after the batch, as in Spark's offset log."""
    previous: str
    """Digest of the previous batch's intent; empty for the first one of a checkpoint."""
    topics: dict[str, str] = {}
    """The broker's id of every topic that the source reads; a recreated topic has another id."""
    limit: int | None = None
    """A limit after an earlier batch was too large and was cut: the next one may have twice as many; None: no limit."""

    @property
    def records(self) -> int:
        """How many records it reads from Kafka: offsets, of which transactions take some."""
        return sum(each.stop - each.start for each in self.ranges)

    @property
    def digest(self) -> str:
        """The digest of the content, which identifies the intent."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def token(digest: str) -> int:
    """A digest as a positive number of 62 bits, for places that can keep only numbers."""
    return int(digest[:16], 16) >> 2


@dataclass
class Intents:
    """The intents of one checkpoint, for the one process that plans it.

    The list of batches is read once and then remembered, since listing thousands of files is slow. A single intent is
    always read again, because another process may have written or replaced it.

    Args:
        files: files of the checkpoint; names that are not those of an intent are ignored.
    """

    files: Files
    _batches: list[int] | None = None
    """The batches in order; None: not listed yet."""

    def get(self, batch: int) -> Intent | None:
        """Reads the intent of a batch; None if there is none.

        Raises:
            IncompatibleCheckpointError: another version of deltaworks wrote it.
        """
        stored = self.files.get(_name(batch))
        return None if stored is None else _decode(_name(batch), stored.data)

    def require(self, batch: int) -> Intent:
        """Like `get`, but raises `IntentError` if there is none: then nothing of the batch may be done."""
        found = self.get(batch)
        if found is None:
            raise IntentError(
                f"Batch {batch} has no intent, so its content is unknown.",
                hint="were files of two copies of this home mixed? Restore one of them as a whole",
            )
        return found

    def require_same(self, intent: Intent, digest: str) -> None:
        """Raises `IntentError` if tasks have processed another intent than this one."""
        if intent.digest != digest:
            raise IntentError(
                f"Tasks have processed batch {intent.batch} with another intent than the stored one.",
                hint="does a second driver run this pipeline? See `deltaworks status`",
            )

    def put(self, intent: Intent) -> Intent:
        """Stores an intent durably unless its batch already has one; returns the batch's intent."""
        while not self.files.put_if_absent(_name(intent.batch), msgspec.json.encode(intent)):
            found = self.get(intent.batch)
            if found is not None:  # otherwise it was removed in between
                intent = found
                break
        self._remember(intent.batch)
        return intent

    def replace(self, old: Intent, new: Intent) -> None:
        """Replaces the intent of a batch of which nothing is committed anywhere.

        Raises:
            IntentError: the intent is no longer `old`.
        """
        assert old.batch == new.batch
        stored = self.files.get(_name(old.batch))
        swapped = (
            stored is not None
            and _decode(_name(old.batch), stored.data) == old
            and self.files.replace(_name(old.batch), msgspec.json.encode(new), stored.version)
        )
        if not swapped:
            raise IntentError(
                f"The intent of batch {old.batch} was replaced by another process.",
                hint="does a second driver run this pipeline? See `deltaworks status`",
            )

    def remove_after(self, batch: int) -> None:
        """Removes the intents of later batches, the last one first; nothing of them may be committed anywhere."""
        found = self._list()
        while found and found[-1] > batch:
            self.files.delete(_name(found[-1]))
            found.pop()

    def batches(self) -> list[int]:
        """The batches that have an intent, in order, as known since this process listed them."""
        return list(self._list() if self._batches is None else self._batches)

    def last(self) -> Intent | None:
        """The intent of the highest batch."""
        found = self.batches()
        return self.get(found[-1]) if found else None

    def chain(self, after: int) -> Iterator[Intent]:
        """The intents of the batches after `after`, in order; lists them again.

        Raises:
            IntentError: an intent is missing, or does not follow the previous one.
        """
        previous, expected = self.get(after), after + 1
        for number in list(self._list()):
            if number <= after:
                continue
            intent = self.get(number)
            follows = previous is None or (intent is not None and intent.previous == previous.digest)
            if number != expected or intent is None or not follows:
                raise IntentError(
                    f"The intent of batch {number} does not follow that of batch {number - 1}"
                    + (", which is missing." if number != expected else "."),
                    hint="were files of two copies of this home mixed? Restore one of them as a whole",
                )
            yield intent
            previous, expected = intent, number + 1

    def expire(self, batch: int) -> None:
        """Removes intents too far before a batch to be needed; called for every batch, it makes one deletion."""
        found = self._list() if self._batches is None else self._batches
        expired = bisect_left(found, batch - KEEP)
        for number in found[:expired]:
            self.files.delete(_name(number))
        del found[:expired]

    def _list(self) -> list[int]:
        self._batches = [int(name[:_DIGITS]) for name in self.files.names() if _NAME.fullmatch(name)]
        return self._batches

    def _remember(self, batch: int) -> None:
        known = self._batches
        if known is not None and (not known or batch > known[-1]):
            known.append(batch)
        elif known is not None and batch not in known:
            insort(known, batch)


def _decode(name: str, data: bytes) -> Intent:
    return formats.decode(
        data,
        Intent,
        FORMAT,
        f"The intent {name}",
        other="deploy the version that wrote it, or start with a new checkpoint",
        damaged="it was synced before anybody relied on it, so the disk is damaged; restore a copy of the home",
        error=IntentError,
    )


def _name(batch: int) -> str:
    return f"{batch:0{_DIGITS}d}.json"
