"""An OpenSearch of this machine: one node, from the archive that OpenSearch publishes for integration tests.

It is what a company's search looks like to a sink: for tests, and to try one before it meets the real one. The archive
has no plugins, so there is no login, no TLS and no scripts: like the Kafka without passwords, it is for a machine
without other users, and it listens on 127.0.0.1 only.

Program, configuration and data are in `<home>/opensearch`. OpenSearch refuses to run as root; under root it runs as
another user, who has to be able to reach the folder and Java. The program stays ours, so that the server cannot change
it.
"""

from __future__ import annotations

import os
import shutil
import stat
import string
import subprocess
import zipfile
from pathlib import Path

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import other_user, pages
from deltaworks.stack.archives import require_plain
from deltaworks.stack.components import Component, Components, Report
from deltaworks.stack.jars import ensure_cached, read_lock
from deltaworks.stack.java import Java, find_java

NAME = "opensearch"
_LOOPBACK = "127.0.0.1"
_HIGHEST = 65_535
_TIMEOUT_S = 5
_FILES = ("log4j2.properties", "opensearch.yml")
_STAMP = ".complete"


def prepare(settings: Settings, components: Components, report: Report) -> None:
    """Unpacks the program, makes the data folder, and writes the configuration.

    Raises:
        ConfigurationError: no Java is usable, the download does not match its lock, there are no such ports, or the
            server's user cannot reach the home or Java.
        StackError: the program cannot be downloaded or unpacked.
    """
    ports(settings)
    user = server_user()
    other_user.make_folder(settings, settings.opensearch, user, "OpenSearch")
    _require_java(find_java(settings, components.java_versions), user)
    _ensure_program(settings, report)
    shutil.rmtree(_temporary(settings), ignore_errors=True)
    for folder in (_configuration(settings), _data(settings), _temporary(settings)):
        folder.mkdir(mode=0o700, exist_ok=True)
        other_user.give(folder, user)
    port, transport = ports(settings)
    names = {"names": "$names", "port": port, "transport": transport, "data": _quoted(_data(settings))}
    for name in _FILES:
        text = string.Template((settings.infra / NAME / name).read_text()).substitute(names)
        replace_file(_configuration(settings) / name, text.encode(), mode=0o600)
        other_user.give(_configuration(settings) / name, user)


def server_user() -> str | None:
    """The user that the server has to run as; see `other_user.server_user`."""
    return other_user.server_user("OpenSearch", "opensearch")


def ports(settings: Settings) -> tuple[int, int]:
    """Of the HTTP API, and of its own transport.

    Raises:
        ConfigurationError: there is no second port.
    """
    if settings.opensearch_port >= _HIGHEST:
        raise ConfigurationError(
            f"DELTAWORKS_OPENSEARCH_PORT is {settings.opensearch_port}; OpenSearch takes the next port as well.",
            hint=f"choose one up to {_HIGHEST - 1}",
        )
    return settings.opensearch_port, settings.opensearch_port + 1


def url(settings: Settings) -> str:
    """Where clients reach it."""
    return f"http://{_LOOPBACK}:{settings.opensearch_port}"


def command(settings: Settings, components: Components, component: Component) -> list[str]:
    """The command that starts the server.

    Raises:
        ConfigurationError: no Java is usable.
    """
    lines = (settings.infra / NAME / "jvm.options").read_text().splitlines()
    return [
        str(find_java(settings, components.java_versions).executable),
        *(line for line in lines if line and not line.startswith("#")),
        f"-Djava.io.tmpdir={_temporary(settings)}",
        f"-Dopensearch.path.home={_program(settings)}",
        f"-Dopensearch.path.conf={_configuration(settings)}",
        *("-cp", f"{_program(settings)}/lib/*", *component.command),
    ]


def environment(settings: Settings) -> dict[str, str]:
    """All variables of its process."""
    return {
        "PATH": os.defpath,
        "HOME": str(settings.opensearch),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(_temporary(settings)),
    }


def answers(settings: Settings) -> bool:
    """Whether every index can be read and written, as far as one node can have its parts."""
    said = pages.said(settings.opensearch_port, "/_cluster/health", timeout_s=_TIMEOUT_S) or {}
    return said.get("cluster_name") == "deltaworks" and said.get("status") in ("green", "yellow")


def _require_java(java: Java, user: str | None) -> None:
    """The user who runs the server can run Java."""
    if user is None:
        return
    answer = subprocess.run(
        other_user.as_user(user, ["/usr/bin/test", "-x", str(java.executable)]), cwd="/", check=False
    )
    if answer.returncode != 0:
        raise ConfigurationError(
            f"OpenSearch does not run as root but as user {user}, who cannot run {java.executable}.",
            hint="run this as an ordinary user, or point JAVA_HOME at a Java that everybody may run",
        )


def _ensure_program(settings: Settings, report: Report) -> None:
    [archive] = read_lock(settings.infra, NAME).jars
    place, stamp = settings.opensearch / "program", settings.opensearch / "program" / _STAMP
    if stamp.is_file() and stamp.read_text() == str(archive):
        return
    [file] = ensure_cached(settings, [archive], report)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755)
    try:
        unpack(file, place)
    except (zipfile.BadZipFile, OSError) as error:
        raise StackError(f"{file} cannot be unpacked into {place}: {error}.", hint="is the disk full?") from error
    stamp.write_text(str(archive))


def unpack(file: Path, place: Path) -> None:
    """Unpacks folders and files, which everybody may read, and nothing outside of the folder.

    Raises:
        zipfile.BadZipFile: there is something else in it.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            require_plain(member.filename, zipfile.BadZipFile, is_plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
        for member in members:
            made = Path(archive.extract(member, place))
            made.chmod(0o755 if member.is_dir() or (member.external_attr >> 16) & 0o100 else 0o644)


def _program(settings: Settings) -> Path:
    """The one folder in the archive."""
    [archive] = read_lock(settings.infra, NAME).jars
    return settings.opensearch / "program" / f"opensearch-{archive.module.version}"


def _configuration(settings: Settings) -> Path:
    return settings.opensearch / "config"


def _data(settings: Settings) -> Path:
    return settings.opensearch / "data"


def _temporary(settings: Settings) -> Path:
    return settings.opensearch / "tmp"


def _quoted(path: Path) -> str:
    """As YAML reads a text between single quotes."""
    return "'" + str(path).replace("'", "''") + "'"
