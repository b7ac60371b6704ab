"""How Kafka's clients in Java reach a cluster, from the settings of librdkafka that say how ours do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltaworks.config import Cluster
from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file

_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
"""Beginnings of settings that say how a cluster is reached; what others say does not matter for that."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
_KNOWN = frozenset(
    (
        *("security.protocol", *_MECHANISMS, "sasl.username", "sasl.password", "ssl.endpoint.identification.algorithm"),
        *(f"ssl.{what}.{how}" for what in ("ca", "certificate", "key") for how in ("location", "pem")),
    )
)


def access(cluster: Cluster, *, keystore: Path) -> dict[str, str]:
    """The settings of a client in Java, without the addresses; empty for a cluster that asks for nothing.

    Args:
        cluster: as our clients reach it.
        keystore: the file to write certificate and key of the client to, if it has them.

    Raises:
        ConfigurationError: a secret or file is not there, or a setting has no counterpart.
    """
    given = {name: str(each) for name, each in cluster.client({}).items() if name.startswith(_SECURITY)}
    if unknown := sorted(given.keys() - _KNOWN):
        raise ConfigurationError(
            f"Clients in Java, such as Kafka Connect, cannot be told {', '.join(unknown)} of [kafka].",
            hint=f"what they can be told: {', '.join(sorted(_KNOWN))}",
        )
    found = {"security.protocol": given["security.protocol"].upper()} if "security.protocol" in given else {}
    return found | _login(given) | _trust(given) | _identity(given, keystore)


def escaped(value: str) -> str:
    """A value as a file of properties has it, which takes spaces at its beginning away."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith(" ") else text


def quoted(value: str) -> str:
    """A value as the configuration of a login has it, and a file with arguments for Java."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _login(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = next((given[name].upper() for name in _MECHANISMS if name in given), None)
    if mechanism is None:
        return {}
    if mechanism not in _LOGINS:
        raise ConfigurationError(
            f"Clients in Java, such as Kafka Connect, cannot be told how to log in with {mechanism}.",
            hint=f"sasl.mechanism of [kafka] may be {', '.join(_LOGINS)}",
        )
    user, password = (quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password"))
    jaas = f"{_LOGINS[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _trust(given: Mapping[str, str]) -> dict[str, str]:
    """Which authorities sign the certificates of brokers, and whether these have to name the host."""
    found = {}
    if "ssl.ca.pem" in given:
        found = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": given["ssl.ca.pem"]}
    elif "ssl.ca.location" in given:
        found = {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return found


def _identity(given: Mapping[str, str], keystore: Path) -> dict[str, str]:
    certificate, key = (_pem(given, name) for name in ("certificate", "key"))
    if certificate is None or key is None:
        return {}
    replace_file(keystore, f"{key.strip()}\n{certificate.strip()}\n".encode(), mode=0o600)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}


def _pem(given: Mapping[str, str], what: str) -> str | None:
    held, file = given.get(f"ssl.{what}.pem"), given.get(f"ssl.{what}.location")
    if held is not None or file is None:
        return held
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"ssl.{what}.location of [kafka] cannot be read: {error}.") from None
