"""Sends dead letters again: to the topic and partition in which they failed, for the operator that failed.

A letter is sent once. Each transaction has its number in a marker, as a batch of a task has, and what is in it was
written to a file before, which is renamed when Kafka has it. So after a kill the last marker says whether the file that
is left is true. Whatever is sent, the stream takes a record only in the place of one that has failed and was not taken
since (`kernel.resend`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec

from deltaworks import clock, formats
from deltaworks.config import Kafka
from deltaworks.control import jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, DeltaworksError, KafkaTopicError
from deltaworks.faults import reach
from deltaworks.files import alone, make_folder, replace_file, sync_folder
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import markers_place, markers_specification
from deltaworks.kafka.transactional import TransactionalSink
from deltaworks.kernel.sizes import record_size
from deltaworks.lakehouse import catalog, dead_letters
from deltaworks.lakehouse.dead_letters import Failure, Wanted
from deltaworks.settings import Settings
from deltaworks.topology.nodes import AnyNode, Source
from deltaworks.topology.records import Coordinates
from deltaworks.topology.resend import HEADER, SentAgain, header_of, paths, target, without_header

FORMAT = 1
PER_TRANSACTION = 1_000
"""Letters at most."""
NO_BYTES = "it has no bytes: a sink had taken the record before; DeadLetters(keep_bytes=True) keeps those of later ones"
SENT = "sent before"
_OPEN, _SETTLED = ".open", ".json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Letter = tuple[str, Coordinates]
"""The operator that failed, and the record."""
Newest = dict[str, int]
"""`TOPIC-PARTITION` -> the largest offset of a letter's record. What fails later has larger ones."""


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
class Group:
    """Dead letters of one operator with one class of error, and what happens to them."""

    operator: str
    error_class: str
    count: int
    again: int
    """How many of them had been sent again already, and failed again."""
    stays: str | None
    """Why they are not sent; None: they are."""


@dataclass(frozen=True, kw_only=True)
class Resend:
    """What would be sent again."""

    pipeline: str
    groups: tuple[Group, ...]
    """Those that are sent first, the most frequent first."""
    wanted: Wanted
    """Which dead letters were meant."""
    letters: frozenset[Letter] = field(repr=False)

    @property
    def topics(self) -> list[str]:
        """Where the records go."""
        return sorted({record.topic for _, record in self.letters})

    @property
    def newest(self) -> Newest:
        """How far the letters go."""
        found: Newest = {}
        for _, record in self.letters:
            place = f"{record.topic}-{record.partition}"
            found[place] = max(record.offset, found.get(place, -1))
        return found

    @property
    def count(self) -> int:
        """How many can be sent."""
        return len(self.letters)


def plan(settings: Settings, name: str, wanted: Wanted, up_to: Newest | None = None) -> Resend:
    """Says which dead letters can be sent again, and why others cannot; changes nothing.

    Args:
        settings: where the pipeline runs.
        name: the pipeline.
        wanted: which dead letters are meant.
        up_to: from an earlier plan: leaves out what has failed since. None: leaves nothing out.

    Raises:
        ConfigurationError: there is no such pipeline, or it has no table of dead letters.
    """
    pipeline = jobs.load(settings, name)
    judge = _Judge(pipeline, _sent(PipelinePaths.of(settings, name).resends))
    counts: Counter[tuple[str, str, str | None]] = Counter()
    again: Counter[tuple[str, str, str | None]] = Counter()
    letters: set[Letter] = set()
    for letter in dead_letters.every(settings.tables, table_of(pipeline), wanted):
        record = letter.record
        if up_to is not None and record.offset > up_to.get(f"{record.topic}-{record.partition}", -1):
            continue
        stays = judge.stays(letter)
        group = letter.operator, letter.error_class, stays
        counts[group] += 1
        again[group] += header_of(letter.headers) is not None
        if stays is None:
            letters.add((letter.operator, record))
    groups = [
        Group(operator=operator, error_class=error, count=count, again=again[operator, error, stays], stays=stays)
        for (operator, error, stays), count in sorted(counts.items(), key=lambda each: (each[0][2] or "", -each[1]))
    ]
    return Resend(pipeline=name, groups=tuple(groups), wanted=wanted, letters=frozenset(letters))


def readers(settings: Settings, planned: Resend) -> list[str]:
    """Other pipelines of the project that read the topics of a plan; they skip the records."""
    if not planned.topics:
        return []
    found = []
    for other in jobs.names(settings):
        with suppress(DeltaworksError):  # one that cannot be loaded does not run
            if other != planned.pipeline and any(map(jobs.load(settings, other).plan().uses, planned.topics)):
                found.append(other)
    return found


