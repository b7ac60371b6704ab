"""What a launcher can do. It starts, finds and ends drivers; it decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from deltaworks.control.model import DeployOptions

ExternalId = dict[str, Any]
"""What a launcher finds its driver by, as JSON; kept in the registry."""

Life = Literal["alive", "ended", "gone"]
"""`gone`: this launcher, asked from here, knows nothing of it."""


@dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """What to start."""

    pipeline: str
    generation: int
    options: DeployOptions
    log: Path
    code: Path | None = None
    """The archive that it runs from; None: the files of the project."""


class Launcher(Protocol):
    """Starts drivers that go on without it."""

    def check(self) -> None:
        """Raises `DeltaworksError` if drivers cannot be started from here."""

    def submit(self, spec: DriverSpec) -> ExternalId:
        """Starts a driver; one of the same generation that runs already is not started twice."""
        ...

    def drivers(self, pipeline: str) -> dict[int, ExternalId]:
        """What it finds by itself, by generation, dead ones included: the answer of `submit` may have been lost."""
        ...

    def status(self, driver: ExternalId) -> Life:
        """Whether it runs."""
        ...

    def suspended(self, driver: ExternalId) -> bool:
        """It exists and cannot do anything, so that there is no point in asking it for something."""
        ...

    def request_stop(self, driver: ExternalId) -> None:
        """Asks it to finish and stop."""

    def kill(self, driver: ExternalId) -> None:
        """Ends it, with all that belongs to it. Returns when nothing of it is left."""

    def log_lines(self, driver: ExternalId) -> list[str]:
        """What explains its end."""
        ...
