"""Plugins of Kafka Connect: a lock has the version and SHA-256 of each, and `Settings.connect_plugins` chooses some.

What is chosen is downloaded once per user (`Settings.cache`) and lies unpacked in `<home>/connect/plugins`, one folder
for each. One more, `deltaworks`, is no download: `connect_transforms.py` compiles it.
"""

from __future__ import annotations

import shutil
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from deltaworks.connect.debezium import MARIADB, MONGODB, MYSQL, POSTGRES
from deltaworks.connect.file_streams import FILE_SINK, FILE_SOURCE
from deltaworks.connect.jdbc import JDBC_SINK
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import connect_transforms
from deltaworks.stack.archives import require_plain
from deltaworks.stack.components import Report
from deltaworks.stack.jars import Jar, ensure_cached, link, read_lock

_SET = "connect-plugins"
_ARTIFACTS = {
    "file": "connect-file",
    "debezium-mariadb": "debezium-connector-mariadb",
    "debezium-mongodb": "debezium-connector-mongodb",
    "debezium-mysql": "debezium-connector-mysql",
    "debezium-postgres": "debezium-connector-postgres",
    "jdbc": "debezium-connector-jdbc",
}
"""Name of a plugin -> its artifact in the lock."""
_CLASSES: Mapping[str, tuple[str, ...]] = {
    "file": (FILE_SOURCE, FILE_SINK),
    "debezium-mariadb": (MARIADB,),
    "debezium-mongodb": (MONGODB,),
    "debezium-mysql": (MYSQL,),
    "debezium-postgres": (POSTGRES,),
    "jdbc": (JDBC_SINK,),
}
"""Name of a plugin -> its classes."""
OWN = "deltaworks"
"""The plugin with our transforms."""
_STAMP = ".complete"


def folder(settings: Settings) -> Path:
    """The folder of a home in which workers look for plugins."""
    return settings.connect / "plugins"


def known(settings: Settings) -> Mapping[str, Jar]:
    """All plugins of the lock by their names."""
    locked = {jar.module.artifact: jar for jar in read_lock(settings.infra, _SET).jars}
    return {name: locked[artifact] for name, artifact in _ARTIFACTS.items()}


def versions(settings: Settings, url: str) -> Mapping[str, str]:
    """Class -> its version in the lock, if a worker of this home answers there; no class, if another one does.

    Args:
        settings: of the home.
        url: of the worker.
    """
    access = settings.connect_access_in(settings.home)
    if not access.is_file() or tomllib.loads(access.read_text())["connect"]["url"].rstrip("/") != url.rstrip("/"):
        return {}
    plugins = known(settings)
    return {class_: plugins[name].module.version for name, classes in _CLASSES.items() for class_ in classes}


def ensure(settings: Settings, report: Report) -> None:
    """Gives a home the plugins that its settings choose, and takes away others.

    Raises:
        ConfigurationError: there is no such plugin, it does not match the lock, or our own cannot be compiled here.
        StackError: it cannot be downloaded or unpacked.
    """
    chosen = _chosen(settings)
    own = connect_transforms.ensure(settings, report) if OWN in settings.connect_plugins else None
    folder(settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    new = {name: plugin for name, plugin in chosen.items() if not _is_there(folder(settings) / name, plugin)}
    files = ensure_cached(settings, tuple(new.values()), report) if new else ()
    for other in folder(settings).iterdir():
        if other.name not in settings.connect_plugins:
            shutil.rmtree(other)
    for (name, plugin), file in zip(new.items(), files, strict=True):
        _place(file, plugin, folder(settings) / name)
    if own is not None:
        _place_own(own, folder(settings) / OWN)


def _chosen(settings: Settings) -> dict[str, Jar]:
    plugins = known(settings)
    names = [name for name in settings.connect_plugins if name != OWN]
    if unknown := [name for name in names if name not in plugins]:
        raise ConfigurationError(
            f"Kafka Connect has no plugin {', '.join(map(repr, unknown))} here.",
            hint=f"DELTAWORKS_CONNECT_PLUGINS may name {', '.join([*plugins, OWN])}",
        )
    return {name: plugins[name] for name in names}


def _place_own(jar: Path, place: Path) -> None:
    stamp = place / _STAMP
    if not (stamp.is_file() and stamp.read_text() == jar.parent.name):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        link(jar, place / jar.name)
        stamp.write_text(jar.parent.name)


def _is_there(place: Path, plugin: Jar) -> bool:
    stamp = place / _STAMP
    return stamp.is_file() and stamp.read_text() == str(plugin)


def _place(file: Path, plugin: Jar, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    if plugin.module.extension == "jar":
        link(file, place / file.name)
    else:
        try:
            _unpack(file, place)
        except tarfile.TarError as error:
            raise StackError(f"{file} cannot be unpacked into {place}: {error}.") from error
    (place / _STAMP).write_text(str(plugin))


def _unpack(file: Path, place: Path) -> None:
    """Unpacks folders and files with their modes, and nothing outside of the folder.

    Python has a filter for that since 3.11.4 only, and Debian 12 comes with 3.11.2.
    """
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        for member in members:
            require_plain(member.name, tarfile.ExtractError, is_plain=member.isreg() or member.isdir())
            member.mode = (member.mode & 0o755) | 0o600 | (0o100 if member.isdir() else 0)
            member.uid = member.gid = 0
        archive.extractall(place, members)
