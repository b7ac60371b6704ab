"""The heartbeat: a small file with the state of a stream, written after every batch and while the stream idles."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from deltaworks.clock import Sign
from deltaworks.control import damaged
from deltaworks.control.distribution import Distribution
from deltaworks.control.restores import Restoring
from deltaworks.files import replace_file
from deltaworks.topology.alerts import USUAL, Alerts

State = Literal["starting", "running", "draining", "stopped", "failed"]


class StoreSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a state store, in all tasks."""

    entries: int = 0
    size_bytes: int = 0


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver knows of one of its tables; what is counted counts from its start."""

    rows: int = 0
    """Rows that were appended, updated or deleted; none of a snapshot."""
    commits: int = 0
    """Batches that have changed it; of a snapshot, its refreshes."""
    commit_seconds: float = 0.0
    """How long their commits took, in sum."""
    committed_at: float | None = None
    """When the last one was made."""
    files: int = 0
    """Files that it consists of now."""
    stale_since: float | None = None
    """Since when it lacks changes that its changelog has, at most since its last refresh; None: it shows all."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat; times are in Unix seconds."""

    pipeline: str
    generation: int
    """Generation of the driver."""
    query_id: str
    """Identity of the checkpoint; empty until it is open."""
    state: State
    pid: int
    at: float
    sign: Sign | None = None
    """The same moment, to compute its age."""
    up_s: float = 0.0
    """How long this driver has been running."""
    batch_id: int | None = None
    batch_seconds: float = 0.0
    batch_phases: dict[str, float] = {}
    """Seconds of its parts: `tasks` read, process and write, `tables` are committed, `after` that it is recorded."""
    quiet_s: float = 0.0
    """How long before this heartbeat a batch of this driver ended last; before its first batch, the time since its
    start."""
    records_per_second: float = 0.0
    """Rate over the last minute; 0 after an idle minute."""
    records_total: int = 0
    """Records since this driver started."""
    lag_records: int | None = None
    """Records in the source topics that no committed batch covers; None until known."""
    lag_seconds: float | None = None
    """How long ago the topics ended at the stream's position (`runtime.health.Lag`); None until known."""
    lag_by_partition: dict[str, dict[str, int]] = {}
    next_offsets: dict[str, dict[str, int]] = {}
    """Next offset per topic and partition after the last committed batch."""
    stream_time_ms: dict[str, int] = {}
    """Values per task, `stage-task`."""
    dropped_records: int = 0
    late_records: int = 0
    lost_results: int = 0
    """Final results of windows that expired before they were forwarded; only with `compatible_with_kafka`."""
    dead_letters: int = 0
    state_entries: int = 0
    stale_snapshots: list[str] = []
    """Number of snapshots of KTables that do not show all changes yet; an idle stream refreshes them."""
    store_openings: dict[str, int] = {}
    """How often, since this driver started, a local store was up to date, was brought up to date from memory (applied)
    or from Spark's state (caught up), or was rebuilt or new."""
    restored_entries: int = 0
    """Entries of Spark's state that were read for that since this driver started; each counts once per restore."""
    restore_seconds: float = 0.0
    """How long that took, the sum of all tasks."""
    skipped_transactions: int = 0
    """Number of Kafka transactions that an earlier attempt had committed."""
    store_requests: dict[str, int] = {}
    """Requests to the object store with the tables since this driver started, by kind: `PUT`, `GET`, `LIST`, ..."""
    call_outs: dict[str, str] = {}
    """Call-outs whose system counts as down -> `open` or `half-open`, as tasks of this machine say."""
    error: str | None = None
    tasks: int = 0
    """Number of tasks of all stages; 0 until the checkpoint is open."""
    sent_records: int = 0
    """Records sent to Kafka since this driver started."""
    stores: dict[str, StoreSize] = {}
    """State stores by name, as of the last batch of each task; `__task__` holds the times of tasks."""
    task_phases: dict[str, Distribution] = {}
    """Parts of a task's batch: `open` its stores, `read` from Kafka, `process`, `commit` its results to Kafka and to
    files, `keep` its changes for recovery."""
    latency: dict[str, Distribution] = {}
    """How old records were, by their timestamps, when they had been `read` by a task, `processed`, `committed` to
    Kafka, and when tables had shown them (`visible`); a batch counts as processed and committed when all of its tasks
    have done so."""
    restoring: dict[str, Restoring] = {}
    """Restores of tasks of this machine that go on and take long, by task."""
    spark_phases: dict[str, float] = {}
    """Seconds of the last batch of which Spark has told, by its own words: `addBatch`, `walCommit`, ..."""
    tables: dict[str, TableFacts] = {}
    traces_dropped: int = 0
    """Batches since this driver started whose traces were not delivered though they should; see `[traces]`."""
    interval_s: float | None = None
    """The trigger interval of the pipeline."""
    alerts: Alerts = USUAL
    """The thresholds of the pipeline."""


def write(path: Path, beat: Heartbeat) -> None:
    """Replaces the file atomically."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(beat), indent=1))


def read(path: Path) -> Heartbeat | None:
    """The last heartbeat; None if there is none that this version can read, until the next one follows."""
    return damaged.read_json(path, Heartbeat)


def sign_of(beat: Heartbeat) -> Sign:
    """When the heartbeat was written, to compute its age."""
    return beat.sign or Sign.of(beat.at)


def age_s(beat: Heartbeat) -> float:
    """The age of a heartbeat; on the machine that wrote it, steps of the wall clock do not matter."""
    return sign_of(beat).age_s()
