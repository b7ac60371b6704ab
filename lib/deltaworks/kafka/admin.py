"""Administration of topics and offsets.

Every function opens and closes its own admin connection, unless it gets a client. For records see `transactional`
(writing) and the streaming host (reading).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, NewTopic, OffsetSpec, ResourceType

from deltaworks import clock
from deltaworks.config import Kafka
from deltaworks.dsl.pipeline import Topic
from deltaworks.errors import ConfigurationError, KafkaReadError, KafkaTopicError
from deltaworks.kafka.clients import WHERE_TO_LOOK, make

Position = tuple[str, int]
"""Topic and partition."""

_TIMEOUT_S = 30.0
_LISTEN_S = 2.0
"""How often a client that waits for an answer looks whether it was refused."""
_POLL_S = 0.02
_STOCK_TRANSACTION_MS = 900_000
_SHORT_TRANSACTION_MS = 60_000
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,  # the client's own "No leaders found"
)
"""Errors that pass in a moment: of a topic that was just created, or a broker that just started or was suspended."""
SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Silences the client, which would log hundreds of refused connections while a broker starts."""


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """The specification of a topic."""

    name: str
    partitions: int
    replication: int = 1
    """Replication factor; -1: the broker's default."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings such as `{"cleanup.policy": "compact"}`; only for a topic that does not exist yet."""


def topic_specs(topics: Iterable[Topic]) -> list[TopicSpec]:
    """The specifications of a pipeline's topics."""
    return [
        TopicSpec(
            name=topic.name,
            partitions=topic.partitions,
            replication=-1 if topic.replication is None else topic.replication,
            config={**({"cleanup.policy": "compact"} if topic.compacted else {}), **topic.config},
        )
        for topic in topics
    ]


def admin(bootstrap: Kafka) -> AdminClient:
    """A client that does not log."""
    return make(AdminClient, bootstrap, {"log_level": 0, "socket.timeout.ms": 10_000}, logger=SILENT)


def answers(bootstrap: Kafka, *, timeout_s: float = 2.0) -> bool:
    """Whether a broker with a controller answers the admin protocol."""
    client = admin(bootstrap)  # a client that is collected while it works never answers
    try:
        cluster = client.describe_cluster(request_timeout=timeout_s).result(timeout_s + 1)
    except (KafkaException, TimeoutError):
        return False
    return cluster.controller is not None


def refusal(bootstrap: Kafka, *, timeout_s: float = 5.0) -> ConfigurationError | None:
    """Why the cluster does not let our clients in; None: it does, or it does not answer at all.

    Raises:
        ConfigurationError: the settings of the clients are wrong.
    """
    client = _Listening(bootstrap)
    with suppress(KafkaException, TimeoutError):
        client.client.describe_cluster(request_timeout=timeout_s).result(timeout_s + 1)
    return client.refusal()


class _Listening:
    """A client that remembers what brokers say to it; its own answers only say that time is over."""

    def __init__(self, bootstrap: Kafka) -> None:
        self._bootstrap = bootstrap
        self._said: list[KafkaError] = []
        ours = {"log_level": 0, "socket.timeout.ms": 10_000, "error_cb": self._said.append}
        self.client = make(AdminClient, bootstrap, ours, logger=SILENT)

    def refusal(self) -> ConfigurationError | None:
        """Why it was not let in; None: it was, or nobody has answered yet."""
        self.client.poll(0)  # hands over what it has met meanwhile
        for reason in self._said:
            # What a broker says about our certificate arrives as a failed transport.
            if reason.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "SSL alert" in reason.str():
                return ConfigurationError(
                    f"Kafka at {self._bootstrap} refuses our clients: {reason.str()}.", hint=WHERE_TO_LOOK
                )
        return None


def check_partitions(existing: Mapping[str, int], topics: Iterable[TopicSpec]) -> None:
    """Checks that topics that exist have the partitions that they need.

    Raises:
        KafkaTopicError: a topic has another number of partitions.
    """
    for topic in topics:
        if existing.get(topic.name, topic.partitions) != topic.partitions:
            raise KafkaTopicError(
                f"Topic '{topic.name}' has {existing[topic.name]} partitions, but needs {topic.partitions}.",
                hint="the number of tasks, and so the state, depends on it; use another topic, or delete this one",
            )


