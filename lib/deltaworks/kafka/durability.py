"""Whether the records that a cluster acknowledges outlive the loss of a broker.

A record is acknowledged when `min.insync.replicas` of the replicas of its topic have it. With several replicas and a
minimum of one, the leader alone may acknowledge a batch that the stream then counts as committed; if its disk is lost,
so is the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from deltaworks.config import Kafka
from deltaworks.errors import ConfigurationError, KafkaReadError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import TopicSpec

MIN_INSYNC = "min.insync.replicas"
_TRANSACTIONS = "__transaction_state"
_TIMEOUT_S = 30.0
_NOT_TOLD = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)


@dataclass(frozen=True, kw_only=True)
class TopicDurability:
    """How often a topic has its records, and how often before they are acknowledged."""

    name: str
    replicas: int
    min_insync: int

    @property
    def problem(self) -> str | None:
        """What is wrong; None: nothing, or there is one broker only."""
        if self.min_insync > self.replicas:
            return f"{MIN_INSYNC}={self.min_insync}, but {self.replicas} replicas: nothing could be written"
        if self.replicas > 1 and self.min_insync < 2:
            return f"{MIN_INSYNC}={self.min_insync} of {self.replicas} replicas: a written record may be lost"
        return None


def require(bootstrap: Kafka, client: AdminClient, existing: Collection[str], new: Sequence[TopicSpec]) -> None:
    """Checks the topics that a pipeline writes, and the log of transactions; what the cluster does not tell passes.

    Args:
        bootstrap: the cluster.
        client: of `admin.admin`.
        existing: topics that exist.
        new: topics that will be created.

    Raises:
        ConfigurationError: a topic would not keep what it has acknowledged; names them all.
        KafkaReadError: the broker does not answer.
    """
    found = [*_of_existing(client, sorted({*existing, _TRANSACTIONS})), *_of_new(client, new)]
    wrong = [f"\n  topic '{topic.name}': {problem}" for topic in found if (problem := topic.problem) is not None]
    if wrong:
        raise ConfigurationError(
            f"Kafka at {bootstrap} does not keep what it acknowledges, so nothing is exactly once:{''.join(wrong)}",
            hint=f"use 3 replicas and {MIN_INSYNC}=2: Topic(replication=3, config={{'{MIN_INSYNC}': '2'}}) for a new "
            "topic, kafka-configs.sh --alter for one that exists",
        )


def _of_existing(client: AdminClient, topics: list[str]) -> list[TopicDurability]:
    described = client.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_S)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    configs = client.describe_configs(resources, request_timeout=_TIMEOUT_S)
    found = []
    for resource, config in configs.items():
        try:
            partitions = described[resource.name].result().partitions
            least = int(config.result()[MIN_INSYNC].value)
        except KafkaException as error:
            if error.args[0].code() in _NOT_TOLD:
                continue
            raise _no_answer(error) from error
        replicas = min(len(partition.replicas) for partition in partitions)
        found.append(TopicDurability(name=resource.name, replicas=replicas, min_insync=least))
    return found


def _of_new(client: AdminClient, topics: Sequence[TopicSpec]) -> list[TopicDurability]:
    settings = admin.broker_settings(client) if topics else None
    if settings is None:
        return []
    replicas, least = (int(settings[name] or 1) for name in ("default.replication.factor", MIN_INSYNC))
    return [
        TopicDurability(
            name=topic.name,
            replicas=topic.replication if topic.replication > 0 else replicas,
            min_insync=int(topic.config.get(MIN_INSYNC, least)),
        )
        for topic in topics
    ]


def _no_answer(error: KafkaException) -> KafkaReadError:
    return KafkaReadError(f"Kafka does not say how often it keeps a record: {error.args[0].str()}.")
