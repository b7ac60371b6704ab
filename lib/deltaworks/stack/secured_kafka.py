"""Three Kafka brokers on this machine with TLS, client certificates, passwords (SCRAM) and access rules (ACLs).

It is what a company's cluster looks like to a client: for tests, and to try a project with it before it meets the real
one. `make` gives a home such a cluster, and the home keeps it. Its secrets are files in `<home>/kafka/secrets`, made
once; `<home>/kafka/access.toml` says how clients reach it, and holds for all of the home (`config.with_own_kafka`).

Clients are the user `deltaworks`, who may do what `kafka/permissions.py` lists for every pipeline and for Kafka
Connect. `admin` may do everything; no client of ours uses it after the start.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from deltaworks import config, home
from deltaworks.config import Cluster, Reference
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.files import replace_file
from deltaworks.kafka import permissions
from deltaworks.settings import Settings
from deltaworks.stack import connect
from deltaworks.stack.certificates import Authority
from deltaworks.stack.components import Component, Components
from deltaworks.stack.kafka import Broker

NODES = (1, 2, 3)
USER, ADMIN = "deltaworks", "admin"
STEP = "kafka-access"
"""The component that lets the user do what pipelines need."""
_BROKER = "broker"
_APART = 100
"""Between the ports of two brokers, unless `bootstrap` names three."""
_LOOPBACK = "127.0.0.1"
_PASSWORD_BYTES = 18
_ACCESS = """\
# Written by `deltaworks up kafka --secured`: how clients reach the three brokers of this home.
bootstrap = "{bootstrap}"

