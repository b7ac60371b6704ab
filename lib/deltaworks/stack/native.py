"""Answers the questions of the runner and `up` about each component on this machine, with one `match` per question.

The answers are in `kafka.py`, `postgres.py`, `airflow.py`, `seaweedfs.py`, `schema_registry.py`, `connect.py`,
`spark.py`, `source_postgres.py`, `source_mariadb.py`, `opensearch.py`, `monitoring.py` and `sql`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import psutil

from deltaworks import home, listeners
from deltaworks.errors import StackError
from deltaworks.processes import Registered
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.components import Component, Components, Report, read_components

if TYPE_CHECKING:
    from deltaworks.stack import postgres_server
    from deltaworks.stack.kafka import Broker

_VARIABLES = {
    "broker_port": "DELTAWORKS_BOOTSTRAP=127.0.0.1:<port>",
    "controller_port": "DELTAWORKS_CONTROLLER_PORT=<port>",
    "postgres_port": "DELTAWORKS_POSTGRES_PORT=<port>",
    "airflow_port": "DELTAWORKS_AIRFLOW_PORT=<port>",
    "sql_port": "DELTAWORKS_SQL_PORT=<port>",
    "s3_port": "DELTAWORKS_S3_PORT=<port>",
    "schema_registry_port": "DELTAWORKS_SCHEMA_REGISTRY_PORT=<port>",
    "connect_port": "DELTAWORKS_CONNECT_PORT=<the first of two ports>",
    "source_postgres_port": "DELTAWORKS_SOURCE_POSTGRES_PORT=<port>",
    "source_mariadb_port": "DELTAWORKS_SOURCE_MARIADB_PORT=<port>",
    "opensearch_port": "DELTAWORKS_OPENSEARCH_PORT=<the first of two ports>",
    "prometheus_port": "DELTAWORKS_PROMETHEUS_PORT=<port>",
    "alertmanager_port": "DELTAWORKS_ALERTMANAGER_PORT=<port>",
    "spark_port": "DELTAWORKS_SPARK_PORT=<the first of six ports>",
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start one process."""

    command: list[str]
    environment: Mapping[str, str]
    user: str | None = None
    """The user to run as; None: our own."""
    folder: Path = Path("/")
    """Its working directory."""


