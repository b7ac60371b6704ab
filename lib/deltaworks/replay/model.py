"""Where a replay keeps what it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deltaworks.control.paths import PipelinePaths


@dataclass(frozen=True)
class ReplayPaths:
    """Files and folders of one run, below the pipeline's own; all but the release go when it is cleaned up."""

    root: Path
    release: Path
    """What it published, kept as long as that can be rolled back."""

    @classmethod
    def of(cls, pipeline: PipelinePaths, run_id: str) -> ReplayPaths:
        return cls(pipeline.root / "replays" / run_id, pipeline.root / "releases" / f"{run_id}.json")

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def tables(self) -> Path:
        """The staging tables."""
        return self.root / "tables"
