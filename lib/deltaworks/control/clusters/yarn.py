"""YARN: its configuration is a folder of Hadoop's files, which say where the resource manager is.

The driver asks it for a small application master, which gets the executors. YARN starts them in containers, and hands
them the secret that the driver has made. The code comes by YARN, too: through a staging folder in the cluster's file
system.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltaworks.control.clusters.model import MASTER, PORTS, Cluster, containers, python_of
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

NAME = "yarn"
_FILE = "yarn-site.xml"
_MANAGER = "yarn.resourcemanager"
_PORT = 8032
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_DEPTH = 20
"""Hadoop, too, follows variables in variables so far."""


@dataclass(frozen=True, kw_only=True)
class Yarn(Cluster):
    """A cluster of Hadoop; its master is `yarn`."""

    archives = "spark.yarn.dist.archives"
    kind = "YARN cluster"
    hint = "start its resource manager; hadoop_conf_dir (HADOOP_CONF_DIR) names the cluster"

    folder: Path
    """Hadoop's configuration."""
    managers: tuple[tuple[str, int], ...]
    """Host and port of the resource manager, or of each of several."""
    containers: Mapping[str, str]
    """Settings of its executors."""

    @classmethod
    def of(cls, settings: Settings, pipeline: str, own: Mapping[str, str]) -> Yarn:
        """The one of Hadoop's configuration; raises `ConfigurationError` if there is none, or it names none."""
        if (folder := settings.hadoop_conf_dir) is None:
            raise ConfigurationError(
                f"'{pipeline}' runs on YARN, and nothing says where its configuration is.",
                hint=f'hadoop_conf_dir = "/etc/hadoop/conf", a folder with {_FILE}; or HADOOP_CONF_DIR',
            )
        return cls(
            master=own[MASTER],
            python=python_of(own),
            cores=settings.cores,
            folder=folder,
            managers=tuple(_managers(folder / _FILE)),
            containers=containers(own, settings.cores, "YARN"),
        )

    @property
    def at(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.managers)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return list(self.managers)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HADOOP_CONF_DIR": str(self.folder)}

    def settings(self) -> dict[str, str]:
        return {
            **self.containers,
            "spark.yarn.am.attemptFailuresValidityInterval": "1h",  # else a stream ends with its second one, ever
        }


def _managers(file: Path) -> list[tuple[str, int]]:
    """Where the resource managers of a configuration are.

    Raises:
        ConfigurationError: the file cannot be read, or names none.
    """
    found = _properties(file)
    ids = [""]
    if found.get(f"{_MANAGER}.ha.enabled") == "true":
        ids = [f".{each.strip()}" for each in found.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if each.strip()]
    managers = [_manager(found, of) for of in ids]
    if not managers or None in managers:
        raise ConfigurationError(
            f"{file} does not say where the resource manager is.",
            hint=f"{_MANAGER}.hostname or {_MANAGER}.address, as in the configuration of the cluster",
        )
    return [each for each in managers if each is not None]


def _manager(found: Mapping[str, str], of: str) -> tuple[str, int] | None:
    """That of one id, which has a dot before it; empty: there is only one."""
    address = found.get(f"{_MANAGER}.address{of}") or found.get(f"{_MANAGER}.hostname{of}", "")
    host, _, port = address.partition(":")
    if not host or (port and not (port.isdecimal() and int(port) in PORTS)):
        return None
    return host, int(port or _PORT)


def _properties(file: Path) -> dict[str, str]:
    """The properties of a file of Hadoop; variables in them are replaced."""
    try:
        root = ET.fromstring(file.read_bytes())
    except (OSError, ET.ParseError) as error:
        raise ConfigurationError(
            f"YARN's configuration cannot be read: {file}: {error}.", hint="a folder with the files of the cluster"
        ) from error
    raw = {each.findtext("name", "").strip(): each.findtext("value", "").strip() for each in root.iter("property")}

    def replaced(value: str) -> str:
        for _ in range(_DEPTH):
            after = _VARIABLE.sub(lambda match: raw.get(match[1], match[0]), value)
            if after == value:
                break
            value = after
        return value

    return {name: replaced(value) for name, value in raw.items()}