[kafka]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "{user}"
"sasl.password" = {{ file = "secrets/{user}.password" }}
"ssl.ca.location" = "{secrets}/ca.pem"
"ssl.certificate.location" = "{secrets}/client.pem"
"ssl.key.location" = "{secrets}/client.key"
"""


def make(settings: Settings, ports: Callable[[int], list[int]] | None = None) -> Settings:
    """Gives a home a secured Kafka, unless it has one: secrets and the access for clients; starts nothing.

    Args:
        settings: of the home; `bootstrap` names the three brokers or the first of them.
        ports: chooses that many ports for brokers and controllers; None: each is 100 above the one before.

    Returns:
        The settings with which its clients reach it.

    Raises:
        ConfigurationError: the home has a Kafka without passwords, or the settings name another machine's.
    """
    if not is_there(settings):
        if (settings.kafka / "data" / "meta.properties").is_file():
            raise ConfigurationError(
                f"{settings.home} has a Kafka without passwords, which keeps its topics.",
                hint="use another home (DELTAWORKS_HOME), or delete this one first: deltaworks down --delete-data",
            )
        brokers, controllers = _new_ports(settings) if ports is None else _halves(ports(2 * len(NODES)))
        home.make(settings)
        _make_secrets(_secrets(settings))
        bootstrap = ",".join(f"{_LOOPBACK}:{port}" for port in brokers)
        text = _ACCESS.format(bootstrap=bootstrap, user=USER, secrets=_secrets(settings))
        replace_file(_controllers(settings), ",".join(map(str, controllers)).encode())
        replace_file(settings.kafka_access_in(settings.home), text.encode(), mode=0o600, durable=True)  # last
    own = _own(settings)
    tables = {**settings.values.tables, ("kafka", ""): {**own.settings, **settings.values.table("kafka")}}
    return replace(settings, bootstrap=own.bootstrap, values=replace(settings.values, tables=tables))


def is_there(settings: Settings) -> bool:
    """Whether the home has a secured Kafka."""
    return settings.kafka_access_in(settings.home).is_file()


def spread(components: Components) -> Components:
    """The components with three brokers, and the step that gives access, in place of the one."""
    by_name: dict[str, Component] = {}
    for component in components.by_name.values():
        if component.software == "kafka":
            for node in NODES:
                name = f"{component.name}-{node}"
                by_name[name] = msgspec.structs.replace(component, name=name, node=node, part_of=component.name)
            by_name[STEP] = Component(
                name=STEP,
                software="deltaworks",
                command=("deltaworks.stack.secured_kafka",),
                ready="exit",
                ready_timeout_s=component.ready_timeout_s,
                stop_signal="SIGTERM",
                stop_patience_s=5,
                memory_mb=100,
                after=tuple(f"{component.name}-{node}" for node in NODES),
                part_of=component.name,
            )
        else:
            after = tuple(n for each in component.after for n in _names(components, each))
            by_name[component.name] = msgspec.structs.replace(component, after=after)
    return replace(components, by_name=by_name)


def _names(components: Components, name: str) -> tuple[str, ...]:
    if components.by_name[name].software != "kafka":
        return (name,)
    return (*(f"{name}-{node}" for node in NODES), STEP)


def broker(settings: Settings, node: int) -> Broker:
    """One of the three."""
    secret, addresses = _secrets(settings), _own(settings).bootstrap.split(",")
    controllers = [int(port) for port in _controllers(settings).read_text().split(",")]
    return Broker(
        folder=settings.kafka / f"broker-{node}",
        port=int(addresses[node - 1].rpartition(":")[2]),
        controller_port=controllers[node - 1],
        access=_access(settings, ADMIN, addresses[node - 1]),
        properties=("server.properties", "secured.properties"),
        names={
            "node": node,
            "voters": ",".join(f"{n}@{_LOOPBACK}:{c}" for n, c in zip(NODES, controllers, strict=True)),
            "secrets": secret,
            "password": _password(secret, _BROKER),
        },
        users={name: _password(secret, name) for name in (_BROKER, ADMIN, USER)},
        cluster_id=settings.kafka / "cluster-id",
    )


def admin_access(settings: Settings) -> Cluster:
    """The cluster as `admin` reaches it, who may do everything."""
    return _access(settings, ADMIN, _own(settings).bootstrap)


def give_access(settings: Settings) -> None:
    """Lets the user do what pipelines and workers of Kafka Connect need.

    Raises:
        StackError: the brokers refuse that, or do not answer.
    """
    allowed = [*permissions.of_every_pipeline(), *permissions.of_connect(connect.GROUP)]
    permissions.grant(admin_access(settings), USER, allowed)


def _own(settings: Settings) -> Cluster:
    """The cluster as the user reaches it."""
    own = config.own_kafka(settings.kafka_access_in(settings.home))
    assert own is not None, "the home has no secured Kafka"
    return own


def _access(settings: Settings, user: str, bootstrap: str) -> Cluster:
    password = Reference(origin=f"the password of {user}", file=str(_secrets(settings) / f"{user}.password"))
    return Cluster(
        bootstrap=bootstrap, settings={**_own(settings).settings, "sasl.username": user, "sasl.password": password}
    )


def _new_ports(settings: Settings) -> tuple[list[int], list[int]]:
    """Of the brokers, and of their controllers."""
    hosts = {address.rpartition(":")[0] for address in settings.bootstrap.split(",")}
    if hosts != {_LOOPBACK} or len(settings.broker_ports) not in (1, len(NODES)):
        raise ConfigurationError(
            f"Three brokers cannot listen at {settings.bootstrap}.",
            hint=f"leave DELTAWORKS_BOOTSTRAP unset, or let it name the first of them, or all three, on {_LOOPBACK}",
        )
    brokers = list(settings.broker_ports)
    return brokers if len(brokers) == len(NODES) else _row(brokers[0]), _row(settings.controller_port)


def _row(first: int) -> list[int]:
    return [first + index * _APART for index in range(len(NODES))]


def _halves(ports: list[int]) -> tuple[list[int], list[int]]:
    return ports[: len(NODES)], ports[len(NODES) :]


def _controllers(settings: Settings) -> Path:
    """The file with the ports of the controllers."""
    return settings.kafka / "controllers"


def _secrets(settings: Settings) -> Path:
    return settings.kafka / "secrets"


def _password(folder: Path, user: str) -> str:
    return (folder / f"{user}.password").read_text().strip()


def _make_secrets(folder: Path) -> None:
    authority = Authority.make(folder, "ca")
    authority.issue(_BROKER, hosts=(_LOOPBACK,), together=True)
    authority.issue("client")
    for user in (_BROKER, ADMIN, USER):
        replace_file(folder / f"{user}.password", f"{secrets.token_urlsafe(_PASSWORD_BYTES)}\n".encode(), mode=0o600)


if __name__ == "__main__":
    try:
        give_access(Settings.from_environment())
    except DeltaworksError as error:
        sys.exit(f"error: {error}")
