"""A standalone cluster of Spark on this machine: one master and two workers, from the PySpark wheel.

It is what a company's cluster looks like to a stream: for tests, and to try a stream with it before it meets the real
one. Secret and folders of the workers are in `<home>/spark`; `access.toml` there says how drivers reach the cluster
(`Settings.spark_access_in`).

Everything listens on 127.0.0.1. Master, workers, drivers and executors authenticate with the secret, which is in files
that only their user can read. The web pages ask nobody; they show no secret, and nobody can end anything there. The
REST server of the master, which asks nobody either and starts programs, is off.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import pages
from deltaworks.stack.components import Component, Components
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.java import find_java

WORKERS = 2
_LOOPBACK = "127.0.0.1"
_PACKAGE = "org.apache.spark.deploy"
_USER = "sparkSaslUser"
"""The one user that Spark knows."""
_SECRET_BYTES = 32
_HIGHEST = 65_535 - 2 * WORKERS - 1
_TIMEOUT_S = 5
_PROPERTIES = """\
spark.authenticate true
spark.authenticate.secret {secret}
spark.master.rest.enabled false
spark.master.ui.decommission.allow.mode DENY
spark.ui.killEnabled false
spark.worker.cleanup.enabled true
"""
_RECOVERY = """\
spark.deploy.recoveryMode FILESYSTEM
spark.deploy.recoveryDirectory {folder}
"""
"""A master that was killed comes back with its workers and applications."""
_ACCESS = """\
# Written by `deltaworks up spark`: how drivers reach the Spark cluster of this home.
[spark]
"spark.master" = "{master}"
"spark.authenticate.secret" = {{ file = "secrets/secret" }}
"""


def prepare(settings: Settings, components: Components) -> None:
    """Makes the secret and the folders if they do not exist, and writes configuration and access.

    Raises:
        ConfigurationError: PySpark is missing, no Java is usable, or there are no such ports.
    """
    _spark_home()
    find_java(settings, components.java_versions)
    ports(settings, WORKERS)
    login = credentials(settings)
    recovery = settings.spark / "master"
    for folder in (recovery, *(_worker(settings, node) for node in range(1, WORKERS + 1))):
        folder.mkdir(mode=0o700, exist_ok=True)
    properties = _PROPERTIES.format(secret=login.password) + _RECOVERY.format(folder=_as_value(recovery))
    replace_file(_properties(settings), properties.encode(), mode=0o600)
    replace_file(login.file, _ACCESS.format(master=login.url).encode(), mode=0o600, durable=True)


def credentials(settings: Settings) -> Credentials:
    """How a driver gets in. The secret is made once, and kept in the home."""
    file = settings.spark / "secrets" / "secret"
    for folder in (settings.spark, file.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    if created_now := not file.is_file():
        replace_file(file, f"{secrets.token_hex(_SECRET_BYTES)}\n".encode(), mode=0o600)
    return Credentials(
        url=_master(settings),
        user=_USER,
        password=file.read_text().strip(),
        file=settings.spark_access_in(settings.home),
        created_now=created_now,
    )


def ports(settings: Settings, node: int) -> tuple[int, int]:
    """Where a process listens, and its web page.

    Args:
        settings: name the port of the master.
        node: the number of a worker, from 1; 0: the master.

    Raises:
        ConfigurationError: there are no such ports.
    """
    if settings.spark_port > _HIGHEST:
        raise ConfigurationError(
            f"DELTAWORKS_SPARK_PORT is {settings.spark_port}; the Spark cluster takes {2 * WORKERS + 1} more ports "
            "after it.",
            hint=f"choose one up to {_HIGHEST}",
        )
    first = settings.spark_port + 2 * node
    return first, first + 1


def page(settings: Settings) -> str:
    """The address of the master's web page."""
    return f"http://{_LOOPBACK}:{ports(settings, 0)[1]}"


def command(settings: Settings, component: Component) -> list[str]:
    """The command that starts the master or a worker."""
    port, own_page = ports(settings, component.node)
    options: dict[str, object] = {"--host": _LOOPBACK, "--port": port, "--webui-port": own_page}
    if component.node:
        options |= {"--cores": settings.spark_worker_cores, "--memory": settings.spark_worker_memory}
    options["--properties-file"] = _properties(settings)
    return [
        str(_spark_home() / "bin" / "spark-class"),
        *component.command,
        *(str(word) for option in options.items() for word in option),
        *([_master(settings)] if component.node else []),
    ]


def environment(settings: Settings, components: Components, component: Component) -> dict[str, str]:
    """All variables of the master or a worker; executors inherit those of their worker."""
    found = settings.surroundings() | {
        "JAVA_HOME": str(find_java(settings, components.java_versions).home),
        "PATH": os.pathsep.join(map(str, settings.path)),
        "TMPDIR": str(settings.temporary),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_CONF_DIR": str(settings.spark),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_LAUNCHER_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData "
        + _quoted(f"-Djava.io.tmpdir={settings.temporary}"),
    }
    if component.node:
        folder = _worker(settings, component.node)
        found |= {"SPARK_WORKER_DIR": str(folder), "SPARK_LOCAL_DIRS": str(_scratch(folder))}
    return found


def answers(settings: Settings, component: Component) -> bool:
    """Whether the master is at work and, if the component is a worker, knows it."""
    state = _state(ports(settings, 0)[1])
    if not component.node:
        return state.get("status") == "ALIVE"
    port, own_page = ports(settings, component.node)
    known = any(worker["port"] == port and worker["state"] == "ALIVE" for worker in state.get("workers", []))
    return known and bool(_state(own_page))  # the master may not know yet that it has ended


def tidy(settings: Settings) -> None:
    """Removes what executors that were killed have left behind."""
    for folder in settings.spark.glob("worker-*"):
        shutil.rmtree(_scratch(folder), ignore_errors=True)


def _master(settings: Settings) -> str:
    return f"spark://{_LOOPBACK}:{settings.spark_port}"


def _properties(settings: Settings) -> Path:
    return settings.spark / "cluster.properties"


def _worker(settings: Settings, node: int) -> Path:
    return settings.spark / f"worker-{node}"


def _scratch(worker: Path) -> Path:
    return worker / "local"


def _spark_home() -> Path:
    """The folder of PySpark, which is a distribution of Spark.

    Raises:
        ConfigurationError: PySpark is not installed, or without its jars.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    if folder is None or not (folder / "bin" / "spark-class").is_file() or not any(folder.glob("jars/spark-core*.jar")):
        raise ConfigurationError(
            "The Spark cluster needs PySpark with its jars.",
            hint="pip install 'deltaworks[spark,stack]'; `pyspark-client` has no jars",
        )
    return folder


def _as_value(path: Path) -> str:
    """A path as a file of properties has it."""
    return str(path).replace("\\", "\\\\")


def _quoted(option: str) -> str:
    """An option of the JVM in the notation of Spark's launcher, which separates options at spaces."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _state(page_port: int) -> dict[str, Any]:
    """What the web page of a process says of it; empty if nobody answers."""
    return pages.said(page_port, "/json/", timeout_s=_TIMEOUT_S) or {}
