"""Sends records again that have failed: each once, however often it is asked for, and whenever the sender is killed.

Each transaction has its number in a marker, as a batch of a task has, and what is in it was written to a file before,
which is renamed when Kafka has it. So after a kill the last marker says whether the file that is left is true.

What is sent again, and where it goes, others know: `control.resends` for streams, `connectors.resends` for sinks of
Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec

from deltaworks import clock, formats
from deltaworks.config import Kafka
from deltaworks.errors import ConfigurationError, KafkaTopicError
from deltaworks.faults import reach
from deltaworks.files import alone, make_folder, replace_file, sync_folder
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import markers_place, markers_specification
from deltaworks.kafka.transactional import TransactionalSink
from deltaworks.kernel.sizes import record_size
from deltaworks.topology.records import Coordinates, Headers

FORMAT = 1
PER_TRANSACTION = 1_000
"""Letters at most."""
SENT = "sent before"
_OPEN, _SETTLED = ".open", ".json"
Letter = tuple[str, Coordinates]
"""Who failed, an operator or a connector, and on which record."""


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The letters of one transaction."""

    format: int = FORMAT
    by: str
    at_ms: int
    letters: list[Letter]

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self.letters)).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A record as it is sent again; it goes to the topic and partition in which it failed."""

    letter: Letter
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers

    @property
    def place(self) -> Coordinates:
        """The record that failed."""
        return self.letter[1]


@dataclass(frozen=True)
class Sender:
    """Who sends.

    Args:
        cluster: the cluster that has the topics.
        name: of what has failed: it names the markers, and begins the transactional id.
        folder: where it is noted what was sent.
        alone: nobody else knows what was sent, so nothing is sent if notes of former transactions are missing.
    """

    cluster: Kafka
    name: str
    folder: Path
    alone: bool = False

    def sent(self) -> frozenset[Letter]:
        """All letters that were sent, perhaps without those of the last transaction, if its sender was killed."""
        return frozenset(letter for note in _notes(self.folder) for letter in note.letters)

    def send(
        self,
        chosen: Callable[[frozenset[Letter]], Iterable[Outgoing]],
        *,
        by: str,
        report: Callable[[int], None] = lambda sent: None,
    ) -> int:
        """Sends records that nobody has sent.

        Args:
            chosen: told which letters were sent; says what is to be sent of the others.
            by: who asked.
            report: told how many are sent after each transaction.

        Returns:
            How many were sent.

        Raises:
            TransientError: Kafka does not answer; nothing, or whole transactions, were sent.
            ConfigurationError: a record does not fit into its topic, or the notes are elsewhere.
        """
        admin.create_topics(self.cluster, [markers_specification(self.name, "resends")])
        make_folder(self.folder)
        sent = 0
        place = markers_place(self.name, "resends", "resends")
        own = f"{self.name}-resends"
        with alone(self.folder), closing(TransactionalSink(self.cluster, own, 0, 0, place)) as sink:
            marker = sink.committed()
            number = -1 if marker is None else marker.batch
            for path in self.folder.glob(f"*{_OPEN}"):
                if int(path.stem) <= number:
                    _settle(path)
                else:
                    path.unlink()
            if self.alone and number >= 0 and not (self.folder / f"{number:012}{_SETTLED}").is_file():
                raise self._not_here(place.topic)
            left = iter(chosen(self.sent()))
            while records := list(islice(left, PER_TRANSACTION)):
                number += 1
                _send(sink, number, records, self.folder, by)
                sent += len(records)
                report(sent)
        return sent

    def _not_here(self, topic: str) -> ConfigurationError:
        return ConfigurationError(
            f"Dead letters of {self.name} were sent again before, and {self.folder} does not say which.",
            hint="send them from the home that has sent others. If that is gone, delete the topic "
            f"{topic}: then all count as not sent yet",
        )


def require_partitions(cluster: Kafka, records: Collection[Coordinates]) -> None:
    """Raises `KafkaTopicError` if the partition of a record, or its topic, is gone."""
    counts = admin.partition_counts_of(admin.admin(cluster))
    for record in records:
        if record.partition >= counts.get(record.topic, 0):
            raise KafkaTopicError(
                f"Partition {record.partition} of topic '{record.topic}' does not exist any more.",
                hint="a record can only be sent again to the partition in which it failed",
            )


def _send(sink: TransactionalSink, number: int, records: Sequence[Outgoing], folder: Path, by: str) -> None:
    """One transaction."""
    note = _Sent(by=by, at_ms=clock.wall_ms(), letters=[each.letter for each in records])
    path = folder / f"{number:012}{_OPEN}"
    replace_file(path, msgspec.json.encode(note), durable=True)
    reach("resends.noted")
    sink.begin(number, note.digest, number - 1)
    for each in records:
        place = each.place
        limit = sink.limit(place.topic)
        if limit is not None and (size := record_size(each.key, each.value, each.headers)) > limit:
            raise ConfigurationError(
                f"{place.name} has {size:,} bytes when it is sent again; its topic takes {limit:,}.",
                hint="raise max.message.bytes of the topic, or leave the record out",
            )
        sink.send(place.topic, each.key, each.value, each.timestamp_ms, each.headers, partition=place.partition)
    reach("resends.before_commit")
    sink.commit()
    reach("resends.committed")
    _settle(path)


def _notes(folder: Path) -> Iterator[_Sent]:
    what, other = "which lists dead letters that were sent again,", "deploy the version of deltaworks that wrote it"
    for path in sorted(folder.glob(f"*{_SETTLED}")):
        note = formats.read(path, _Sent, FORMAT, f"{path}, {what}", other=other)
        if note is not None:
            yield note


def _settle(path: Path) -> None:
    """Kafka has the transaction of the note."""
    path.rename(path.with_suffix(_SETTLED))
    sync_folder(path.parent)
