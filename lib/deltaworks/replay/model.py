"""The request, plan and state of a replay, and the files of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks import formats
from deltaworks.control.batches import Recreated
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError
from deltaworks.files import lock, remove_tree, replace_file
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.names import RUN
from deltaworks.object_path import path_of

Order = Literal["recorded", "time"]
Phase = Literal["plan", "run", "compare", "gate", "publish", "verify", "clean"]
PHASES: tuple[Phase, ...] = ("plan", "run", "compare", "gate", "publish", "verify", "clean")
"""The phases, in the order in which a replay goes through them."""
FORMAT = 2
"""Version of the files of a run; it stands in the plan, which is read first."""


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to process history again."""

    pipeline: str
    from_ms: int | None = None
    """The first moment of the first UTC day to publish; None: from the beginning."""
    to_ms: int | None = None
    """The first moment of the UTC day after the last; None: as far as days are complete."""
    tables: tuple[str, ...] = ()
    """Tables to publish; empty: every table from which a range of days can be published."""
    order: Order = "recorded"
    hand_over: bool = False
    """Let the stream go on with the stores and tables of the replay, instead of publishing days."""
    complete_days: bool = False
    """Of the requested days, publish those that are complete, instead of refusing all."""
    only_different: bool = False
    """Publish only the tables that differ from production, and their days from the first that differs to the last."""
    cascade: bool = False
    """Compute the batch jobs that read what is published again, as part of it; see `deltaworks.cascade`."""
    by_policy: bool = False
    """The pipeline's `reprocess=` asks for it; so the next run of that may throw away what this one has left."""
    dry_run: bool = False
    """Only say what would change: the run may have days of others, and is never published."""
    reason: str = ""
    requested_by: str


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a run; made once, and kept when the run is resumed."""

    run_id: str
    request: ReplayRequest
    created_ms: int
    code_version: str
    query_id: str
    """Query id of the stream whose batches are processed again."""
    first_batch: int
    last_batch: int
    records: int
    """How many offsets the batches read."""
    end_offsets: Offsets
    """Per source topic: the next offset after the last batch."""
    partitions: dict[str, int]
    """Partitions of the source topics."""
    global_partitions: dict[str, int]
    """Partitions of the topics of global tables."""
    sink_partitions: dict[str, int]
    """Partitions of the topics that the pipeline writes, for its partitioners."""
    sink_limits: dict[str, int] | None = None
    """The largest record of every topic that exists; None: unknown."""
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    compacted: tuple[str, ...] = ()
    """Topics from which Kafka removes records that have successors."""
    incomplete: tuple[str, ...] = ()
    """Compacted topics of which no archive has everything that the stream has read."""
    tables: tuple[str, ...]
    """The tables to publish."""
    topics: dict[str, str] = {}
    """The ids of the topics that its code reads, as far as the last batches recorded them."""
    recreated: dict[str, Recreated] = {}
    """Topics that were recreated after earlier batches had read them; see `replay.same_topics`."""
    gone: tuple[str, ...] = ()
    """Topics that Kafka no longer has in the form that the last batches read; only an archive is read for them."""
    rescaled: tuple[int, ...] = ()
    """The first batches that ran with another number of tasks than those before."""
    begin: LaterBegin | None = None
    """Where the run begins; None: with the first batch."""
    needs_all: str | None = None
    """Why the requested days depend on all history."""
    format: int = FORMAT

    @property
    def extent(self) -> str:
        """What the run reads, for people."""
        first, before = self.first_batch, ""
        if self.begin is not None and self.begin.batch > first:
            first = self.begin.batch
            before = f" (of those before, {', '.join(self.begin.topics)})" if self.begin.topics else ""
        return f"batches {first:,} to {self.last_batch:,}{before}, {self.records:,} records"

    @property
    def notes(self) -> list[str]:
        """Notes for whoever starts the run."""
        reason = [f"All history is read: {self.needs_all}."] if self.needs_all else []
        return reason + [
            f"{topic} is compacted. Records that Kafka has removed since the stream read them are not in the replay, "
            "and nothing tells how many; Pipeline(archive=True) keeps future ones."
            for topic in self.incomplete
        ]


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has approved that a replay is published, or handed over to."""

    by: str
    at_ms: int


