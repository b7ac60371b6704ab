"""Sends dead letters of a sink again: to the topic and partition in which they failed, as the records that they were.

A record is sent once (`control.sending_again`), also if it is in the topic of dead letters several times: a sink that
starts again may read it again. A header, that of streams, says that it is a repetition: every stream of deltaworks
skips the record. Other sinks and consumers of the topic take it, unless they look for the header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from deltaworks.connect.api import ConnectApi
from deltaworks.connectors import dead_letters
from deltaworks.connectors.dead_letters import HEADERS, TOPIC, Letter, topic_of
from deltaworks.control.sending_again import SENT, Outgoing, Sender, require_partitions
from deltaworks.control.sending_again import Letter as Sent
from deltaworks.errors import ConfigurationError
from deltaworks.kafka.admin import Position
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates
from deltaworks.topology.resend import HEADER, SentAgain, without_header

NO_PLACE = f"it does not say which record failed: {HEADERS}=true for those that come"
TWICE = "the same record, reported again"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Dead letters with one class of error, and what happens to them."""

    stage: str
    error_class: str
    count: int
    again: int
    """How many of them had been sent again already, and failed again."""
    stays: str | None
    """Why they are not sent; None: they are."""


@dataclass(frozen=True, kw_only=True)
class Resend:
    """What would be sent again."""

    connector: str
    topic: str
    """Of the dead letters."""
    groups: tuple[Group, ...]
    """Those that are sent first, the most frequent first."""
    records: frozenset[Coordinates] = field(repr=False)
    """Those that failed, and can be sent."""
    reads: Mapping[str, str] = field(repr=False)
    """The settings of the connector that say which topics it reads."""
    ends: Mapping[Position, int] = field(repr=False)
    """How far the letters go that were looked at."""

    @property
    def topics(self) -> list[str]:
        """Where the records go."""
        return sorted({record.topic for record in self.records})

    @property
    def count(self) -> int:
        """How many can be sent."""
        return len(self.records)


def plan(settings: Settings, api: ConnectApi, name: str, only: Collection[Coordinates] | None = None) -> Resend:
    """Says which dead letters of a connector can be sent again, and why others cannot; changes nothing.

    Args:
        settings: of the project and its Kafka.
        api: of a worker.
        name: the connector.
        only: these dead letters, by their places in the topic of dead letters; None: all.

    Raises:
        ConfigurationError: there is no such connector or dead letter, or it has no topic for them.
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer.
        KafkaTopicError: the topic of dead letters does not exist.
    """
    config, topic = of_connector(settings, api, name)
    sender, reads = _sender(settings, name), {each: config.get(each, "") for each in ("topics", "topics.regex")}
    judge, ends = _Judge(name, reads, sender.sent()), dead_letters.end_of(settings.cluster, topic)
    counts: Counter[tuple[str, str, str | None]] = Counter()
    again: Counter[tuple[str, str, str | None]] = Counter()
    records: set[Coordinates] = set()
    missing = set(only or ())
    for letter in dead_letters.every(settings.cluster, name, topic, ends):
        if only is not None and letter.at not in only:
            continue
        missing.discard(letter.at)
        stays = judge.stays(letter)
        if stays is None and letter.record is not None:
            stays = TWICE if letter.record in records else None
            records.add(letter.record)
        group = letter.stage, letter.error_class, stays
        counts[group] += 1
        again[group] += letter.again
    if missing:
        raise ConfigurationError(
            f"{', '.join(sorted(each.name for each in missing))} is no dead letter of {name}.",
            hint=f"deltaworks connect dead-letters {name} lists them; the topic may keep them no longer",
        )
    groups = [
        Group(stage=stage, error_class=error, count=count, again=again[stage, error, stays], stays=stays)
        for (stage, error, stays), count in sorted(counts.items(), key=lambda each: (each[0][2] or "", -each[1]))
    ]
    return Resend(connector=name, topic=topic, groups=tuple(groups), records=frozenset(records), reads=reads, ends=ends)


def send(settings: Settings, planned: Resend, *, by: str, report: Callable[[int], None] = lambda sent: None) -> int:
    """Sends the records of a plan that nobody has sent meanwhile.

    Args:
        settings: of the project and its Kafka.
        planned: from `plan`.
        by: who asked.
        report: told how many are sent after each transaction.

    Returns:
        How many were sent.

    Raises:
        TransientError: Kafka does not answer; nothing, or whole transactions, were sent. A new plan has the rest.
        KafkaTopicError: a topic is gone, or has lost the partition.
        ConfigurationError: a record does not fit into its topic, or another home has sent some before.
    """
    if not planned.records:
        return 0
    name = planned.connector
    require_partitions(settings.cluster, planned.records)

    def chosen(sent: frozenset[Sent]) -> Iterator[Outgoing]:
        judge, taken = _Judge(name, planned.reads, sent), set[Coordinates]()
        for letter in dead_letters.every(settings.cluster, name, planned.topic, planned.ends):
            record = letter.record
            if record in planned.records and record not in taken and judge.stays(letter) is None:
                taken.add(record)
                yield _outgoing(name, letter, record)

    return _sender(settings, name).send(chosen, by=by, report=report)


def of_connector(settings: Settings, api: ConnectApi, name: str) -> tuple[dict[str, str], str]:
    """The settings of a connector in the cluster, and the topic of its dead letters.

    Raises:
        ConfigurationError: there is no such connector, it has no topic for them, or it works with another cluster.
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer.
    """
    api.require(name)
    config = api.config(name) or {}
    if (topic := topic_of(config)) is None:
        raise ConfigurationError(
            f"Connector '{name}' keeps no dead letters: it has no {TOPIC}.",
            hint=f'a sink has them with dead_letters="{name}_failed" in its file: deltaworks connect apply {name}',
        )
    dead_letters.require_cluster(settings.cluster, api)
    return config, topic


class _Judge:
    """Says of each letter whether its record can be sent."""

    def __init__(self, name: str, reads: Mapping[str, str], sent: Collection[Sent]) -> None:
        self._name, self._sent = name, sent
        self._topics = {each.strip() for each in reads["topics"].split(",") if each.strip()}
        self._pattern = reads["topics.regex"]

    def stays(self, letter: Letter) -> str | None:
        """Why it is not sent; None: it is."""
        if letter.record is None:
            return NO_PLACE
        if (self._name, letter.record) in self._sent:
            return SENT
        return None if self._reads(letter.record.topic) else f"the connector does not read {letter.record.topic}"

    def _reads(self, topic: str) -> bool:
        if self._topics:
            return topic in self._topics
        try:
            return re.fullmatch(self._pattern, topic) is not None
        except re.error:  # Java's patterns know more; it has read the topic before
            return True


def _sender(settings: Settings, name: str) -> Sender:
    """A pipeline may have the same name, and none has a dot."""
    return Sender(settings.cluster, f"connect.{name}", settings.sent_again(name), alone=True)


def _outgoing(name: str, letter: Letter, record: Coordinates) -> Outgoing:
    said = SentAgain(pipeline=f"connect.{name}", operator=name, offset=record.offset)
    return Outgoing(
        letter=(name, record),
        key=letter.key,
        value=letter.value,
        timestamp_ms=max(letter.timestamp_ms, 0),
        headers=(*without_header(letter.headers), (HEADER, said.encode())),
    )
