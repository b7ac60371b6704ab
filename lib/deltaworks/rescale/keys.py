"""How the producers of topics place keys, found out by looking, and whether unread records are where they belong."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deltaworks.errors import ConflictError, KafkaTopicError
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.state.splitting import DEFAULT, PARTITIONERS

SAMPLE = 1_000
"""Records of each new partition that are looked at."""
MOST_UNREAD = 200_000
"""Records that are read to see where their keys are; a stream that is further behind has to catch up first."""
Bounds = Mapping[tuple[str, int], int]


class Topics(Protocol):
    """The records of topics and their bounds, as of now."""

    def begins(self, topics: Sequence[str], /) -> Bounds: ...

    def ends(self, topics: Sequence[str], /) -> Bounds: ...

    def read(self, part: Range, /) -> Iterator[RecordBatch]: ...


@dataclass(frozen=True)
class Growth:
    """A topic whose keys decide where state belongs."""

    topic: str
    before: int
    """Number of partitions that the stream has read."""
    after: int


@dataclass(frozen=True)
class Placement:
    """Looks at the keys of topics.

    Args:
        there: the topics.
        wanted: the partitioner that the user names; None: it is found out.
    """

    there: Topics
    wanted: str | None = None
    found: dict[str, str] = field(default_factory=dict)
    """Topic -> the name of its partitioner."""

    def look(self, topics: Collection[Growth]) -> dict[str, str]:
        """The partitioners of topics, by the keys in their new partitions.

        Raises:
            KafkaTopicError: none of those that are known puts the keys there, or nothing tells which one.
        """
        names = [each.topic for each in topics]
        begins, ends = (self.there.begins(names), self.there.ends(names)) if names else ({}, {})
        for each in topics:
            self.found[each.topic] = self._partitioner(each, begins, ends)
        return self.found

    def require_placed(self, topics: Collection[Growth], read: Offsets) -> None:
        """Refuses while old partitions have unread records of keys whose state goes to another task.

        Args:
            topics: of which.
            read: where the stream goes on.

        Raises:
            ConflictError: there are some, or too many unread records to look at.
        """
        grown = [each for each in topics if each.before != each.after]
        ends = self.there.ends([each.topic for each in grown]) if grown else {}
        for each in grown:
            unread = [
                Range(each.topic, partition, start, stop)
                for partition in range(each.before)
                if (start := int(read.get(each.topic, {}).get(str(partition), 0)))
                < (stop := ends.get((each.topic, partition), 0))
            ]
            count = sum(part.stop - part.start for part in unread)
            if count > MOST_UNREAD:
                raise ConflictError(
                    f"The stream has not read {count:,} records of '{each.topic}' yet.",
                    hint="let it catch up with the partitions that it reads, which it still does; then rescale",
                )
            hash_of = PARTITIONERS[self.found[each.topic]]
            waiting = sum(
                hash_of(key) % each.after != batch.partition for part in unread for batch, key in self._keys(part)
            )
            if waiting:
                raise ConflictError(
                    f"{waiting:,} of the {count:,} records of '{each.topic}' that are not read yet were written before "
                    "their producers knew of the new partitions; the tasks that have the state of their keys now must "
                    "read them.",
                    hint="let the stream go on until it has read them, which it does with the partitions that it knows",
                )

    def _partitioner(self, growth: Growth, begins: Bounds, ends: Bounds) -> str:
        candidates = [self.wanted] if self.wanted is not None else list(PARTITIONERS)
        sampled = 0
        for partition in range(growth.before, growth.after):
            begin = begins.get((growth.topic, partition), 0)
            end = min(ends.get((growth.topic, partition), 0), begin + SAMPLE)
            for batch, key in self._keys(Range(growth.topic, partition, begin, end)):
                sampled += 1
                candidates = [name for name in candidates if PARTITIONERS[name](key) % growth.after == batch.partition]
                if not candidates:
                    raise self._unknown(growth, partition)
        if sampled or self.wanted is not None:
            return candidates[0]
        if growth.before == 1:
            raise KafkaTopicError(
                f"The new partitions of '{growth.topic}' have no records, so nothing tells how producers place keys.",
                hint="wait for records, or name their partitioner: --partitioner murmur2 (that of Java) or crc32 "
                "(librdkafka's default)",
            )
        return DEFAULT  # the state tells whether it is that one

    def _unknown(self, growth: Growth, partition: int) -> KafkaTopicError:
        where = f"Partition {partition} of '{growth.topic}' has a key that"
        if self.wanted is not None:
            said = f"{where} {self.wanted} does not put there."
        else:
            said = f"{where} neither {' nor '.join(PARTITIONERS)} puts there: its producers choose in another way."
        return KafkaTopicError(
            said,
            hint="where keys do not decide, nobody knows which task needs which state: the stream can go on with the "
            "partitions that it had, or start over",
        )

    def _keys(self, part: Range) -> Iterator[tuple[RecordBatch, bytes]]:
        """The keys of a range, those that there are."""
        if part.start >= part.stop:
            return
        for batch in self.there.read(part):
            for key in batch.keys:
                if key is not None:
                    yield batch, key