def differences(bootstrap: Kafka, topics: Sequence[TopicSpec]) -> list[str]:
    """What differs between topics that exist and their specifications, in words; partitions are not compared.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    told = []
    settings = _settings(bootstrap, [topic.name for topic in topics if topic.config])
    for topic in topics:
        for name, wanted in topic.config.items():
            found = settings[topic.name].get(name)
            if found != wanted:
                told.append(f"topic '{topic.name}' has {name}={found}, but the pipeline says {wanted}")
    replicas = _replicas(bootstrap, [topic.name for topic in topics if topic.replication > 0])
    for topic in topics:
        if topic.replication > 0 and replicas[topic.name] != topic.replication:
            told.append(
                f"topic '{topic.name}' has {replicas[topic.name]} replicas, but the pipeline says {topic.replication}"
            )
    return told


def _replicas(bootstrap: Kafka, topics: Sequence[str]) -> dict[str, int]:
    if not topics:
        return {}
    client = admin(bootstrap)  # a client that is collected while it works never answers
    try:
        answers = client.describe_topics(TopicCollection(list(topics)), request_timeout=_TIMEOUT_S)
        found = {name: answer.result() for name, answer in answers.items()}
    except KafkaException as error:
        raise KafkaReadError(f"The replicas of {', '.join(topics)} cannot be read: {error.args[0].str()}.") from error
    return {name: min(len(partition.replicas) for partition in topic.partitions) for name, topic in found.items()}


def create_topics(bootstrap: Kafka, topics: Iterable[TopicSpec]) -> list[str]:
    """Creates the topics that do not exist yet and waits until they can be used.

    Returns:
        The names of those that were created.

    Raises:
        KafkaTopicError: a topic exists with another number of partitions, or cannot be created.
    """
    wanted = {topic.name: topic for topic in topics}
    if not wanted:
        return []
    client = admin(bootstrap)
    existing = partition_counts_of(client)
    check_partitions(existing, wanted.values())
    missing = [
        NewTopic(t.name, num_partitions=t.partitions, replication_factor=t.replication, config=dict(t.config))
        for t in wanted.values()
        if t.name not in existing
    ]
    if not missing:
        return []
    created = []
    for name, future in client.create_topics(missing, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise KafkaTopicError(f"Topic '{name}' cannot be created: {reason.str()}.") from error
    wait_for(client, {t.name: t.partitions for t in wanted.values()})
    return created


def delete_topics(bootstrap: Kafka, names: Sequence[str]) -> None:
    """Deletes topics and waits until they are gone; ignores topics that do not exist."""
    if not names:
        return
    client = admin(bootstrap)
    for name, future in client.delete_topics(list(names), operation_timeout=_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaTopicError(f"Topic '{name}' cannot be deleted: {reason.str()}.") from error
    wait_for(client, dict.fromkeys(names))


def partition_counts(bootstrap: Kafka) -> dict[str, int]:
    """The number of partitions of every topic that is not Kafka's own.

    Raises:
        ConfigurationError: a broker does not let our clients in; at once, since it would not do so later either.
        KafkaReadError: no broker answers.
    """
    client, end = _Listening(bootstrap), clock.ticks_s() + _TIMEOUT_S
    while True:
        try:
            counts = partition_counts_of(client.client, timeout_s=_LISTEN_S)
        except KafkaReadError:
            if (refused := client.refusal()) is not None:
                raise refused from None
            if clock.ticks_s() > end:
                raise
        else:
            return {name: count for name, count in counts.items() if not name.startswith("__")}


def compacted(bootstrap: Kafka, topics: Collection[str]) -> frozenset[str]:
    """The topics that the broker compacts, whoever created them."""
    settings = _settings(bootstrap, topics)
    return frozenset(name for name, config in settings.items() if "compact" in config["cleanup.policy"].split(","))


def kept_ms(bootstrap: Kafka, topics: Collection[str]) -> dict[str, int | None]:
    """The age at which the broker removes records of each topic; None if age does not decide.

    The broker removes a segment when its newest record is this old.
    """
    return {
        name: int(config["retention.ms"])
        if config["cleanup.policy"] == "delete" and config["retention.bytes"] == "-1" and config["retention.ms"] != "-1"
        else None
        for name, config in _settings(bootstrap, topics).items()
    }


def _settings(bootstrap: Kafka, topics: Collection[str]) -> dict[str, dict[str, str]]:
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not wanted:
        return {}
    client = admin(bootstrap)  # a client that is collected while it works never answers
    try:
        answers = client.describe_configs(wanted, request_timeout=_TIMEOUT_S)
        found = {resource.name: future.result() for resource, future in answers.items()}
    except KafkaException as error:
        raise KafkaReadError(f"The settings of {', '.join(topics)} cannot be read: {error.args[0].str()}.") from error
    return {name: {key: entry.value for key, entry in config.items()} for name, config in found.items()}


def record_limits(bootstrap: Kafka, topics: Collection[str]) -> dict[str, int]:
    """The maximum size of a batch of records per topic, in bytes (`max.message.bytes`)."""
    return {name: int(config["max.message.bytes"]) for name, config in _settings(bootstrap, topics).items()}


def transaction_timeout_ms(bootstrap: Kafka) -> int:
    """The broker's limit for the duration of a transaction; if it does not tell, the default of brokers.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    found = broker_settings(admin(bootstrap))
    return _STOCK_TRANSACTION_MS if found is None else int(found["transaction.max.timeout.ms"])


