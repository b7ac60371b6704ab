"""A real Kafka broker on this machine: one KRaft node. Its configuration is in `infra/kafka`.

It is not tuned for throughput and replicates nothing: it is for development, tests and benchmarks on one machine.
"""

from __future__ import annotations

import base64
import shutil
import string
import subprocess
import uuid
from pathlib import Path

from deltaworks.errors import StackError
from deltaworks.kafka.admin import answers
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.components import Components, Report
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import Java, find_java


def prepare(settings: Settings, components: Components, report: Report) -> None:
    """Makes jars, configuration and a formatted data folder.

    Raises:
        StackError: jars are missing, or the data folder cannot be formatted.
        ConfigurationError: no Java is usable, or a jar does not match the lock.
    """
    java = find_java(settings, components.java_versions)
    classpath = _classpath(settings, report)
    config = _configure(settings)
    if not (settings.kafka / "data" / "meta.properties").is_file():
        _format(settings, java, classpath, config, report)


def command(settings: Settings, components: Components) -> list[str]:
    """The command that starts the broker."""
    java = find_java(settings, components.java_versions)
    return [
        *_jvm(settings, java),
        *settings.broker_options,
        *("-cp", _classpath(settings), "kafka.Kafka", str(_config(settings))),
    ]


def is_ready(settings: Settings) -> bool:
    """Whether the broker answers the admin protocol."""
    return ports.answers(settings.broker_port) and answers(settings.cluster, timeout_s=2.0)


def _classpath(settings: Settings, report: Report = lambda _: None) -> str:
    return f"{ensure_jars(settings, 'kafka', report)[0].parent}/*"


def _config(settings: Settings) -> Path:
    return settings.kafka / "server.properties"


def _configure(settings: Settings) -> Path:
    """Writes the broker's configuration, at every start."""
    template = string.Template((settings.infra / "kafka" / "server.properties").read_text())
    config = _config(settings)
    settings.kafka.mkdir(parents=True, exist_ok=True)
    text = template.substitute(
        names="$names",
        port=settings.broker_port,
        controller_port=settings.controller_port,
        data=settings.kafka / "data",
    )
    config.write_text(text)
    shutil.copyfile(settings.infra / "kafka" / "log4j2.properties", settings.kafka / "log4j2.properties")
    return config


def _jvm(settings: Settings, java: Java) -> list[str]:
    return [
        str(java.executable),
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={settings.temporary}",
        f"-Dlog4j2.configurationFile={settings.kafka / 'log4j2.properties'}",
    ]


def _format(settings: Settings, java: Java, classpath: str, config: Path, report: Report) -> None:
    report("kafka: formatting a new data folder")
    data = settings.kafka / "data"
    shutil.rmtree(data, ignore_errors=True)  # left by an interrupted format
    answer = subprocess.run(
        [
            *_jvm(settings, java),
            *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath),
            *("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(config)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        lines = [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        raise StackError(f"Kafka cannot format {data}.", log=lines[-10:], hint="is the folder writable?")


def _cluster_id() -> str:
    """A cluster id of 22 characters; the tool would read a leading dash as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
