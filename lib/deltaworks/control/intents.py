"""The intent of a batch: what a batch id means, durable before the first task of the batch starts.

An intent says which records a batch reads, at what time and by which code. It is one object, put if absent, so there is
one for each id, whoever plans. Nothing of a batch is done, skipped or called done without comparing with its intent:
transactions, tables and tasks carry its digest. Each intent also carries the digest of the one before, so whoever knows
that the last one is his knows it of all.

An intent is replaced, by compare and swap, only while nothing of its batch is committed anywhere. They are kept as long
as Spark's checkpoint may have to be brought forward from an older batch; what was processed long ago is in the record
of batches (`batches`).
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
"""Batches; Spark's checkpoint reaches back by a hundred."""
_DIGITS = 12
_NAME = re.compile(rf"\d{{{_DIGITS}}}\.json")


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch, before it is run."""

    format: int = FORMAT
    batch: int
    lineage: str
    """Identity of the stream, over all its homes and lines."""
    query: str
    """Identity of the checkpoint."""
    generation: int
    """Of the driver that planned it."""
    code: str
    """Digest of the code that begins it."""
    clock_ms: int
    """The time of the batch, for every task and every attempt."""
    tick: bool
    """Tasks that depend on the clock run, with records or without."""
    ranges: list[Range]
    """What is read, of global tables too; partitions without records are absent."""
    end: Offsets
    """Where every partition of the source stands after it, as Spark's offset log has it."""
    previous: str
    """Digest of the intent of the batch before; empty for the first one of a checkpoint."""
    topics: dict[str, str] = {}
    """Id of every topic that the source reads, as the broker has it; one that was made anew has another."""
    limit: int | None = None
    """A batch before it was too large and was cut, so the next one may have twice as many records; None: any number."""

    @property
    def digest(self) -> str:
        """Identity: another content has another digest."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def token(digest: str) -> int:
    """A digest as a positive number of 62 bits, for where only numbers can be kept."""
    return int(digest[:16], 16) >> 2


@dataclass
class Intents:
    """The intents of one checkpoint, for the one process that plans it.

    Which batches have one is listed once and then remembered, since a listing of thousands is dear; a single intent is
    always read anew, because another process may have written or replaced it.

    Args:
        files: of the checkpoint; names that are none of an intent are left alone.
    """

    files: Files
    _batches: list[int] | None = None
    """In order; None: not listed yet."""

    def get(self, batch: int) -> Intent | None:
        """The intent of a batch, read anew; None: there is none.

        Raises:
            IncompatibleCheckpointError: another version of deltaworks wrote it.
        """
        stored = self.files.get(_name(batch))
        return None if stored is None else _decode(_name(batch), stored.data)

    def require(self, batch: int) -> Intent:
        """As `get`; raises `IntentError` if there is none: nothing of the batch may be done."""
        found = self.get(batch)
        if found is None:
            raise IntentError(
                f"Batch {batch} has no intent, so nobody knows what it is to do.",
                hint="were files of two copies of this home mixed? Bring back one of them as a whole",
            )
        return found

    def require_same(self, intent: Intent, digest: str) -> None:
        """Raises `IntentError` if tasks have worked for another intent than this one."""
        if intent.digest != digest:
            raise IntentError(
                f"Tasks have processed batch {intent.batch} by another intent than the one that is written down.",
                hint="does a second driver run this pipeline? `deltaworks status`",
            )

    def put(self, intent: Intent) -> Intent:
        """Makes an intent that of its batch, durably, unless the batch has one; returns the one that it has."""
        while not self.files.put_if_absent(_name(intent.batch), msgspec.json.encode(intent)):
            found = self.get(intent.batch)
            if found is not None:  # else it was removed in between
                intent = found
                break
        self._remember(intent.batch)
        return intent

    def replace(self, old: Intent, new: Intent) -> None:
        """Another intent for a batch of which nothing is committed anywhere.

        Raises:
            IntentError: it is not `old` any more.
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
                hint="does a second driver run this pipeline? `deltaworks status`",
            )

    def remove_after(self, batch: int) -> None:
        """Forgets the intents of later batches, the last one first; nothing of them may be committed anywhere."""
        found = self._list()
        while found and found[-1] > batch:
            self.files.delete(_name(found[-1]))
            found.pop()

    def batches(self) -> list[int]:
        """The batches that have an intent, in order, as far as this process knows since it has listed them."""
        return list(self._list() if self._batches is None else self._batches)

    def last(self) -> Intent | None:
        """That of the highest batch."""
        found = self.batches()
        return self.get(found[-1]) if found else None

    def chain(self, after: int) -> Iterator[Intent]:
        """The intents of the batches after one, in order; listed anew.

        Raises:
            IntentError: one is missing, or does not follow the one before it.
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
                    hint="were files of two copies of this home mixed? Bring back one of them as a whole",
                )
            yield intent
            previous, expected = intent, number + 1

    def expire(self, batch: int) -> None:
        """Forgets what lies so far before a batch that nobody goes back to it; with every batch, it is one deletion."""
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
        damaged="it was synced before anybody relied on it, so the disk is damaged: bring back a copy of the home",
        error=IntentError,
    )


def _name(batch: int) -> str:
    return f"{batch:0{_DIGITS}d}.json"