class Narrowed(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run that is published."""

    tables: tuple[str, ...]
    from_ms: int | None
    to_ms: int | None


class ReplayState(msgspec.Struct, kw_only=True):
    """How far a run is."""

    done: list[Phase] = []
    error: str | None = None
    from_ms: int | None = None
    """The days that are published: the requested ones, and more if sessions cross the border."""
    to_ms: int | None = None
    passed: bool | None = None
    """What the gate said."""
    differences: int | None = None
    """Rows that differ from production; from the gate on, those of batch jobs behind it, too."""
    narrowed: Narrowed | None = None
    """What is published, if only differences are and there are any."""
    approval: Approval | None = None
    """The last approval before it was published; None: nobody has approved it yet."""
    asked: str | None = None
    """Where in Airflow somebody is asked to approve it, such as `orders__replay/runs/manual__1`; None: nobody was."""
    process: int | None = None
    updated_ms: int = 0

    @property
    def next(self) -> Phase | None:
        """The phase to go on with."""
        return next((phase for phase in PHASES if not self.has_done(phase)), None)

    def has_done(self, phase: Phase) -> bool:
        """Whether a phase is done. A gate that was not passed can be run again."""
        return phase in self.done and (phase != "gate" or self.passed is True)


@dataclass(frozen=True)
class ReplayPaths:
    """Files and folders of one run, below the pipeline's own; a cleanup removes all except the publication.

    A run that a cluster processes has what executors read and write in a folder of the object store (`shared`). That is
    settled when it is planned: it goes on there, whatever the settings say later.
    """

    root: Path
    publication: Path
    """The record of its publication, kept as long as it can be rolled back."""

    @classmethod
    def of(cls, pipeline: PipelinePaths, run_id: str) -> ReplayPaths:
        """Raises `ConfigurationError` if the id would lead outside the folder of runs."""
        RUN.checked(run_id, pipeline.replays)
        return cls(pipeline.replays / run_id, pipeline.publications / f"{run_id}.json")

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def state(self) -> Path:
        return self.root / "phases.json"

    @property
    def lock(self) -> Path:
        """The lock of the process that works on the run."""
        return self.root / "lock"

    @property
    def shared(self) -> Path:
        """What all who process it read and write; the root, unless `share` has named another folder."""
        try:
            return path_of(self._shared.read_text())
        except FileNotFoundError:
            return self.root

    def share(self, folder: Path) -> None:
        """Puts what is shared into another folder; before anything of it is there."""
        replace_file(self._shared, str(folder).encode(), durable=True)

    @property
    def _shared(self) -> Path:
        return self.root / "shared"

    @property
    def tables(self) -> Path:
        """The staging tables."""
        return self.shared / "tables"

    @property
    def scratch(self) -> Path:
        """Spark's."""
        return self.root / "scratch"

    @property
    def sorted(self) -> Path:
        """All records in the order of their timestamps, if the replay uses that order."""
        return self.shared / "sorted"

    @property
    def comparison(self) -> Path:
        return self.root / "comparison.json"

    @property
    def rehearsal(self) -> Path:
        """What would change behind the replay; see `cascade.rehearsal`."""
        return self.root / "rehearsal.json"

    @property
    def rehearsed(self) -> Path:
        """A home of its own with the tables of the rehearsal, while it runs."""
        return self.root / "rehearsed"

    @property
    def verdicts(self) -> Path:
        return self.root / "verdicts.json"

    def read_plan(self) -> ReplayPlan:
        """The plan of the run.

        Raises:
            FileNotFoundError: there is no such run any more.
            IncompatibleCheckpointError: another version of deltaworks wrote it, or it cannot be read.
        """
        return formats.decode(
            self.plan.read_bytes(),
            ReplayPlan,
            FORMAT,
            f"The plan of a replay {self.plan}",
            other="finish or discard the replay with the version of deltaworks that began it",
            damaged="bring the file back from a copy of the folder",
        )

    def write_plan(self, plan: ReplayPlan) -> None:
        """Replaces the plan atomically."""
        replace_file(self.plan, msgspec.json.format(msgspec.json.encode(plan), indent=1))

    def read_state(self) -> ReplayState:
        """The state of the run; a run without the file has done nothing yet."""
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=ReplayState)
        except FileNotFoundError:
            return ReplayState()

    def write_state(self, state: ReplayState) -> None:
        """Replaces the state durably before anything else happens."""
        replace_file(self.state, msgspec.json.format(msgspec.json.encode(state), indent=1))

    def remove(self) -> None:
        """Removes the run, at once: it is gone without its plan. `runs.start` removes what a killed process leaves."""
        self.plan.unlink()
        self.remove_rest()

    def remove_rest(self) -> None:
        """Removes all but the plan, which is gone."""
        remove_tree(self.shared)
        remove_tree(self.root)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds the lock of a run, or that of planning a pipeline's runs.

    Raises:
        ConflictError: another process holds it, and `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if not lock(file, patience_s=math.inf if wait else 0.0):
            raise ConflictError(
                f"Another process works on the replay {path.parent.name}.",
                hint="wait for it; a process that dies lets go of it",
            )
        yield


def day_of(time_ms: int) -> str:
    """The UTC date of a moment."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def begin_of(day: str) -> int:
    """The first moment (ms) of a UTC date."""
    return (date.fromisoformat(day) - date(1970, 1, 1)) // timedelta(milliseconds=1)


def range_of(from_ms: int | None, to_ms: int | None) -> str:
    """A range of days, for people."""
    begin = "the beginning" if from_ms is None else day_of(from_ms)
    return f"{begin} to {'the last batch' if to_ms is None else day_of(to_ms)}"
