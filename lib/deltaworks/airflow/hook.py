"""The connection of the type `deltaworks`: where the project is, its home, its registry and its Kafka.

Everything in it is optional; what is empty is as `deltaworks.toml` or the environment of the process says. A secret of
the connection stays in the process that has read it and goes to others in their environment only: to the supervisor,
to drivers and to the child process of a replay.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from airflow.sdk import BaseHook

from deltaworks import config
from deltaworks.airflow.connections import as_text, decoded, registry_url, there
from deltaworks.airflow.executors import placed
from deltaworks.airflow.provider import CONNECTION_TYPE
from deltaworks.config import Reference
from deltaworks.doctor import Finding, examine
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Connection

_CHECKS = ("settings", "home", "Kafka", "registry", "supervisor")
"""What a connection can get wrong; Java and Spark are needed where drivers run, which may be another machine."""
_FIELDS = {
    "settings": "Project, Environment",
    "pipelines": "Project",
    "home": "Home",
    "Kafka": "Kafka connection",
    "transactions": "Kafka connection",
    "registry": "the fields of the registry",
}
"""The fields of the form that a finding is about."""


class _Extra(msgspec.Struct, frozen=True):
    project: str | None = None
    environment: str | None = None
    home: str | None = None
    kafka_conn_id: str | None = None
    connect_conn_id: str | None = None


class _ConnectExtra(msgspec.Struct, frozen=True):
    ca_file: str | None = None


class DeltaworksHook(BaseHook):
    """Gives the settings of a connection of the type `deltaworks`.

    Args:
        deltaworks_conn_id: id of the connection.
        project: folder of the project if the connection names none.
    """

    conn_name_attr = "deltaworks_conn_id"
    default_conn_name = "deltaworks_default"
    conn_type = CONNECTION_TYPE
    hook_name = "deltaworks"

    def __init__(self, deltaworks_conn_id: str = default_conn_name, project: str | None = None) -> None:
        super().__init__()
        self.deltaworks_conn_id = deltaworks_conn_id
        self.project = project

    def settings(self) -> Settings:
        """The settings of the connection, on top of those of the environment.

        Raises:
            ConfigurationError: there is no such connection, or it has a value that cannot be used.
        """
        with there(self.deltaworks_conn_id):
            connection = self.get_connection(self.deltaworks_conn_id)
        extra, kafka = _extra(connection), None
        if extra.kafka_conn_id is not None:
            with there(extra.kafka_conn_id, named_by=self.deltaworks_conn_id):
                kafka = self.get_connection(extra.kafka_conn_id)
        settings = self._settings(connection, kafka)
        if extra.connect_conn_id is None:
            return settings
        with there(extra.connect_conn_id, named_by=self.deltaworks_conn_id):
            return with_connect(settings, self.get_connection(extra.connect_conn_id))

    async def settings_async(self) -> Settings:
        """Like `settings`, for a trigger, whose event loop must not wait, and which needs no Kafka Connect."""
        with there(self.deltaworks_conn_id):
            connection = await self.aget_connection(self.deltaworks_conn_id)
        if (kafka_id := _extra(connection).kafka_conn_id) is None:
            return await asyncio.to_thread(self._settings, connection)
        with there(kafka_id, named_by=self.deltaworks_conn_id):
            kafka = await self.aget_connection(kafka_id)
        return await asyncio.to_thread(self._settings, connection, kafka)

    def get_conn(self) -> Settings:
        """The same as `settings`."""
        return self.settings()

    def test_connection(self) -> tuple[bool, str]:
        """Tries home, Kafka, registry and supervisor from here, as `deltaworks doctor` does; changes nothing.

        Returns:
            Whether nothing failed, and what was found and what to do about it.
        """
        try:
            findings = examine(self.settings(), _CHECKS)
        except DeltaworksError as error:
            return False, str(error)
        order = ("failed", "warning", "skipped", "ok")
        told = [_told(finding) for finding in sorted(findings, key=lambda finding: order.index(finding.outcome))]
        failed = any(finding.outcome == "failed" for finding in findings)
        return not failed, "\n".join([f"As seen from {socket.gethostname()}:", *told])

    def _settings(self, connection: Connection, kafka: Connection | None = None) -> Settings:
        own = {} if self.project is None else {config.PROJECT: self.project}
        try:
            return placed(Settings.overlaid(own | variables(connection, kafka)))
        except ConfigurationError as error:
            text = f"The connection {self.deltaworks_conn_id!r} cannot be used: {error.message}"
            raise ConfigurationError(text, hint=error.hint) from None


def variables(connection: Connection, kafka: Connection | None = None) -> dict[str, str]:
    """The environment variables that say the same as the connections.

    Raises:
        ConfigurationError: the extra of a connection cannot be used; the message has no value of it.
    """
    extra = _extra(connection)
    named = {
        config.PROJECT: extra.project,
        config.ENVIRONMENT: extra.environment,
        config.KEYS["home"]: extra.home,
        config.KEYS["control_url"]: registry_url(connection) if connection.host else None,
    }
    return {name: value for name, value in named.items() if value} | ({} if kafka is None else _of_kafka(kafka))


def with_connect(settings: Settings, connection: Connection) -> Settings:
    """The settings with the workers of Kafka Connect that a connection names, in place of `[connect]`.

    User and password are references to the connection, which are followed where a request is sent.

    Raises:
        ConfigurationError: the connection has no address, or its extra cannot be used.
    """
    extra = decoded(connection, _ConnectExtra)
    host, conn_id = connection.host or "", str(connection.conn_id)
    if not host:
        raise ConfigurationError(
            f"The connection {conn_id!r} has no host, which is where Kafka Connect answers.",
            hint="host connect.example.com, port 8083, and schema https if it has TLS",
        )
    scheme, _, address = host.rpartition("://")
    port = "" if connection.port is None else f":{connection.port}"
    url = f"{scheme or connection.schema or 'http'}://{address}{port}"
    table: dict[str, str | Reference] = {"url": url}
    for name, field, value in (
        ("username", "login", connection.login),
        ("password", "password", connection.password),
    ):
        if value:
            table[name] = Reference(origin=f"{field} of the connection {conn_id!r}", airflow=conn_id, field=field)
    if extra.ca_file is not None:
        table["ca_file"] = extra.ca_file
    values = replace(settings.values, tables={**settings.values.tables, ("connect", ""): table})
    return replace(settings, values=values)


def _of_kafka(kafka: Connection) -> dict[str, str]:
    """Address and settings of Kafka's clients, without those that only clients of Airflow's operators need."""
    given = decoded(kafka, dict[str, str | bool | int | float | None])
    address = given.pop("bootstrap.servers", None) or given.pop("metadata.broker.list", None)
    if not address:
        raise ConfigurationError(
            f"The extra of the connection {kafka.conn_id!r} has no 'bootstrap.servers'.",
            hint='its extra is JSON, such as {"bootstrap.servers": "kafka-1:9092"}',
        )
    settings = {
        config.kafka_variable(name): as_text(value)
        for name, value in given.items()
        if value is not None and name not in config.OURS and not name.endswith("_cb")
    }
    return {config.KEYS["bootstrap"]: str(address), **settings}


def _extra(connection: Connection) -> _Extra:
    extra = decoded(connection, _Extra)
    return msgspec.structs.replace(
        extra, kafka_conn_id=extra.kafka_conn_id or None, connect_conn_id=extra.connect_conn_id or None
    )


def _told(finding: Finding) -> str:
    text = f"{finding.name}: {finding.outcome}: {finding.found}"
    if finding.hint is not None:
        text += f"; {finding.hint}"
    if finding.outcome == "failed" and finding.name in _FIELDS:
        text += f" (in this form: {_FIELDS[finding.name]})"
    return text
