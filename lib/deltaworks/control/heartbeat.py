"""The heartbeat: a small file that says how a stream is, written after every batch and while it idles."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from deltaworks.clock import Sign
from deltaworks.control import damaged
from deltaworks.files import replace_file

State = Literal["starting", "running", "draining", "stopped", "failed"]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One beat; times are Unix seconds, rates per second of the last batch."""

    pipeline: str
    generation: int
    """Number of the deployment."""
    query_id: str
    """Identity of the checkpoint; empty until it is open."""
    state: State
    pid: int
    at: float
    sign: Sign | None = None
    """The same moment, for who asks how long ago that was."""
    up_s: float = 0.0
    """How long this driver runs."""
    batch_id: int | None = None
    batch_seconds: float = 0.0
    records_per_second: float = 0.0
    """Over the last minute; 0 of a stream that has idled for one."""
    records_total: int = 0
    """Since this driver started."""
    lag_records: int | None = None
    """Records in the source topics that no committed batch covers; None until known."""
    lag_seconds: float | None = None
    """How long ago the topics ended where the stream is now (`control.lag`); None until known."""
    lag_by_partition: dict[str, dict[str, int]] = {}
    next_offsets: dict[str, dict[str, int]] = {}
    """Next offset per topic and partition after the last committed batch."""
    stream_time_ms: dict[str, int] = {}
    """Per task, `stage-task`."""
    dropped_records: int = 0
    late_records: int = 0
    dead_letters: int = 0
    state_entries: int = 0
    stale_snapshots: list[str] = []
    """Snapshots of KTables that do not show all changes yet; a quiet stream brings them up to date."""
    store_openings: dict[str, int] = {}
    """How often a local store was the same, got what waited in memory (applied) or in Spark's state (caught up), was
    rebuilt or new, since this driver started."""
    skipped_transactions: int = 0
    """Kafka transactions that an earlier attempt had committed."""
    error: str | None = None


def write(path: Path, beat: Heartbeat) -> None:
    """Replaces the file atomically."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(beat), indent=1))


def read(path: Path) -> Heartbeat | None:
    """The last beat; None if there is none, or none that this version can read: the next one follows."""
    return damaged.read_json(path, Heartbeat)


def sign_of(beat: Heartbeat) -> Sign:
    """When it was, for who asks how long ago."""
    return beat.sign or Sign.of(beat.at)


def age_s(beat: Heartbeat) -> float:
    """How long ago it was; a step of the wall clock changes nothing on the machine that wrote it."""
    return sign_of(beat).age_s()