def broker_settings(client: AdminClient) -> dict[str, str] | None:
    """The settings of a broker; None: the cluster does not let us read them.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    try:
        broker = next(iter(client.list_topics(timeout=_TIMEOUT_S).brokers))
        wanted = ConfigResource(ResourceType.BROKER, str(broker))
        config = client.describe_configs([wanted], request_timeout=_TIMEOUT_S)[wanted].result()
        return {name: entry.value for name, entry in config.items()}
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return None
        raise KafkaReadError(
            f"The settings of the broker cannot be read: {reason.str()}.", hint="is it running? `deltaworks status`"
        ) from error


def short_transactions(limit_ms: int) -> str | None:
    """What is wrong with the broker's limit for transactions; None: it is long enough for usual batches."""
    if limit_ms >= _SHORT_TRANSACTION_MS:
        return None
    return (
        f"the brokers end a transaction after {limit_ms / 1000:.0f} s: a batch that takes longer is aborted and runs "
        "again; raise their transaction.max.timeout.ms"
    )


@dataclass(frozen=True)
class TopicState:
    """The broker's description of a topic."""

    id: str
    """Id of the topic; a recreated topic has another one."""
    partitions: int


def topic_states(client: AdminClient, topics: Collection[str]) -> dict[str, TopicState]:
    """Id and number of partitions of some topics, in one request; those that do not exist are absent.

    Args:
        client: a client from `admin`; keep it for frequent calls, since a new one costs ten times as much as a request.
        topics: names of the topics.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    if not topics:
        return {}
    found = {}
    answers = client.describe_topics(TopicCollection(sorted(topics)), request_timeout=_TIMEOUT_S)
    for name, answer in answers.items():
        try:
            topic = answer.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
                continue
            raise KafkaReadError(
                f"Topic '{name}' cannot be described: {reason.str()}.",
                hint="is the broker running? `deltaworks status`",
            ) from error
        found[name] = TopicState(str(topic.topic_id), len(topic.partitions))
    return found


def topic_ids(client: AdminClient, topics: Collection[str]) -> dict[str, str]:
    """The ids of some topics; see `topic_states`."""
    return {name: state.id for name, state in topic_states(client, topics).items()}


def begin_offsets(bootstrap: Kafka, topics: Sequence[str]) -> dict[Position, int]:
    """The first existing offset per partition."""
    return _offsets(bootstrap, topics, OffsetSpec.earliest())


def end_offsets(
    bootstrap: Kafka, topics: Sequence[str], *, committed: bool = True, timeout_s: float = _TIMEOUT_S
) -> dict[Position, int]:
    """The offset after the last record, per partition.

    Args:
        bootstrap: the cluster.
        topics: all of them exist.
        committed: stop at the first open transaction, as a `read_committed` reader does.
        timeout_s: how long the broker may take for each of two answers, and a partition to get a leader.

    Raises:
        KafkaReadError: it does not answer, or a partition has no leader.
        KafkaTopicError: there is no such topic.
    """
    return _offsets(bootstrap, topics, OffsetSpec.latest(), committed=committed, timeout_s=timeout_s)


def offsets_at(bootstrap: Kafka, topics: Sequence[str], timestamp_ms: int) -> dict[Position, int]:
    """The first offset per partition whose record is not earlier than the timestamp; the end if there is none."""
    found = _offsets(bootstrap, topics, OffsetSpec.for_timestamp(timestamp_ms))
    ends = end_offsets(bootstrap, topics)
    return {position: ends[position] if offset < 0 else offset for position, offset in found.items()}


def record_counts(
    bootstrap: Kafka, topics: Collection[str], *, since_ms: int, timeout_s: float = _TIMEOUT_S
) -> dict[str, tuple[int, int, int]]:
    """How many records topics hold, how many of them are not earlier than a time, and how many they have ever got.

    That is known by their offsets alone.

    Offsets that compaction and transactions have taken count, too.

    Args:
        bootstrap: the cluster.
        topics: those that do not exist are left out of the answer.
        since_ms: the time, which is compared with that of the records.
        timeout_s: how long the broker may take for each of four answers.

    Raises:
        KafkaReadError: it does not answer.
    """
    client = admin(bootstrap)
    partitions = partition_counts_of(client, timeout_s=timeout_s)
    places = [TopicPartition(topic, n) for topic in topics for n in range(partitions.get(topic, 0))]
    if not places:
        return {}
    specs = OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(since_ms)
    deadline = clock.ticks_s() + timeout_s
    while True:
        try:
            asked = [client.list_offsets(dict.fromkeys(places, spec), request_timeout=timeout_s) for spec in specs]
            begins, ends, first = map(listed, asked)
            break
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or clock.ticks_s() > deadline:
                told = error.args[0].str()
                raise KafkaReadError(f"Offsets of {', '.join(topics)} cannot be read: {told}.") from error
            time.sleep(_POLL_S)
    found: dict[str, tuple[int, int, int]] = {}
    for at in places:
        everything, recent, ever = found.get(at.topic, (0, 0, 0))
        new = 0 if first[at] < 0 else ends[at] - first[at]
        found[at.topic] = everything + ends[at] - begins[at], recent + new, ever + ends[at]
    return found


def cluster_id(bootstrap: Kafka, *, timeout_s: float = _TIMEOUT_S) -> str:
    """The id of the cluster.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    try:
        return str(admin(bootstrap).list_topics(timeout=timeout_s).cluster_id)
    except KafkaException as error:
        raise KafkaReadError(
            f"The broker does not answer: {error.args[0].str()}.", hint="is it running? `deltaworks status`"
        ) from error


