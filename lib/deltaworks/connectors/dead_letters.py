"""Dead letters of sinks: the topics to which Kafka Connect writes records that fail, and what it says of each.

A sink with `errors.deadletterqueue.topic.name` writes there the bytes of a record that it cannot convert, transform or
write. Headers that begin with `__connect.errors.` have the record's place and the error, where the connector says
`errors.deadletterqueue.context.headers.enable`. Counts are differences of offsets: no record is read for them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from deltaworks import clock
from deltaworks.config import Kafka
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.secrets import masked_values
from deltaworks.control import incidents
from deltaworks.errors import ConfigurationError, KafkaReadError, KafkaTopicError, TransientError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import Position
from deltaworks.kafka.control_topic import reader
from deltaworks.topology.records import Coordinates, Headers
from deltaworks.topology.resend import header_of

TOPIC, HEADERS = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.context.headers.enable"
PREFIX = "__connect.errors."
_CAUSED_BY = "Caused by: "
RECENT = timedelta(days=1)
SOON_S = 1.0
"""How long a listing waits for each answer of the broker."""
_POLL_S, _SILENCE_S = 0.5, 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A dead letter of a sink."""

    at: Coordinates
    """Its own place, in the topic of dead letters."""
    timestamp_ms: int
    """Of the record that failed, which keeps its time."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those of the record, without those of the error."""
    record: Coordinates | None = None
    """The record that failed; None: the letter does not say that."""
    connector: str | None = None
    """None: it does not say whose it is."""
    stage: str = ""
    """What Connect did with the record: `VALUE_CONVERTER`, `TRANSFORMATION`, `TASK_PUT`, ..."""
    executor: str = ""
    """The class that did so."""
    error_class: str = ""
    message: str = ""
    """Without what looks like a password."""
    stacktrace: str = ""

    @property
    def timestamp(self) -> datetime | None:
        """The time; None: it has none, or one that no calendar has."""
        try:
            return _EPOCH + timedelta(milliseconds=self.timestamp_ms) if self.timestamp_ms >= 0 else None
        except OverflowError:
            return None

    @property
    def why(self) -> str:
        """The message, and the last cause behind it, in one line."""
        causes = [line for line in self.stacktrace.splitlines() if line.startswith(_CAUSED_BY)]
        own = self.message.strip().partition("\n")[0]
        return f"{own} {causes[-1].removeprefix(_CAUSED_BY)}".strip() if causes else own

    @property
    def again(self) -> bool:
        """Whether the record had been sent again already, and failed again."""
        return header_of(self.headers) is not None


@dataclass(frozen=True, kw_only=True)
class Count:
    """The dead letters of a connector."""

    connector: str
    topic: str
    total: int
    """All that the topic holds, of whichever connectors it is."""
    recent: int
    """Those of them whose record has a time within the last 24 hours."""
    ever: int
    """All that the topic has ever got, also those that it no longer holds."""
    exists: bool = True
    """Whether the topic is there: Connect makes it when the first task starts."""


def topic_of(settings: Mapping[str, str]) -> str | None:
    """The topic to which a connector writes records that fail; None: its task fails instead, or they are dropped."""
    return settings.get(TOPIC, "").strip() or None


def require_cluster(kafka: Kafka, api: ConnectApi, *, timeout_s: float = 30.0) -> None:
    """Raises `ConfigurationError` if Kafka Connect works with another cluster than ours, `KafkaReadError` if ours does
    not answer."""
    ours, theirs = admin.cluster_id(kafka, timeout_s=timeout_s), api.cluster()
    if ours != theirs:
        raise ConfigurationError(
            f"Kafka Connect at {api.url} works with the cluster {theirs}; [kafka] in deltaworks.toml leads to {ours}.",
            hint="its dead letters are in its own cluster: bootstrap in [kafka], or url in [connect], is another's",
        )


