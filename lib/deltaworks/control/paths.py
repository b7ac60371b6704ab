"""Where a pipeline keeps what is its own, below `Settings.pipeline(name)`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deltaworks.settings import Settings


@dataclass(frozen=True)
class PipelinePaths:
    """Files and folders of one pipeline."""

    root: Path

    @classmethod
    def of(cls, settings: Settings, name: str) -> PipelinePaths:
        return cls(settings.pipeline(name))

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def local(self) -> Path:
        return self.root / "local"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def batches(self) -> Path:
        return self.root / "batches"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat.json"

    @property
    def lease(self) -> Path:
        return self.root / "lease.json"

    @property
    def fence(self) -> Path:
        """The highest generation that was allowed to run; see `control.fence`."""
        return self.root / "generation"

    @property
    def next_tick(self) -> Path:
        """When tasks have something to do without records; written by the driver, read by its source."""
        return self.root / "next-tick"

    @property
    def commands(self) -> Path:
        """What the driver shall do between two batches; see `control.commands`."""
        return self.root / "commands"

    @property
    def replays(self) -> Path:
        """One folder per run; see `replay.model`."""
        return self.root / "replays"

    @property
    def releases(self) -> Path:
        """What replays have published; see `lakehouse.release`."""
        return self.root / "releases"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def drain(self, generation: int) -> Path:
        """Exists while that generation is asked to finish and stop."""
        return self.root / f"drain-{generation}"

    def outcome(self, generation: int) -> Path:
        """How that generation ended, if it could say so; see `control.outcome`."""
        return self.root / "outcomes" / f"{generation}.json"

    @property
    def stop(self) -> Path:
        """Exists while the stream was told to stop and the registry, which was away, does not know it yet."""
        return self.root / "stop"