def _offsets(
    bootstrap: Kafka,
    topics: Sequence[str],
    spec: OffsetSpec,
    *,
    committed: bool = True,
    timeout_s: float = _TIMEOUT_S,
) -> dict[Position, int]:
    client = admin(bootstrap)
    counts = partition_counts_of(client, timeout_s=timeout_s)
    unknown = [topic for topic in topics if topic not in counts]
    if unknown:
        raise KafkaTopicError(f"There is no topic {', '.join(map(repr, unknown))} at {bootstrap}.")
    wanted = {TopicPartition(topic, partition): spec for topic in topics for partition in range(counts[topic])}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    if not wanted:
        return {}
    deadline = clock.ticks_s() + timeout_s
    while True:
        try:
            futures = client.list_offsets(wanted, isolation_level=level, request_timeout=timeout_s)
            return {(at.topic, at.partition): offset for at, offset in listed(futures).items()}
        except KafkaException as error:
            if error.args[0].code() in _NO_LEADER_YET and clock.ticks_s() < deadline:
                time.sleep(_POLL_S)
                continue
            raise KafkaReadError(f"Offsets of {', '.join(topics)} cannot be read: {error.args[0].str()}.") from error


def listed(futures: Mapping[TopicPartition, Future[ListOffsetsResultInfo]]) -> dict[TopicPartition, int]:
    """The answer to `list_offsets`.

    Raises:
        KafkaException: the broker's error; also if a starting broker gives neither an offset nor an error.
    """
    offsets = {at: future.result().offset for at, future in futures.items()}
    if OFFSET_INVALID in offsets.values():
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "a partition has no leader yet"))
    return offsets


def partition_counts_of(client: AdminClient, *, timeout_s: float = _TIMEOUT_S) -> dict[str, int]:
    """The number of partitions of every topic, including Kafka's own."""
    try:
        topics = client.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise KafkaReadError(
            f"The broker does not answer: {error.args[0].str()}.", hint="is it running? `deltaworks status`"
        ) from error
    return {name: len(metadata.partitions) for name, metadata in topics.items() if metadata.error is None}


def wait_for(client: AdminClient, wanted: Mapping[str, int | None]) -> None:
    """Waits until the delayed metadata shows these numbers of partitions; None waits until a topic is gone."""
    end = clock.ticks_s() + _TIMEOUT_S
    while True:
        counts = partition_counts_of(client)
        if all(counts.get(name) == count for name, count in wanted.items()):
            return
        if clock.ticks_s() > end:
            raise KafkaTopicError(f"Topics {', '.join(wanted)} are not settled after {_TIMEOUT_S:.0f} s.")
        time.sleep(_POLL_S)