def counts(kafka: Kafka, configs: Mapping[str, Mapping[str, str]], *, timeout_s: float = 30.0) -> tuple[Count, ...]:
    """How many dead letters connectors have, by the offsets of their topics.

    Args:
        kafka: the cluster that they work with.
        configs: connector -> its settings; those without a topic of dead letters are left out.
        timeout_s: how long the broker may take for each answer.

    Raises:
        KafkaReadError: it does not answer.
    """
    topics = {name: topic for name, each in configs.items() if (topic := topic_of(each)) is not None}
    if not topics:
        return ()
    since_ms = clock.wall_ms() - RECENT // timedelta(milliseconds=1)
    found = admin.record_counts(kafka, sorted(set(topics.values())), since_ms=since_ms, timeout_s=timeout_s)
    return tuple(
        Count(connector=name, topic=topic, total=total, recent=recent, ever=ever, exists=topic in found)
        for name, topic in sorted(topics.items())
        for total, recent, ever in [found.get(topic, (0, 0, 0))]
    )


def so_far(
    kafka: Kafka, api: ConnectApi, configs: Mapping[str, Mapping[str, str]], *, timeout_s: float = 5.0
) -> dict[str, incidents.Count]:
    """Connector -> how many dead letters its topic has ever got; one that does not exist yet has got none.

    Args:
        kafka: the cluster that they work with.
        api: of a worker.
        configs: connector -> its settings; those without a topic of dead letters are left out.
        timeout_s: how long the broker may take for its first answer.

    Raises:
        ConfigurationError: see `require_cluster`.
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer.
        KafkaTopicError: a topic was deleted meanwhile.
    """
    topics = {name: topic for name, each in configs.items() if (topic := topic_of(each)) is not None}
    if not topics:
        return {}
    require_cluster(kafka, api, timeout_s=timeout_s)
    ids = admin.topic_ids(admin.admin(kafka), set(topics.values()))
    written = dict.fromkeys(ids, 0)
    for (topic, _), end in admin.end_offsets(kafka, sorted(ids)).items():
        written[topic] += end
    return {
        name: incidents.Count(generation=zlib.crc32(ids.get(topic, "").encode()), dead_letters=written.get(topic, 0))
        for name, topic in topics.items()
    }


def counts_soon(kafka: Kafka, api: ConnectApi, configs: Mapping[str, Mapping[str, str]]) -> dict[str, Count] | None:
    """Connector -> its dead letters; None: the broker of this cluster has not said so soon."""
    if not any(map(topic_of, configs.values())):
        return {}
    try:
        require_cluster(kafka, api, timeout_s=SOON_S)
        return {each.connector: each for each in counts(kafka, configs, timeout_s=SOON_S)}
    except (ConfigurationError, TransientError):
        return None


def topics_soon(kafka: Kafka, api: ConnectApi) -> frozenset[str] | None:
    """All topics of the cluster with which Kafka Connect works; None: the broker has not said so soon, or it is another
    cluster than ours."""
    try:
        require_cluster(kafka, api, timeout_s=SOON_S)
        return frozenset(admin.partition_counts_of(admin.admin(kafka), timeout_s=SOON_S))
    except (ConfigurationError, TransientError):
        return None


def newest(kafka: Kafka, connector: str, topic: str, limit: int) -> list[Letter]:
    """The last dead letters of a connector, the newest first: by their offsets, as records keep their old times.

    Args:
        kafka: the cluster.
        connector: its name. In a topic that connectors share, only its own letters count.
        topic: of its dead letters.
        limit: how many at most.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: there is no such topic.
    """
    begins, ends = _bounds(kafka, topic)
    step = limit
    while True:
        starts = {at: max(begins[at], end - step) for at, end in ends.items()}
        found = [each for each in _read(kafka, starts, ends) if each.connector in (None, connector)]
        if len(found) >= limit or starts == begins:
            return sorted(found, key=lambda each: (each.at.offset, each.timestamp_ms), reverse=True)[:limit]
        step *= 8