def send(settings: Settings, planned: Resend, *, by: str, report: Callable[[int], None] = lambda sent: None) -> int:
    """Sends the letters of a plan that nobody has sent meanwhile.

    Args:
        settings: where the pipeline runs.
        planned: from `plan`.
        by: who asked.
        report: told how many are sent after each transaction.

    Returns:
        How many were sent.

    Raises:
        TransientError: Kafka does not answer; nothing, or whole transactions, were sent. A new plan has the rest.
        KafkaTopicError: a topic is gone, or has lost the partition.
        ConfigurationError: a record no longer fits into its topic.
    """
    name = planned.pipeline
    pipeline, folder = jobs.load(settings, name), PipelinePaths.of(settings, name).resends
    if not planned.letters:
        return 0
    cluster = settings.cluster_of(name)
    _require_topics(cluster, planned)
    admin.create_topics(cluster, [markers_specification(name, "resends")])
    make_folder(folder)
    sent = 0
    place = markers_place(name, "resends", "resends")
    with alone(folder), closing(TransactionalSink(cluster, f"{name}-resends", 0, 0, place)) as sink:
        marker = sink.committed()
        number = -1 if marker is None else marker.batch
        for path in folder.glob(f"*{_OPEN}"):
            if int(path.stem) <= number:
                _settle(path)
            else:
                path.unlink()
        judge = _Judge(pipeline, _sent(folder))
        meant = dead_letters.every(settings.tables, table_of(pipeline), planned.wanted)
        chosen = (each for each in meant if (each.operator, each.record) in planned.letters)
        left = (each for each in chosen if judge.stays(each) is None)
        while letters := list(islice(left, PER_TRANSACTION)):
            number += 1
            _send(sink, name, number, letters, folder, by, judge)
            sent += len(letters)
            report(sent)
    return sent


def table_of(pipeline: Pipeline) -> str:
    """The table of a pipeline's dead letters.

    Raises:
        ConfigurationError: it has none.
    """
    letters = pipeline.dead_letters
    if letters.table is not None:
        return letters.table
    where = "they are only counted" if letters.topic is None else f"they go to the topic {letters.topic!r}"
    raise ConfigurationError(
        f"Pipeline {pipeline.name!r} has no table of dead letters: {where}.",
        hint="Pipeline(dead_letters=DeadLetters(table='dead_letters')) keeps those of later batches",
    )


class _Judge:
    """Says of each letter whether it can be sent."""

    def __init__(self, pipeline: Pipeline, sent: frozenset[Letter]) -> None:
        plan = pipeline.plan()
        stages = (*plan.stages, *plan.global_stages)
        self._nodes: list[dict[str, AnyNode]] = [{node.name: node for node in stage.nodes} for stage in stages]
        self._sent = sent
        self._reasons: dict[tuple[str, str], str | None] = {}

    def stays(self, letter: Failure) -> str | None:
        """Why it is not sent; None: it is."""
        if (letter.operator, letter.record) in self._sent:
            return SENT
        if letter.key is None and letter.value is None:
            return NO_BYTES
        if _time_ms(letter) < 0:
            return "its timestamp is negative, which no record of Kafka can have"
        try:
            operator = self.target(letter)
        except ValueError as error:
            return str(error)
        place = operator, letter.record.topic
        if place not in self._reasons:
            self._reasons[place] = self._reason(*place)
        return self._reasons[place]

    def target(self, letter: Failure) -> str:
        """The operator to which it is sent."""
        return target(self._stage_of(letter.operator), letter.operator, letter.headers)

    def _stage_of(self, operator: str) -> Mapping[str, AnyNode]:
        return next((nodes for nodes in self._nodes if operator in nodes), {})

    def _reason(self, operator: str, topic: str) -> str | None:
        nodes = self._stage_of(operator)
        found = paths(nodes, operator)
        if isinstance(found, str):
            return found
        sources = [node for name in found if isinstance(node := nodes[name], Source)]
        return None if any(each.reads(topic) for each in sources) else f"no record of the topic {topic} reaches it"


def _send(
    sink: TransactionalSink, name: str, number: int, letters: Sequence[Failure], folder: Path, by: str, judge: _Judge
) -> None:
    """One transaction."""
    note = _Sent(by=by, at_ms=clock.wall_ms(), letters=[(each.operator, each.record) for each in letters])
    path = folder / f"{number:012}{_OPEN}"
    replace_file(path, msgspec.json.encode(note), durable=True)
    reach("resends.noted")
    sink.begin(number, note.digest, number - 1)
    for letter in letters:
        said = SentAgain(pipeline=name, operator=judge.target(letter), offset=letter.record.offset)
        headers = (*without_header(letter.headers), (HEADER, said.encode()))
        limit = sink.limit(letter.record.topic)
        if limit is not None and (size := record_size(letter.key, letter.value, headers)) > limit:
            raise ConfigurationError(
                f"{letter.record.name} has {size:,} bytes when it is sent again; its topic takes {limit:,}.",
                hint="raise max.message.bytes of the topic, or leave the record out",
            )
        place = letter.record
        sink.send(place.topic, letter.key, letter.value, _time_ms(letter), headers, partition=place.partition)
    reach("resends.before_commit")
    sink.commit()
    reach("resends.committed")
    _settle(path)


def _time_ms(letter: Failure) -> int:
    return (catalog.in_utc(letter.timestamp) - _EPOCH) // timedelta(milliseconds=1)


def _sent(folder: Path) -> frozenset[Letter]:
    """All letters that were sent, perhaps without those of the last transaction, if its sender was killed."""
    return frozenset(letter for note in _notes(folder) for letter in note.letters)


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


def _require_topics(cluster: Kafka, planned: Resend) -> None:
    counts = admin.partition_counts_of(admin.admin(cluster))
    for _, record in planned.letters:
        if record.partition >= counts.get(record.topic, 0):
            raise KafkaTopicError(
                f"Partition {record.partition} of topic '{record.topic}' does not exist any more.",
                hint="a record can only be sent again to the partition in which it failed",
            )