@dataclass(frozen=True)
class NativeHost:
    """The components as processes of this machine."""

    settings: Settings
    components: Components

    @classmethod
    def of(cls, settings: Settings) -> NativeHost:
        from deltaworks.stack import secured_kafka

        components = read_components(settings.infra)
        return cls(settings, secured_kafka.spread(components) if secured_kafka.is_there(settings) else components)

    def log(self, component: Component) -> Path:
        """File with its output."""
        return self.settings.logs / f"{component.name}.log"

    def ports(self, component: Component) -> tuple[int, ...]:
        """The ports that it listens on."""
        if component.software == "kafka":
            return self._broker(component).ports
        if component.software == "connect":
            from deltaworks.stack import connect

            return (connect.port(self.settings, component.node),)
        if component.software == "spark":
            from deltaworks.stack import spark

            return spark.ports(self.settings, component.node)
        if component.software == "opensearch":
            from deltaworks.stack import opensearch

            return opensearch.ports(self.settings)
        return tuple(getattr(self.settings, name) for name in component.ports)

    def _broker(self, component: Component) -> Broker:
        if component.node:
            from deltaworks.stack import secured_kafka

            return secured_kafka.broker(self.settings, component.node)
        from deltaworks.stack import kafka

        return kafka.only_broker(self.settings)

    def _postgres(self, component: Component) -> postgres_server.Server:
        if component.software == "source-postgres":
            from deltaworks.stack import source_postgres

            return source_postgres.server(self.settings)
        from deltaworks.stack import postgres

        return postgres.server(self.settings)

    def require_room_and_ports(self, component: Component) -> None:
        """Raises `StackError`, which names the folder or a port's holder, if the component could not run here."""
        home.make(self.settings)
        free_mb = shutil.disk_usage(self.settings.home).free // 1_000_000
        if free_mb < component.free_disk_mb:
            raise StackError(
                f"{self.settings.home} has {free_mb} MB free; {component.name} needs at least "
                f"{component.free_disk_mb} MB to start.",
                hint="free some space, or move everything: DELTAWORKS_HOME=<folder on another disk>",
            )
        for name, port in zip(component.ports, self.ports(component), strict=True):
            who = "Kafka's controller" if name == "controller_port" else component.name
            ports.require_free(port, who, f"stop it, or choose another port with {_VARIABLES[name]}", patience_s=2.0)
        if component.software == "seaweedfs":
            from deltaworks.stack import seaweedfs

            for option, port in seaweedfs.inner_ports(self.settings).items():
                hint = "stop it, or choose other ports with DELTAWORKS_S3_PORT=<the first of them>"
                ports.require_free(port, f"{component.name} ({option})", hint, patience_s=2.0)

    def prepare(self, component: Component, report: Report) -> None:
        """Makes the lasting files of a component: data folder, secrets, configuration."""
        match component.software:
            case "kafka":
                from deltaworks.stack import kafka

                kafka.prepare(self.settings, self.components, self._broker(component), report)
            case "postgres" | "source-postgres":
                from deltaworks.stack import postgres_server

                postgres_server.prepare(self._postgres(component), report)
            case "mariadb":
                from deltaworks.stack import source_mariadb

                source_mariadb.prepare(self.settings, report)
            case "opensearch":
                from deltaworks.stack import opensearch

                opensearch.prepare(self.settings, self.components, report)
            case "prometheus" | "alertmanager":
                from deltaworks.stack import monitoring

                monitoring.prepare(self.settings, component, report)
            case "seaweedfs":
                from deltaworks.stack import seaweedfs

                seaweedfs.prepare(self.settings, report)
            case "axonops":
                from deltaworks.stack import schema_registry

                schema_registry.prepare(self.settings, self.components.software["axonops"], report)
            case "connect":
                from deltaworks.stack import connect

                connect.prepare(self.settings, self.components, component, report)
            case "spark":
                from deltaworks.stack import spark

                spark.prepare(self.settings, self.components)
            case "deltaworks" if component.ready == "sql":
                from deltaworks.stack.sql import server

                server.prepare(self.settings, report)
            case "airflow" | "deltaworks":
                pass
            case _:
                assert_never(component.software)

    def launch(self, component: Component) -> Launch:
        """How to start a component now."""
        match component.software:
            case "kafka":
                from deltaworks.stack import kafka

                command = kafka.command(self.settings, self.components, self._broker(component))
                return Launch(command=command, environment=self.settings.process_environment())
            case "postgres" | "source-postgres":
                from deltaworks.stack import postgres_server

                software = self.components.software[component.software]
                return Launch(
                    command=postgres_server.command(self._postgres(component), software),
                    environment=postgres_server.environment(),
                    user=postgres_server.server_user(),
                )
            case "mariadb":
                from deltaworks.stack import source_mariadb

                return Launch(
                    command=source_mariadb.command(self.settings, self.components.software["mariadb"]),
                    environment=source_mariadb.environment(self.settings),
                    user=source_mariadb.server_user(),
                )
            case "opensearch":
                from deltaworks.stack import opensearch

                return Launch(
                    command=opensearch.command(self.settings, self.components, component),
                    environment=opensearch.environment(self.settings),
                    user=opensearch.server_user(),
                )
            case "prometheus" | "alertmanager":
                from deltaworks.stack import monitoring

                return Launch(
                    command=monitoring.command(self.settings, component, self.components.software[component.software]),
                    environment=monitoring.environment(),
                    folder=monitoring.folder(self.settings, component),
                )
            case "seaweedfs":
                from deltaworks.stack import seaweedfs

                return Launch(
                    command=seaweedfs.command(self.settings, self.components.software["seaweedfs"]),
                    environment=seaweedfs.environment(self.settings),
                    folder=self.settings.s3,
                )
            case "connect":
                from deltaworks.stack import connect

                return Launch(
                    command=connect.command(self.settings, self.components, component),
                    environment=connect.environment(self.settings),
                )
            case "spark":
                from deltaworks.stack import spark

                return Launch(
                    command=spark.command(self.settings, component),
                    environment=spark.environment(self.settings, self.components, component),
                    folder=self.settings.spark,
                )
            case "airflow":
                from deltaworks.stack import airflow

                own = airflow.environment(self.settings, self.components.software["airflow"])
                return Launch(command=_python(component), environment=self.settings.process_environment() | own)
            case "axonops" | "deltaworks":
                return Launch(command=_python(component), environment=self.settings.process_environment())
            case _:
                assert_never(component.software)

    def is_ready(self, component: Component, since: datetime) -> bool:
        """Whether others can use the component; takes a few seconds at most. Another process on its port is ignored.

        Args:
            component: the component.
            since: when it was started.
        """
        return self._answers(component, since) and not any(map(self._is_of_another, self.ports(component)))

    def _is_of_another(self, port: int) -> bool:
        stack = listeners.stack_on(port)
        return stack is not None and stack.home != self.settings.home.resolve()

    def _answers(self, component: Component, since: datetime) -> bool:
        match component.ready:
            case "admin":
                from deltaworks.stack import kafka

                return kafka.is_ready(self._broker(component))
            case "login" if component.software == "mariadb":
                from deltaworks.stack import source_mariadb

                return source_mariadb.accepts_login(self.settings)
            case "login":
                from deltaworks.stack import postgres_server

                return postgres_server.accepts_login(self._postgres(component))
            case "search":
                from deltaworks.stack import opensearch

                return opensearch.answers(self.settings)
            case "watch":
                from deltaworks.stack import monitoring

                return monitoring.answers(self.settings, component.name)
            case "http":
                from deltaworks.stack import airflow

                return airflow.answers(self.settings, component.path)
            case "heartbeat":
                beat = self.heartbeat(component)
                return beat is not None and beat > since
            case "answers":
                from deltaworks.control.supervisor import client

                return client.answers(self.settings)
            case "sql":
                from deltaworks.stack.sql import client as sql_client

                return sql_client.answers(self.settings)
            case "s3":
                from deltaworks.stack import seaweedfs

                return seaweedfs.answers(self.settings, self.components.software["seaweedfs"])
            case "schemas":
                from deltaworks.stack import schema_registry

                return schema_registry.answers(self.settings)
            case "connect":
                from deltaworks.stack import connect

                return connect.answers(self.settings, component.node)
            case "spark":
                from deltaworks.stack import spark

                return spark.answers(self.settings, component)
            case "exit":
                return False
            case _:
                assert_never(component.ready)

    def heartbeat(self, component: Component) -> datetime | None:
        """The last heartbeat of a component that has one; None: unknown. Takes a few seconds at most."""
        from deltaworks.stack import airflow

        return airflow.heartbeat(self.settings, component.job)

    def members(self, component: Component, pid: int, started_s: float) -> list[psutil.Process]:
        """Its processes, itself first; if it has ended, those that it left behind.

        Streams are never among them: a process that outlives its component leads its own session.
        """
        entry = Registered(name=component.name, kind="", pid=pid, started_s=started_s, command=(), log="")
        found = entry.members()
        if component.software in ("postgres", "source-postgres"):
            from deltaworks.stack import postgres_server

            of_server = postgres_server.server_processes(self._postgres(component))
            found += [process for process in of_server if process not in found]
        return found


def _python(component: Component) -> list[str]:
    return [sys.executable, "-P", "-m", *component.command]
