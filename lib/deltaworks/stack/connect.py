"""Kafka Connect on this machine: in distributed mode one worker, or two that share their connectors; or one alone.

It is what a company's Kafka Connect looks like to a client: for tests, and to try connectors before they meet the real
one. It works with the Kafka of the home, which has its connectors and their positions. Configuration, login and plugins
are in `<home>/connect`; `access.toml` there says how clients reach it (`Settings.connect_access_in`). The configuration
of a connector may refer to files in `<home>/connect/secrets`, and to variables that begin with `config.CONNECTORS`.

Workers listen on 127.0.0.1 and ask for a password: whoever may make connectors may read and write what our user may.
"""

from __future__ import annotations

import secrets
import string
from pathlib import Path

from deltaworks import config
from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import (
    connect_plugins,
    java_clients,
    pages,
    postgres_server,
    source_mariadb,
    source_postgres,
)
from deltaworks.stack.components import Component, Components, Report
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import find_java

USER = "deltaworks"
"""The one user that workers know."""
GROUP = "connect"
"""The group of the workers. Their topics, and the groups of sinks, have names that begin with it."""
STANDALONE = "connect-standalone"
"""The component of the worker alone, whose connectors are in its memory."""
_SET = "connect"
_LOOPBACK = "127.0.0.1"
_HIGHEST = 65_535
_TIMEOUT_S = 5
_SECRET_BYTES = 30
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_CLIENTS = ("", "producer.", "consumer.", "admin.")
"""Prefixes of the settings of a worker's own clients, and of those of its connectors."""
_LOGIN = """\
KafkaConnect {{
  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required file={file};
}};
"""
_ACCESS = """\
# Written by `deltaworks up connect`: how clients reach Kafka Connect of this home.
[connect]
url = "{url}"
username = "{user}"
password = {{ file = "login/password" }}
standalone = {standalone}
"""


def prepare(settings: Settings, components: Components, component: Component, report: Report) -> None:
    """Makes the login if there is none, and writes plugins, configuration and access.

    Args:
        settings: of the home.
        components: name the versions of Java.
        component: the worker.
        report: gets a line before a download.

    Raises:
        ConfigurationError: no Java is usable, a download does not match its lock, there is no such plugin, or workers
            cannot use the path of the home, or reach Kafka as the settings say.
        StackError: something cannot be downloaded or unpacked.
    """
    if "," in str(settings.connect):
        raise ConfigurationError(
            f"Kafka Connect cannot use {settings.connect}: it takes the comma for the end of a path.",
            hint="DELTAWORKS_HOME=<a folder without a comma>",
        )
    find_java(settings, components.java_versions)
    _classpath(settings, report)
    login = credentials(settings)
    _secrets(settings).mkdir(mode=0o700, exist_ok=True)
    connect_plugins.ensure(settings, report)
    postgres_server.make_passwords(source_postgres.server(settings))
    source_mariadb.make_passwords(settings)
    replace_file(_users(settings), f"{login.user}={login.password}\n".encode(), mode=0o600)
    replace_file(_jaas(settings), _LOGIN.format(file=java_clients.quoted(str(_users(settings)))).encode(), mode=0o600)
    replace_file(_configuration_file(settings, component), configuration(settings, component).encode(), mode=0o600)
    replace_file(_logging(settings), _template(settings, "log4j2.properties").encode(), mode=0o600)
    access = _ACCESS.format(url=login.url, user=login.user, standalone=str(_is_alone(component)).lower())
    replace_file(login.file, access.encode(), mode=0o600, durable=True)


