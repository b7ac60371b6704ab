"""Kafka's clients: whose settings they have, and what they say about wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from deltaworks.config import Cluster, Reference
from deltaworks.errors import ConfigurationError
from deltaworks.kafka.clients import make

LIB = Path(__file__).parents[3] / "lib" / "deltaworks"


def test_every_client_is_made_with_the_settings_of_the_cluster() -> None:
    """A client that is made elsewhere would not get through to a secured cluster."""
    made = [
        str(file.relative_to(LIB))
        for file in LIB.rglob("*.py")
        for kind in ("Producer(", "Consumer(", "AdminClient(")
        if any(f" {kind}" in line or f"={kind}" in line or f"({kind}" in line for line in _code(file))
    ]

    assert made == []


def _code(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.strip().startswith("class ")]


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
def test_a_client_has_our_settings_and_those_of_the_cluster(kind: Any) -> None:
    given: list[dict[str, Any]] = []

    def recorded(settings: dict[str, Any]) -> Any:
        given.append(settings)
        return kind(settings)

    cluster = Cluster(bootstrap="127.0.0.1:1", settings={"client.id": "shop", "log_level": "0"})
    make(recorded, cluster, {"group.id": "g"} if kind is Consumer else {"socket.timeout.ms": 100})

    assert given[0]["bootstrap.servers"] == "127.0.0.1:1"
    assert given[0]["client.id"] == "shop"
    assert {"group.id", "socket.timeout.ms"} & given[0].keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"securty.protocol": "SSL"}, 'No such configuration property: "securty.protocol".'),
        ({"security.protocol": "TLS"}, 'Invalid value *** for configuration property "security.protocol".'),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.username and sasl.password must be"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str | Reference], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        make(Producer, Cluster(bootstrap="127.0.0.1:1", settings=settings), {"log_level": 0})

    assert str(error.value).startswith("Kafka's clients refuse their settings: ")
    assert message in str(error.value)
    assert "[kafka] of deltaworks.toml" in str(error.value)
