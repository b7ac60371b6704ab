"""A task chunk: one chunk of one task, or of all tasks of a cycle. What it needs, and what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.ranges import Range
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.object_path import ObjectPath, place_below
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.task_loop import TaskId


@dataclass(frozen=True)
class RunPaths:
    """The files of a run."""

    root: Path
    """What all who process it share, in a folder of this machine or in an object store."""
    local: Path
    """The folder of this machine for stores; the root, if that is of this machine."""

    @property
    def is_shared(self) -> bool:
        """Whether it is processed in several places, which have only the object store in common."""
        return isinstance(self.root, ObjectPath)

    @property
    def state(self) -> Path:
        """A local store per task; if the run is shared, a copy of what is in `kept`."""
        return self.local / "state"

    def kept(self, task: TaskId) -> Path:
        """The state of a task, if the run is shared."""
        return local_path(self.root / "state", *task)

    @property
    def tables(self) -> Path:
        """The staging tables."""
        return self.root / "tables"

    @property
    def progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def globals(self) -> Path:
        """The global tables, of which each machine has a copy."""
        return self.local / "globals"

    def results(self, commit_id: int) -> Path:
        """Results of the task chunks of a chunk, until it is committed."""
        return self.root / "results" / str(commit_id)

    def changes(self, commit_id: int) -> Path:
        """Changes of the task chunks of a cycle to the stores of their members."""
        return self.results(commit_id) / "changes"

    def exchanges(self, commit_id: int) -> Path:
        """Records that tasks of a chunk have sent to others, until it is committed."""
        return self.root / "exchanges" / str(commit_id)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all task chunks of a run have in common; is sent to where they run."""

    pipeline: Pipeline
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    exchange_partitions: Mapping[str, int]
    """Exchange -> number of tasks that it spreads its keys over."""
    sink_partitions: Mapping[str, int]
    """Partitions of output topics; a topic that is not named has 1."""
    root: Path
    """What all who run them share."""
    run_id: str
    clients: Callable[[], Reader]
    """Makes the reader of one task."""
    sink_limits: Mapping[str, int] | None = None
    """The largest record of each topic; a topic that is not named does not exist. None: every topic exists."""
    local: Path | None = None
    """The folder of this machine for stores; None: the root, or whoever runs the task chunks says where (`at`)."""

    answers: Path | None = None
    """Folder of the recorded answers of other systems; None: there are none."""

    @property
    def paths(self) -> RunPaths:
        assert self.local is not None or not isinstance(self.root, ObjectPath), "nobody has said where stores are"
        return RunPaths(self.root, self.local or self.root)

    def at(self, folder: Path) -> Work:
        """For another machine: what is not in the object store lies below this folder of it.

        What the host tells of tables is in a folder of this process, as `HostConfig.at` has it.
        """
        place_below(folder / "tables" / str(os.getpid()), self.root)
        return replace(self, local=folder / "stores")


class ChunkStep(msgspec.Struct, frozen=True, array_like=True):
    """One micro-batch of a task chunk."""

    batch: int
    wall_ms: int
    inputs: dict[int, tuple[Range, ...]]
    """Index of a member -> what it reads; empty in a tick without records. Others run if something is sent to them."""
    position: bytes
    """Position of the global tables, as `GlobalTables.at` takes it; empty: there are none."""


class TaskChunk(msgspec.Struct, frozen=True):
    """One chunk of one task, or of all tasks of a cycle."""

    commit_id: int
    """The last batch of the chunk."""
    members: tuple[TaskId, ...]
    cyclic: bool
    steps: tuple[ChunkStep, ...]
    position: bytes
    """Position of the global tables at the first step of the chunk."""
    exchanges: tuple[tuple[int, str], ...]
    """Index of a member, and a file with the records that another task chunk has sent to it."""
    states: tuple[bytes, ...] = ()
    """The state of each member before the chunk (`keeping.Kept`); empty unless the run is shared."""
    told: tuple[bytes, ...] = ()
    """What each member is told of its tables (`messages.packed`); likewise."""

    @property
    def name(self) -> str:
        """The name of its first task, which names its files; no other task chunk has it."""
        stage, task = self.members[0]
        return f"{stage}-{task}"


class ChunkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task chunk."""

    writes: tuple[TableWrite, ...]
    exchanges: tuple[tuple[TaskId, str], ...]
    """Tasks, and files with the records sent to them."""
    sent: dict[str, int]
    """Topic -> records that a live stream would have written to it."""
    dropped: int
    late: int
    lost_results: int
    dead_letters: int
    states: tuple[tuple[TaskId, bytes], ...] = ()
    """The state of each task after the chunk, if the run is shared."""
    replaced: tuple[str, ...] = ()
    """Files that no state needs any more, once the chunk is noted."""


def read_result(place: Path) -> ChunkResult:
    """The result in a file; raises `FileNotFoundError` if there is none."""
    return msgspec.msgpack.decode(place.read_bytes(), type=ChunkResult)
