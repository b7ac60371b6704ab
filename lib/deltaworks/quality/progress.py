"""What is known of the stream that writes the tables, for checks of freshness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from deltaworks.control import batches, heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings

_ALIVE_S = 60.0
"""A running stream writes a heartbeat more often."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a stream is; without a stream, nothing is known."""

    last_batch: datetime | None = None
    """Wall clock of the last committed batch."""
    state: str | None = None
    """State of the driver; None: there is no heartbeat."""
    heartbeat_age_s: float | None = None
    lag_records: int | None = None
    """Records of the topics that no batch has read yet; None: unknown."""

    @classmethod
    def of(cls, settings: Settings, pipeline: str) -> Progress:
        paths = PipelinePaths.of(settings, pipeline)
        last, beat = batches.last(paths.batches), heartbeat.read(paths.heartbeat)
        return cls(
            last_batch=None if last is None else datetime.fromtimestamp(last.wall_clock_ms / 1000, UTC),
            state=None if beat is None else beat.state,
            heartbeat_age_s=None if beat is None else heartbeat.age_s(beat),
            lag_records=None if beat is None else beat.lag_records,
        )

    @property
    def is_running(self) -> bool:
        return self.state == "running" and self.heartbeat_age_s is not None and self.heartbeat_age_s <= _ALIVE_S

    @property
    def input_is_idle(self) -> bool:
        """Whether the stream runs and has read all records that there are."""
        return self.is_running and self.lag_records == 0

    @property
    def told(self) -> str:
        if self.input_is_idle:
            return "the stream runs and has read all of its input, which is idle"
        if self.is_running:
            waiting = "an unknown number of" if self.lag_records is None else f"{self.lag_records:,}"
            return f"the stream runs, and {waiting} records wait"
        return "no stream is known to run" if self.state is None else f"the stream does not run ({self.state})"


UNKNOWN = Progress()
"""There is no stream, or nothing is known of it."""
