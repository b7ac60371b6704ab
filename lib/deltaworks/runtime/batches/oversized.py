"""A batch that is too large is not run again as it was.

Memory ends in many ways: a `MemoryError`, a worker or a JVM that the system kills, a transaction that the broker ends
before the batch does. Whoever starts a stream finds the batch that is open, and how often it was begun. If it was too
large, or was begun often enough, then

- with nothing of it committed anywhere, it is cut in two: its intent is replaced by one that reads half as much, and
  the batches after it grow again step by step;
- with a part of it committed, what it reads cannot change any more: its tasks read it in slices, in one transaction.

What is known of the open batch is a file beside the checkpoint; nothing depends on it but this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from deltaworks.control.intents import Intent
from deltaworks.errors import BatchTooLongError, IntentError
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets, Range

_STARTS = 4
"""A batch that was begun by so many drivers is taken for too large, whatever they have said."""
_OUT_OF_MEMORY = re.compile(
    r"\bMemoryError\b|OutOfMemoryError|Cannot allocate memory|std::bad_alloc|Python worker exited unexpectedly"
)


class OpenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the batch that was begun last."""

    format: int = 1
    batch: int
    starts: int = 0
    """Drivers that have begun with it."""
    too_large: bool = False
    """One of them has said so."""
    in_slices: bool = False
    """It cannot be cut any more."""

    @property
    def is_too_large(self) -> bool:
        """It must not run again as it was."""
        return self.too_large or self.starts >= _STARTS


def begun(path: Path, batch: int) -> OpenBatch:
    """A driver begins with a batch that another one has not finished.

    Args:
        path: the file.
        batch: that is open.

    Returns:
        What was known of it before this start.
    """
    known = _read(path, batch)
    _write(path, msgspec.structs.replace(known, starts=known.starts + 1))
    return known


def told(path: Path, batch: int, error: BaseException) -> bool:
    """A driver ends with an error in a batch; notes it if the batch was too large for memory or time.

    What Spark makes of an error of a worker is told by its cause: our own has only the first line.

    Returns:
        Whether it was.
    """
    too_large = any(_is_too_large(each) for each in _chain(error))
    if too_large:
        _write(path, msgspec.structs.replace(_read(path, batch), too_large=True))
    return too_large


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, MemoryError | BatchTooLongError) or _OUT_OF_MEMORY.search(str(error)) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def slice_it(path: Path, batch: int) -> None:
    """A batch that cannot be cut any more runs in slices from now on."""
    _write(path, OpenBatch(batch=batch, in_slices=True))


def cut_in_two(intent: Intent) -> Intent:
    """The intent of the first half of a batch; what it leaves is planned again, in batches that grow step by step.

    Raises:
        IntentError: it reads a single record.
    """
    records = sum(each.stop - each.start for each in intent.ranges)
    if records <= 1:
        where = ", ".join(f"{each.topic}-{each.partition}@{each.start}" for each in intent.ranges) or "no record"
        raise IntentError(
            f"Batch {intent.batch} is too large with nothing but {where}.",
            hint="give the stream more memory (DELTAWORKS_DRIVER_MEMORY, or that of the machine), or set the record "
            "aside: `deltaworks set-aside --help`",
        )
    ranges = _halved(intent.ranges, records // 2)
    end: Offsets = {topic: dict(parts) for topic, parts in intent.end.items()}
    for before in intent.ranges:
        end[before.topic][str(before.partition)] = before.start
    for each in ranges:
        end[each.topic][str(each.partition)] = each.stop
    return msgspec.structs.replace(intent, ranges=ranges, end=end, limit=records // 2)


def grown(limit: int | None, most: int) -> int | None:
    """How many records the batch after one with a limit may have; None: as many as any."""
    return None if limit is None or limit * 2 >= most else limit * 2


def _halved(ranges: list[Range], most: int) -> list[Range]:
    """Every partition in proportion to what it has, `most` records in all."""
    total = sum(each.stop - each.start for each in ranges)
    halves: list[Range] = []
    left = most
    for number, each in enumerate(ranges):
        others = sum(other.stop - other.start for other in ranges[number + 1 :])
        size = each.stop - each.start
        take = min(size, max(left - others, round(size * most / total)), left)
        left -= take
        if take:
            halves.append(Range(each.topic, each.partition, each.start, each.start + take))
    return halves


def _read(path: Path, batch: int) -> OpenBatch:
    """Reads what is known of a batch. A file of another batch, or one that cannot be read, counts from the start."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=OpenBatch)
    except (FileNotFoundError, msgspec.DecodeError):
        return OpenBatch(batch=batch)
    return found if found.batch == batch and found.format == 1 else OpenBatch(batch=batch)


def _write(path: Path, known: OpenBatch) -> None:
    replace_file(path, msgspec.json.encode(known), durable=True)