def every(kafka: Kafka, connector: str, topic: str, ends: Mapping[Position, int] | None = None) -> Iterator[Letter]:
    """All dead letters of a connector, by partition and offset; raises like `newest`.

    Args:
        kafka: the cluster.
        connector: its name.
        topic: of its dead letters.
        ends: where to stop; None: at the present ends.
    """
    begins, now = _bounds(kafka, topic)
    stops = now if ends is None else {at: min(end, ends.get(at, 0)) for at, end in now.items()}
    return (each for each in _read(kafka, begins, stops) if each.connector in (None, connector))


def end_of(kafka: Kafka, topic: str) -> dict[Position, int]:
    """Where the dead letters of a topic end now; raises like `newest`."""
    return _bounds(kafka, topic)[1]


def decoded(message: Message) -> Letter:
    """A record of a topic of dead letters.

    Connect appends what it says, beginning with the topic. Whatever of that kind is before was the record's own: a sink
    may read dead letters, and fail.
    """
    given: Headers = tuple(_header(*each) for each in message.headers() or ())
    begins = [n for n, (name, _) in enumerate(given) if name == f"{PREFIX}topic"]
    own, of_error = (given[: begins[-1]], given[begins[-1] :]) if begins else (given, ())
    said = {name.removeprefix(PREFIX): _text(value) for name, value in of_error if name.startswith(PREFIX)}
    place = said.get("topic", ""), said.get("partition", ""), said.get("offset", "")
    is_placed = all(place) and place[1].isdecimal() and place[2].isdecimal()
    return Letter(
        at=Coordinates(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)),
        timestamp_ms=int(message.timestamp()[1]),
        key=message.key(),
        value=message.value(),
        headers=(*own, *(each for each in of_error if not each[0].startswith(PREFIX))),
        record=Coordinates(place[0], int(place[1]), int(place[2])) if is_placed else None,
        connector=said.get("connector.name"),
        stage=said.get("stage", ""),
        executor=said.get("class.name", ""),
        error_class=said.get("exception.class.name", ""),
        message=masked_values(said.get("exception.message", "")),
        stacktrace=masked_values(said.get("exception.stacktrace", "")),
    )


def _header(name: str, value: str | bytes | None) -> tuple[str, bytes | None]:
    return name, value.encode() if isinstance(value, str) else value


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _bounds(kafka: Kafka, topic: str) -> tuple[dict[Position, int], dict[Position, int]]:
    try:
        return admin.begin_offsets(kafka, [topic]), admin.end_offsets(kafka, [topic])
    except KafkaTopicError:
        raise KafkaTopicError(
            f"There is no topic '{topic}' of dead letters yet.",
            hint="Kafka Connect makes it when the first task of the connector starts: deltaworks connect status",
        ) from None


def _read(kafka: Kafka, starts: Mapping[Position, int], ends: Mapping[Position, int]) -> Iterator[Letter]:
    """The records between offsets, partition by partition."""
    with closing(reader(kafka)) as consumer:
        for topic, partition in sorted(starts):
            start, end = starts[topic, partition], ends[topic, partition]
            if start < end:
                consumer.assign([TopicPartition(topic, partition, start)])
                yield from map(decoded, messages(consumer, end, f"{topic}-{partition}"))


def messages(consumer: Consumer, end: int, at: str) -> Iterator[Message]:
    """The committed records of a partition up to an offset.

    Args:
        consumer: from `reader`, with the partition assigned.
        end: where to stop.
        at: names the partition in errors.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    until = clock.ticks_s() + _SILENCE_S
    while True:
        try:
            message = consumer.poll(_POLL_S)
        except KafkaException as error:
            raise KafkaReadError(f"{at} cannot be read: {error.args[0].str()}.") from error
        if message is None:
            if clock.ticks_s() > until:
                raise KafkaReadError(f"{at} was not read to its end within {_SILENCE_S:g} s.", hint="deltaworks status")
            continue
        until = clock.ticks_s() + _SILENCE_S
        if (reason := message.error()) is not None:
            if reason.code() == KafkaError._PARTITION_EOF:
                return
            if not reason.retriable():
                raise KafkaReadError(f"{at} cannot be read: {reason.str()}.")
            continue
        if (offset := int(message.offset() or 0)) < end:
            yield message
        if offset >= end - 1:
            return
