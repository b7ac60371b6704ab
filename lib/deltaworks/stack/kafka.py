"""A real Kafka on this machine: one KRaft broker, or three with passwords and TLS (`secured_kafka.py`).

Their configuration is in `infra/kafka`. It is not tuned for throughput: it is for development, tests and benchmarks on
one machine.
"""

from __future__ import annotations

import base64
import os
import shutil
import string
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deltaworks.config import Cluster
from deltaworks.errors import StackError
from deltaworks.files import replace_file
from deltaworks.kafka.admin import answers
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.components import Components, Report
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import Java, find_java
from deltaworks.stack.java_clients import quoted


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One broker of the stack."""

    folder: Path
    """Its configuration and data."""
    port: int
    controller_port: int
    access: Cluster
    """How a client reaches this broker."""
    properties: tuple[str, ...] = ("server.properties",)
    """Its templates in `infra/kafka`; a later one replaces what an earlier one says."""
    names: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Further names in the templates -> their values."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Users that a new cluster knows from the beginning -> their passwords."""
    cluster_id: Path | None = None
    """The file with the id that all brokers of the cluster have; None: the only broker."""

    @property
    def ports(self) -> tuple[int, int]:
        return self.port, self.controller_port


def only_broker(settings: Settings) -> Broker:
    """The one broker of a stack without passwords."""
    return Broker(
        folder=settings.kafka,
        port=settings.broker_port,
        controller_port=settings.controller_port,
        access=settings.cluster,
    )


def prepare(settings: Settings, components: Components, broker: Broker, report: Report) -> None:
    """Makes jars, configuration and a formatted data folder.

    Raises:
        StackError: jars are missing, or the data folder cannot be formatted.
        ConfigurationError: no Java is usable, or a jar does not match the lock.
    """
    java = find_java(settings, components.java_versions)
    classpath = _classpath(settings, report)
    _configure(settings, broker)
    if not (broker.folder / "data" / "meta.properties").is_file():
        _format(settings, java, classpath, broker, report)


def command(settings: Settings, components: Components, broker: Broker) -> list[str]:
    """The command that starts the broker."""
    java = find_java(settings, components.java_versions)
    return [
        *_jvm(settings, java, broker),
        *settings.broker_options,
        *("-cp", _classpath(settings), "kafka.Kafka", str(_config(broker))),
    ]


def is_ready(broker: Broker) -> bool:
    """Whether the broker answers the admin protocol."""
    return ports.answers(broker.port) and answers(broker.access, timeout_s=2.0)


def _classpath(settings: Settings, report: Report = lambda _: None) -> str:
    return f"{ensure_jars(settings, 'kafka', report)[0].parent}/*"


def _config(broker: Broker) -> Path:
    return broker.folder / "server.properties"


def _configure(settings: Settings, broker: Broker) -> None:
    """Writes the broker's configuration, at every start."""
    names = {"names": "$names", "port": broker.port, "controller_port": broker.controller_port}
    names |= {"data": broker.folder / "data", **broker.names}
    infra = settings.infra / "kafka"
    text = ""
    for template in broker.properties:
        added = string.Template((infra / template).read_text()).substitute(names)
        replaced = {line.partition("=")[0] for line in added.splitlines() if _is_property(line)}
        kept = (line for line in text.splitlines() if not _is_property(line) or line.partition("=")[0] not in replaced)
        text = "".join(f"{line}\n" for line in kept) + added
    broker.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(_config(broker), text.encode(), mode=0o600)
    shutil.copyfile(infra / "log4j2.properties", broker.folder / "log4j2.properties")


def _is_property(line: str) -> bool:
    return "=" in line and not line.startswith("#")


def _jvm(settings: Settings, java: Java, broker: Broker) -> list[str]:
    return [
        str(java.executable),
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={settings.temporary}",
        f"-Dlog4j2.configurationFile={broker.folder / 'log4j2.properties'}",
    ]


def _format(settings: Settings, java: Java, classpath: str, broker: Broker, report: Report) -> None:
    report("kafka: formatting a new data folder")
    data = broker.folder / "data"
    shutil.rmtree(data, ignore_errors=True)  # left by an interrupted format
    users = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in broker.users.items()]
    arguments = ["format", "-t", _cluster_id(broker), "-c", str(_config(broker))]
    arguments += [each for user in users for each in ("--add-scram", user)]
    small = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath)
    with _argument_file(broker.folder / "format.arguments", ["kafka.tools.StorageTool", *arguments]) as file:
        answer = subprocess.run(
            [*_jvm(settings, java, broker), *small, f"@{file}"], capture_output=True, text=True, check=False
        )
    if answer.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        lines = [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        raise StackError(f"Kafka cannot format {data}.", log=lines[-10:], hint="is the folder writable?")


@contextmanager
def _argument_file(file: Path, arguments: list[str]) -> Iterator[Path]:
    """A file with arguments for Java, which other users cannot read, as they could a command line."""
    with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        out.write("\n".join(map(quoted, arguments)))
    try:
        yield file
    finally:
        file.unlink()


def _cluster_id(broker: Broker) -> str:
    """The cluster's id: 22 characters; the tool would read a leading dash as an option."""
    if broker.cluster_id is not None and broker.cluster_id.is_file():
        return broker.cluster_id.read_text()
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    if broker.cluster_id is not None:
        replace_file(broker.cluster_id, text.encode())
    return text
