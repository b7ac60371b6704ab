"""The maximum record size of topics, asked once per topic.

A record that is too large or whose topic does not exist is refused here, while it is in process, so the pipeline's
error policy decides about it. The broker would refuse it only with the transaction, without blaming a record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from deltaworks.clock import ticks_s
from deltaworks.config import Kafka
from deltaworks.errors import KafkaWriteError
from deltaworks.kafka.admin import admin

LARGEST_REQUEST = 100_000_000
"""The client's largest request; stock brokers close a connection at 104,857,600 bytes (`socket.request.max.bytes`)."""
STOCK_LIMIT = 1_048_588
"""`message.max.bytes` of a broker with default configuration."""
_TIMEOUT_S = 30.0
_ASKED_AGAIN_S = 10.0
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION)
_NOT_FOR_US = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


@dataclass
class TopicLimits:
    """The limits of a broker's topics, as known to one process.

    Args:
        bootstrap: the cluster.
        expected: topics whose limits are requested together with the first one.
    """

    bootstrap: Kafka
    expected: Collection[str] = ()
    _known: dict[str, int] = field(default_factory=dict)
    _missing: dict[str, float] = field(default_factory=dict)
    """Topic -> when it was last found missing."""
    _client: AdminClient | None = None

    def of(self, topic: str) -> int | None:
        """The limit of a topic in bytes, as `kernel.sizes` counts them; None if the topic does not exist.

        Raises:
            KafkaWriteError: the broker does not answer.
        """
        limit = self._known.get(topic)
        if limit is not None:
            return limit
        missed = self._missing.get(topic)
        if missed is None or ticks_s() - missed > _ASKED_AGAIN_S:
            wanted = {topic} if self._known or self._missing else {topic, *self.expected}
            self._ask(wanted)
        return self._known.get(topic)

    def _ask(self, topics: Collection[str]) -> None:
        if self._client is None:
            self._client = admin(self.bootstrap)
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        for resource, answer in self._client.describe_configs(wanted, request_timeout=_TIMEOUT_S).items():
            try:
                limit = int(answer.result()["max.message.bytes"].value)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() in _UNKNOWN:
                    self._missing[resource.name] = ticks_s()
                    continue
                if reason.code() not in _NOT_FOR_US:
                    raise KafkaWriteError(
                        f"The limit of topic '{resource.name}' cannot be read: {reason.str()}.",
                        hint="is the broker running? `deltaworks status`",
                    ) from error
                limit = STOCK_LIMIT
            self._known[resource.name] = min(limit, LARGEST_REQUEST)
