"""Makes Kafka's clients: with the settings of the cluster, and with errors that say which setting is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from deltaworks.config import Kafka, client_settings
from deltaworks.errors import ConfigurationError

C = TypeVar("C")
WHERE_TO_LOOK = "see the table [kafka] of deltaworks.toml, and the variables DELTAWORKS_KAFKA_..."
"""The hint of errors about settings of clients."""


def make(kind: Callable[..., C], kafka: Kafka, ours: Mapping[str, Any], **options: Any) -> C:
    """A client of librdkafka.

    Args:
        kind: `Producer`, `Consumer` or `AdminClient`.
        kafka: the cluster.
        ours: our own settings; those of the cluster win.
        options: further arguments of the client.

    Raises:
        ConfigurationError: a setting of the cluster is unknown or has a value that the client refuses.
    """
    settings = client_settings(kafka, ours)
    try:
        return kind(settings, **options)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() not in (KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PROTOCOL, KafkaError._SSL):
            raise
        text = reason.str()
        for name in settings.keys() - ours.keys():
            text = text.replace(f'"{settings[name]}"', "***")
        raise ConfigurationError(
            f"Kafka's clients refuse their settings: {text}.",
            hint=WHERE_TO_LOOK,
        ) from None
