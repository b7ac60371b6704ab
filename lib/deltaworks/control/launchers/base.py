"""The interface of launchers, which start, find and end drivers; they decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from deltaworks.control.model import DeployOptions

ExternalId = dict[str, Any]
"""A launcher's id of a driver, as JSON; kept in the registry."""

Life = Literal["alive", "ended", "gone"]
"""`gone`: from here, this launcher knows nothing of the driver."""


@dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """The driver to start."""

    pipeline: str
    generation: int
    options: DeployOptions
    log: Path
    code: Path | None = None
    """The archive that it runs from; None: it runs from the files of the project."""


class Launcher(Protocol):
    """Starts drivers that outlive it."""

    def check(self) -> None:
        """Raises `DeltaworksError` if drivers cannot be started from here."""

    def submit(self, spec: DriverSpec) -> ExternalId:
        """Starts a driver unless one of the same generation already runs."""
        ...

    def drivers(self, pipeline: str) -> dict[int, ExternalId]:
        """The drivers that it finds, by generation, including dead ones: the answer of `submit` may have been lost."""
        ...

    def status(self, driver: ExternalId) -> Life:
        """Whether the driver runs."""
        ...

    def suspended(self, driver: ExternalId) -> bool:
        """Whether the driver exists but is suspended, so that a request to it would be in vain."""
        ...

    def request_stop(self, driver: ExternalId) -> None:
        """Asks the driver to finish and stop."""

    def kill(self, driver: ExternalId) -> None:
        """Kills the driver with all its processes; returns when none is left."""

    def log_lines(self, driver: ExternalId) -> list[str]:
        """Log lines that explain its end."""
        ...
