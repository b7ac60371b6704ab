"""A real Kafka broker on this machine: one KRaft node, started natively.

What it does, in order: port and disk checks, jars, format of a new data folder, start, wait until the admin
protocol answers. A broker that already runs is left alone. Configuration is in `infra/kafka`.

Does not tune for throughput and replicates nothing: it is for development, tests and benchmarks on one machine.
"""

from __future__ import annotations

import base64
import shutil
import string
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from deltaworks import processes
from deltaworks.errors import StackError
from deltaworks.kafka.admin import answers
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.components import KafkaComponent, Report, read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import Java, find_java

NAME = "kafka"
_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker that answers."""

    bootstrap: str
    pid: int
    started_now: bool
    """False: it was already running."""
    ready_s: float
    """From the call to its first answer."""


def start_kafka(settings: Settings, report: Report = lambda _: None, *, tethered: bool = False) -> Broker:
    """Starts the broker of `settings.bootstrap`, or finds it running.

    Args:
        tethered: it ends with the process that started it; for tests.

    Raises:
        StackError: a port is taken, the disk is full, jars are missing, it died or does not answer; nothing is
            left running then.
        ConfigurationError: there is no usable Java, or a jar is not what the lock says.
    """
    begin = time.monotonic()
    running = processes.find(settings.run, NAME)
    components = read_components(settings.infra)
    if running is not None and running.alive:
        try:
            _wait_until_ready(settings, running, components.kafka, report)
            return _broker(settings, running, begin, started_now=False)
        except StackError:
            if running.alive:
                raise
    if running is not None:
        report(f"kafka: process {running.pid} is gone (crash or restart of the machine), starting it again")
        processes.stop(settings.run, running)
    _require_room(settings, components.kafka)
    _require_ports(settings, patience_s=0.0 if running is None else 10.0)
    java = find_java(settings, components.java_versions)
    classpath = f"{ensure_jars(settings, 'kafka', report)[0].parent}/*"
    config = _configure(settings)
    settings.temporary.mkdir(parents=True, exist_ok=True)
    if not (settings.kafka / "data" / "meta.properties").is_file():
        _format(settings, java, classpath, config, report)
    report(f"kafka: starting {components.kafka.version} on {settings.bootstrap}")
    started = processes.launch(
        settings.run,
        name=NAME,
        kind="kafka",
        command=[
            *_jvm(settings, java),
            *settings.broker_options,
            *("-cp", classpath, "kafka.Kafka", str(config)),
        ],
        log=settings.logs / "kafka.log",
        ports=(settings.broker_port, settings.controller_port),
        tethered=tethered,
    )
    try:
        _wait_until_ready(settings, started, components.kafka, report)
    except BaseException:
        processes.stop(settings.run, started, timeout_s=2)
        raise
    return _broker(settings, started, begin, started_now=True)


def _broker(settings: Settings, entry: processes.Registered, begin: float, *, started_now: bool) -> Broker:
    return Broker(
        bootstrap=settings.bootstrap, pid=entry.pid, started_now=started_now, ready_s=time.monotonic() - begin
    )


def _require_ports(settings: Settings, patience_s: float) -> None:
    for port, role, variable in (
        (settings.broker_port, "Kafka", "DELTAWORKS_BOOTSTRAP=127.0.0.1:<port>"),
        (settings.controller_port, "Kafka's controller", "DELTAWORKS_CONTROLLER_PORT=<port>"),
    ):
        ports.require_free(port, role, f"stop it, or choose another port: {variable}", patience_s=patience_s)


def _require_room(settings: Settings, component: KafkaComponent) -> None:
    settings.kafka.mkdir(parents=True, exist_ok=True)
    free_mb = shutil.disk_usage(settings.kafka).free // 1_000_000
    if free_mb < component.free_disk_mb:
        raise StackError(
            f"{settings.kafka} has {free_mb} MB free; Kafka is not started with less than {component.free_disk_mb} MB.",
            hint="make room, or move everything: DELTAWORKS_HOME=<folder on another disk>",
        )


def _configure(settings: Settings) -> Path:
    """Writes what the broker reads; made anew at every start."""
    template = string.Template((settings.infra / "kafka" / "server.properties").read_text())
    config = settings.kafka / "server.properties"
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
    shutil.rmtree(data, ignore_errors=True)  # of a format that was interrupted
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
    """22 characters, as the tool wants it; a leading dash would be an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _wait_until_ready(
    settings: Settings, entry: processes.Registered, component: KafkaComponent, report: Report
) -> None:
    begin = time.monotonic()
    told = 0
    while not (ports.answers(settings.broker_port) and answers(settings.bootstrap, timeout_s=2.0)):
        waited = time.monotonic() - begin
        if not entry.alive:
            raise StackError(
                f"Kafka (process {entry.pid}) ended while it was starting.",
                log=processes.last_lines(Path(entry.log)),
                hint=f"the whole log is {entry.log}",
            )
        if waited > component.ready_timeout_s:
            raise StackError(
                f"Kafka (process {entry.pid}) does not answer on {settings.bootstrap} after {waited:.0f} s.",
                log=processes.last_lines(Path(entry.log)),
                hint=f"the whole log is {entry.log}; is the machine overloaded?",
            )
        if int(waited) > told:
            told = int(waited)
            report(f"kafka: waiting for an answer, {told} s")
        time.sleep(_POLL_S)
