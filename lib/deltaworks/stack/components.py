"""Reads what `infra/components.toml` says about the components."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError

Report = Callable[[str], None]
"""Told what is going on, a short line at a time."""


@dataclass(frozen=True, kw_only=True)
class KafkaComponent:
    """The broker."""

    version: str
    image: str
    """Name of the same thing as a container."""
    ready_timeout_s: float
    free_disk_mb: int
    """It is not started with less."""


@dataclass(frozen=True, kw_only=True)
class JarModules:
    """What a lock is made from."""

    modules: tuple[str, ...]
    """`group:artifact:version`."""
    transitive: bool
    """With everything that they depend on."""


@dataclass(frozen=True, kw_only=True)
class Components:
    """All of `components.toml`."""

    java_versions: tuple[int, ...]
    kafka: KafkaComponent
    jars: Mapping[str, JarModules]


def read_components(infra: Path) -> Components:
    """Raises `ConfigurationError` if the file is missing."""
    file = infra / "components.toml"
    try:
        content = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file} is missing: this installation has no description of its components.",
            hint="install from a clone with `make`, or from a wheel",
        ) from None
    return Components(
        java_versions=tuple(content["java"]["versions"]),
        kafka=KafkaComponent(**content["kafka"]),
        jars={
            name: JarModules(modules=tuple(entry["modules"]), transitive=entry["transitive"])
            for name, entry in content["jars"].items()
        },
    )
