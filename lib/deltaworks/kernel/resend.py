"""What a task does with records that failed and are sent again.

It remembers which records have failed, in the reserved store `__task__`. A record that is sent again is processed if
the one that it stands for has failed here and has not been processed since, else it is skipped. So it counts once:
if it is sent twice, and in a replay in which the first one does not fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from operator import or_
from struct import iter_unpack, pack

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.build import processor
from deltaworks.kernel.processors.wiring import Wiring, nowhere
from deltaworks.kernel.records import Coordinates, DeadLetter
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.kernel.task_times import FAILED, TASK_STORE
from deltaworks.topology.nodes import Source
from deltaworks.topology.resend import SentAgain, paths, target

BLOCK = 8192
"""Offsets per entry of the store."""
MOST_BLOCKS = 10_000
"""Entries per partition and operator; the ones with the lowest offsets go first."""
_Place = tuple[str, int, str]
"""Topic, partition, operator."""


class FailedRecords:
    """The records of a task that have failed, by partition and operator."""

    def __init__(self, reader: StateReader) -> None:
        self._blocks: dict[_Place, dict[int, int]] = defaultdict(dict)
        """Place -> number of the block -> a bit per offset."""
        self._changed: set[tuple[_Place, int]] = set()
        for key, entry in reader.scan(FAILED.encode(), FAILED.encode() + b"\xff"):
            topic, partition, number, operator = key.decode().removeprefix(FAILED).split("/", 3)
            self._blocks[topic, int(partition), operator][int(number)] = _bits(entry)

    def add(self, operator: str, record: Coordinates) -> None:
        """A record has failed in an operator."""
        place, number = (record.topic, record.partition, operator), record.offset // BLOCK
        blocks = self._blocks[place]
        blocks[number] = blocks.get(number, 0) | 1 << record.offset % BLOCK
        self._changed.add((place, number))
        if len(blocks) > MOST_BLOCKS:
            del blocks[(oldest := min(blocks))]
            self._changed.add((place, oldest))

    def take(self, operator: str, record: Coordinates) -> bool:
        """Whether the record has failed there; it has not any more."""
        place, number = (record.topic, record.partition, operator), record.offset // BLOCK
        blocks = self._blocks.get(place, {})
        bit = 1 << record.offset % BLOCK
        if not (before := blocks.get(number, 0)) & bit:
            return False
        if left := before & ~bit:
            blocks[number] = left
        else:
            del blocks[number]
        self._changed.add((place, number))
        return True

    def add_to(self, changes: dict[str, StoreChanges]) -> None:
        """Adds what has changed to a commit, once."""
        if not self._changed:
            return
        entries: list[tuple[bytes, bytes | None]] = []
        for place, number in self._changed:
            topic, partition, operator = place
            bits = self._blocks[place].get(number)
            entry = None if bits is None else _entry(bits)
            entries.append((f"{FAILED}{topic}/{partition}/{number:015}/{operator}".encode(), entry))
        others = changes.get(TASK_STORE, StoreChanges([]))
        changes[TASK_STORE] = StoreChanges(sorted([*others.entries, *entries]))
        self._changed.clear()


class Resends:
    """Decides about the records of a stage that are sent again.

    Args:
        pipeline: its name; None: it takes no record again.
        wiring: of the task.
        failed: the task's records that have failed.
        timed: given the entry of a record, keeps the stream time.
    """

    def __init__(
        self, pipeline: str | None, wiring: Wiring, failed: FailedRecords, timed: Callable[[Process], Process]
    ) -> None:
        self._pipeline = pipeline
        self._wiring = wiring
        self._failed = failed
        self._timed = timed
        self._takes_again: dict[str, bool] = {}
        """Operator -> whether its records can be sent again, as far as somebody has asked."""
        self._entries: dict[tuple[str, str], Process] = {}

    def failed(self, letter: DeadLetter) -> None:
        """A record has failed."""
        try:
            operator = target(self._wiring.nodes, letter.operator, letter.headers)
        except ValueError:
            return
        if operator != letter.operator or self._is_taken_again(operator):
            self._failed.add(operator, letter.source)

    def _is_taken_again(self, operator: str) -> bool:
        if operator not in self._takes_again:
            self._takes_again[operator] = not isinstance(paths(self._wiring.nodes, operator), str)
        return self._takes_again[operator]

    def entry(self, source: Source, record: Coordinates, header: bytes | None) -> Process | None:
        """Where a record enters; None: it is skipped.

        Args:
            source: reads it.
            record: where it was read.
            header: what it says.

        Raises:
            ValueError: the header is not understood, or names an operator that takes no record again.
        """
        said = SentAgain.decode(header)
        if said.pipeline != self._pipeline:
            return None
        if not self._failed.take(said.operator, Coordinates(record.topic, record.partition, said.offset)):
            return None
        place = source.name, said.operator
        if place not in self._entries:
            self._entries[place] = self._timed(self._built(source, said))
        return self._entries[place]

    def _built(self, source: Source, said: SentAgain) -> Process:
        """The operator, behind copies of those before it that hand a record to it alone."""
        wiring = self._wiring
        if said.operator == source.name:
            return wiring.processes[source.name]
        found = paths(wiring.nodes, said.operator)
        path = found if isinstance(found, str) else found.get(source.name, f"no record of {source.name} reaches it")
        if isinstance(path, str):
            raise ValueError(f"this record is sent again to the operator {said.operator!r}, but {path}")
        alone = replace(wiring, processes=defaultdict(lambda: nowhere))
        alone.processes[said.operator] = wiring.processes[said.operator]
        for name in reversed(path):
            alone.processes[name] = processor(wiring.nodes[name], alone)
        return alone.processes[source.name]


def _entry(bits: int) -> bytes:
    """A mark, then the offsets in the block with two bytes each, or the bits, whichever is shorter."""
    size = (bits.bit_length() + 7) // 8
    if bits.bit_count() * 2 >= size:
        return b"B" + bits.to_bytes(size, "big")
    offsets: list[int] = []
    while bits:
        lowest = bits & -bits
        offsets.append(lowest.bit_length() - 1)
        bits ^= lowest
    return b"O" + pack(f">{len(offsets)}H", *offsets)


def both(entries: Iterable[bytes]) -> bytes:
    """The entry of several tasks, of the same block: all of its records that have failed in one of them."""
    return _entry(reduce(or_, map(_bits, entries)))


def _bits(entry: bytes) -> int:
    if entry[:1] == b"B":
        return int.from_bytes(entry[1:], "big")
    return sum(1 << offset for (offset,) in iter_unpack(">H", entry[1:]))
