"""Reads the description of the components, `infra/components.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks.errors import ConfigurationError

Report = Callable[[str], None]
"""Gets progress messages, one short line at a time."""
Kind = (
    Literal["kafka", "postgres", "airflow", "seaweedfs", "axonops", "connect", "spark", "deltaworks"]
    | Literal["source-postgres", "mariadb", "opensearch", "prometheus", "alertmanager"]
)
"""The software of a component."""
Check = (
    Literal["admin", "login", "http", "heartbeat", "answers", "sql", "s3", "schemas", "connect", "spark", "exit"]
    | Literal["search", "watch"]
)
"""How to check that others can use a component."""


class Software(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program: its version, and how it runs natively and as a container."""

    version: str
    image: str = ""
    """Empty: it runs natively only."""
    settings: dict[str, str] = {}
    """Its configuration: environment variables or options; `$names` depend on where it runs."""


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process around the pipelines, or a step that other components need first."""

    name: str
    software: Kind
    command: tuple[str, ...]
    ready: Check
    ready_timeout_s: float
    stop_signal: Literal["SIGTERM", "SIGINT"]
    stop_patience_s: float
    """Seconds until it is killed."""
    memory_mb: int
    """Memory that it may need; its limit in a container."""
    ports: tuple[str, ...] = ()
    """Names of the settings with its ports."""
    after: tuple[str, ...] = ()
    """Components that have to be ready before it starts; it is stopped before them."""
    brings: tuple[str, ...] = ()
    """Steps that run whenever this component is started."""
    path: str = ""
    """Path to request, if `ready` is `http`."""
    job: str = ""
    """Kind of process whose heartbeat counts, if `ready` is `heartbeat`."""
    silence_s: float = 0
    """Seconds without a new heartbeat until it is taken to hang, and killed; 0: for ever."""
    free_disk_mb: int = 0
    """Free disk space that it needs to start."""
    node: int = 0
    """Which broker or worker it is, from 1, if there are several."""
    optional: bool = False
    """Whether it is started only if somebody asks for it."""
    part_of: str = ""
    """The name for all of them, which a command may use."""

    @property
    def is_step(self) -> bool:
        """Whether it runs to its end, once per start of the stack."""
        return self.ready == "exit"


@dataclass(frozen=True, kw_only=True)
class Components:
    """All of `components.toml`."""

    java_versions: tuple[int, ...]
    software: Mapping[str, Software]
    by_name: Mapping[str, Component]
    """All components, in an order in which they can be started."""

    def chosen(self, names: Iterable[str] | None) -> list[Component]:
        """These components and all that they need, in an order in which they can be started.

        Args:
            names: None chooses all but those that are optional.

        Raises:
            ConfigurationError: there is no component of that name.
        """
        found: set[str] = set()
        left = [c.name for c in self.by_name.values() if not c.optional] if names is None else list(names)
        while left:
            name = left.pop()
            if parts := [component.name for component in self.by_name.values() if component.part_of == name]:
                left += parts
                continue
            if name not in self.by_name:
                raise ConfigurationError(
                    f"There is no component {name!r}.", hint=f"components: {', '.join(self.by_name)}"
                )
            if name not in found:
                found.add(name)
                left += [*self.by_name[name].after, *self.by_name[name].brings]
        return [component for component in self.by_name.values() if component.name in found]


def read_components(infra: Path) -> Components:
    """Reads the file; raises `ConfigurationError` if it is missing or invalid."""
    file = infra / "components.toml"
    try:
        content = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file} is missing: this installation has no description of its components.",
            hint="install from a clone with `make`, or from a wheel",
        ) from None
    try:
        described = {
            name: msgspec.convert({"name": name, **entry}, Component) for name, entry in content["components"].items()
        }
        return Components(
            java_versions=tuple(content["java"]["versions"]),
            software=msgspec.convert(content["software"], dict[str, Software]),
            by_name=_in_order(described),
        )
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{file}: {error}.") from error
    except _OrderError as error:
        raise ConfigurationError(f"{file}: {error}.", hint="`after` and `brings` name other components") from error


class _OrderError(ValueError):
    """Components that wait for each other or for an unknown one."""


def _in_order(described: Mapping[str, Component]) -> dict[str, Component]:
    ordered: dict[str, Component] = {}
    named = {name for component in described.values() for name in (*component.after, *component.brings)}
    if unknown := sorted(named - set(described)):
        raise _OrderError(f"there is no component {', '.join(map(repr, unknown))}")
    while len(ordered) < len(described):
        ready = [c for c in described.values() if c.name not in ordered and all(name in ordered for name in c.after)]
        if not ready:
            raise _OrderError(f"{', '.join(sorted(set(described) - set(ordered)))} wait for each other")
        ordered |= {component.name: component for component in ready}
    return ordered
