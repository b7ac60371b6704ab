"""Sends dead letters again: to the topic and partition in which they failed, for the operator that failed.

A letter is sent once (`control.sending_again`). Whatever is sent, the stream takes a record only in the place of one
that has failed and was not taken since (`kernel.resend`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from deltaworks.control import jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.sending_again import SENT, Letter, Outgoing, Sender, require_partitions
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.lakehouse import catalog, dead_letters
from deltaworks.lakehouse.dead_letters import Failure, Wanted
from deltaworks.settings import Settings
from deltaworks.topology.nodes import AnyNode, Source
from deltaworks.topology.resend import HEADER, SentAgain, header_of, paths, target, without_header

NO_BYTES = "it has no bytes: a sink had taken the record before; DeadLetters(keep_bytes=True) keeps those of later ones"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Newest = dict[str, int]
"""`TOPIC-PARTITION` -> the largest offset of a letter's record. What fails later has larger ones."""


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
    judge = _Judge(pipeline, _sender(settings, name).sent())
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
    pipeline, sender = jobs.load(settings, name), _sender(settings, name)
    if not planned.letters:
        return 0
    require_partitions(sender.cluster, [record for _, record in planned.letters])

    def chosen(sent: frozenset[Letter]) -> Iterator[Outgoing]:
        judge = _Judge(pipeline, sent)
        for each in dead_letters.every(settings.tables, table_of(pipeline), planned.wanted):
            if (each.operator, each.record) in planned.letters and judge.stays(each) is None:
                yield _outgoing(name, each, judge)

    return sender.send(chosen, by=by, report=report)


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


def _sender(settings: Settings, name: str) -> Sender:
    return Sender(settings.cluster_of(name), name, PipelinePaths.of(settings, name).resends)


def _outgoing(name: str, letter: Failure, judge: _Judge) -> Outgoing:
    said = SentAgain(pipeline=name, operator=judge.target(letter), offset=letter.record.offset)
    return Outgoing(
        letter=(letter.operator, letter.record),
        key=letter.key,
        value=letter.value,
        timestamp_ms=_time_ms(letter),
        headers=(*without_header(letter.headers), (HEADER, said.encode())),
    )


def _time_ms(letter: Failure) -> int:
    return (catalog.in_utc(letter.timestamp) - _EPOCH) // timedelta(milliseconds=1)