def credentials(settings: Settings) -> Credentials:
    """How a client gets in. The password is made once, and kept in the home."""
    file = _login(settings) / "password"
    for folder in (settings.connect, file.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    if created_now := not file.is_file():
        replace_file(file, f"{secrets.token_hex(_SECRET_BYTES)}\n".encode(), mode=0o600)
    return Credentials(
        url=f"http://{_LOOPBACK}:{port(settings, 1)}",
        user=USER,
        password=file.read_text().strip(),
        file=settings.connect_access_in(settings.home),
        created_now=created_now,
    )


def port(settings: Settings, node: int) -> int:
    """Where a worker listens.

    Raises:
        ConfigurationError: there is no such port.
    """
    found = settings.connect_port + node - 1
    if found > _HIGHEST:
        raise ConfigurationError(
            f"DELTAWORKS_CONNECT_PORT is {settings.connect_port}; worker {node} takes the next port.",
            hint=f"choose one up to {_HIGHEST - 1}",
        )
    return found


def configuration(settings: Settings, component: Component) -> str:
    """Of a worker. Where Kafka asks for a password, it is in it.

    Raises:
        ConfigurationError: Java cannot reach Kafka as the settings say.
    """
    names = {
        "names": "$names",
        "group": GROUP,
        "port": port(settings, component.node),
        "plugins": java_clients.escaped(str(connect_plugins.folder(settings))),
        "secrets": java_clients.escaped(str(_secrets(settings))),
        "variables": config.CONNECTORS,
        "positions": java_clients.escaped(str(settings.connect / "standalone.offsets")),
    }
    of_mode = "standalone.properties" if _is_alone(component) else "distributed.properties"
    template = "\n".join(_template(settings, name) for name in ("worker.properties", of_mode))
    text = string.Template(template).substitute(names)
    access = java_clients.access(settings.cluster, keystore=settings.connect / "kafka.pem")
    lines = [f"bootstrap.servers={settings.bootstrap}\n"]
    lines += [f"{client}{name}={java_clients.escaped(v)}\n" for client in _CLIENTS for name, v in access.items()]
    return f"{text}\n# How Kafka is reached.\n{''.join(lines)}"


def command(settings: Settings, components: Components, component: Component) -> list[str]:
    """The command that starts a worker.

    Raises:
        ConfigurationError, StackError: there is no Java, or a jar is missing; see `ensure_jars`.
    """
    return [
        str(find_java(settings, components.java_versions).executable),
        *_JVM,
        f"-Djava.io.tmpdir={settings.temporary}",
        f"-Dlog4j2.configurationFile={_logging(settings)}",
        f"-Djava.security.auth.login.config={_jaas(settings)}",
        *("-cp", _classpath(settings), *component.command, str(_configuration_file(settings, component))),
    ]


def environment(settings: Settings) -> dict[str, str]:
    """All variables of a worker: those of user and machine, and those that connectors may name.

    Among the latter are the passwords of `cdc` in the home's own databases, unless the user has set them.
    """
    own = {**_of_sources(settings), **settings.connector_variables()}
    return {**settings.surroundings(), **own, "TMPDIR": str(settings.temporary)}


def answers(settings: Settings, node: int) -> bool:
    """Whether a worker says, to the password of this home, that it is healthy: it has joined the group."""
    return pages.lets_in(credentials(settings), port(settings, node), "/health", timeout_s=_TIMEOUT_S)


def _of_sources(settings: Settings) -> dict[str, str]:
    """The passwords with which connectors read the databases of the home, whether these have been started or not."""
    words = {
        "SOURCE_POSTGRES": postgres_server.passwords(source_postgres.server(settings)).get(source_postgres.CDC),
        "SOURCE_MARIADB": source_mariadb.passwords(settings).get(source_mariadb.CDC),
    }
    return {f"{config.CONNECTORS}{name}_PASSWORD": word for name, word in words.items() if word is not None}


def _template(settings: Settings, name: str) -> str:
    return (settings.infra / "connect" / name).read_text()


def _classpath(settings: Settings, report: Report = lambda _: None) -> str:
    return f"{ensure_jars(settings, _SET, report)[0].parent}/*"


def _login(settings: Settings) -> Path:
    """Who gets in; no connector may refer to it."""
    return settings.connect / "login"


def _users(settings: Settings) -> Path:
    """A file without users would let everybody in."""
    return _login(settings) / "users.properties"


def _jaas(settings: Settings) -> Path:
    return _login(settings) / "jaas.conf"


def _secrets(settings: Settings) -> Path:
    """Of connectors; whoever makes one writes them there."""
    return settings.connect / "secrets"


def _configuration_file(settings: Settings, component: Component) -> Path:
    name = "standalone" if _is_alone(component) else f"worker-{component.node}"
    return settings.connect / f"{name}.properties"


def _is_alone(component: Component) -> bool:
    return component.name == STANDALONE


def _logging(settings: Settings) -> Path:
    return settings.connect / "log4j2.properties"
