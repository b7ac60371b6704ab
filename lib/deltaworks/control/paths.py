"""The files and folders of a pipeline, below `Settings.pipeline(name)` and `Settings.lasting_pipeline(name)`.

What a stream needs to go on, on whatever machine, is in the second one, which may be in an object store: checkpoints,
the record of batches, the fence, what changes of tables have to be completed or taken back. All else is of this
machine. In a home without an object store, both are one folder.

A checkpoint here is Spark's, with what it was made for. The first one lies in the pipeline's own folder. A replay may
hand its stores over to a new one (`spark.handover`), which then runs in its place; the pointer file says which one
runs. All else, the record of batches above all, goes on from one checkpoint to the next.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deltaworks.control import checkpoint_folders
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.names import RUN
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings

_POINTER = re.compile(r"([0-9A-Za-z_-]+\n)+")


@dataclass(frozen=True)
class CheckpointPaths:
    """Files and folders of one checkpoint."""

    root: Path
    here: Path
    """The folder of this machine for what may be lost."""

    @classmethod
    def at(cls, root: Path) -> CheckpointPaths:
        """Those of a checkpoint that is on this machine."""
        return cls(root, root)

    @property
    def spark(self) -> Path:
        """Spark's own folder of offsets, commits and state.

        In an object store, each start has one of its own: what another driver still writes is in another folder.
        """
        return checkpoint_folders.current(self.root) if isinstance(self.root, ObjectPath) else self.root / "checkpoint"

    @property
    def all_of_spark(self) -> tuple[Path, ...]:
        """All that Spark has ever written and is still there."""
        if isinstance(self.root, ObjectPath):
            return checkpoint_folders.everything(self.root)
        return (self.root / "checkpoint",)

    @property
    def local(self) -> Path:
        """Local stores; can be lost."""
        return self.here / "local"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def intents(self) -> Path:
        """The intents of its batches; see `control.intents`."""
        return self.root / "intents"

    @property
    def synced(self) -> Path:
        """The last durable batch of Spark's checkpoint, on a disk; see `spark.checkpoint_sync`."""
        return self.here / "synced.json"

    @property
    def trash(self) -> Path:
        """Files that were moved out of Spark's checkpoint, on a disk."""
        return self.here / "trash"

    @property
    def open_batch(self) -> Path:
        """Notes on the batch that was started last; see `runtime.batches.oversized`."""
        return self.here / "open-batch.json"

    @property
    def accepted(self) -> Path:
        """Accepted losses; see `control.accepted`."""
        return self.root / "accepted.json"

    @property
    def sizes(self) -> Path:
        """Sizes of records; see `runtime.batches.sizes`."""
        return self.here / "record-sizes.json"

    @property
    def initial_state(self) -> Path:
        """The stores that it began with, if it is not the first one; see `runtime.state.initial_state`."""
        return self.root / "initial-state"

    @property
    def moved_pages(self) -> Path:
        """What its first batch finds moved in tables, if it is one of a rescale; see `lakehouse.moved_pages`."""
        return self.root / "moved-pages.json"

    @property
    def undone(self) -> Path:
        """Exists once the handover is undone and the checkpoint before goes on; then this one never runs again."""
        return self.root / "undone"

    @property
    def set_aside(self) -> Path:
        """The records of its batches, once it is undone."""
        return self.root / "batches-undone"


@dataclass(frozen=True)
class PipelinePaths:
    """Files and folders of one pipeline."""

    root: Path
    """On this machine."""
    lasting: Path
    """What it needs to go on."""
    QUESTIONS: ClassVar[str] = "questions"

    @classmethod
    def of(cls, settings: Settings, name: str) -> PipelinePaths:
        return cls(settings.pipeline(name), settings.lasting_pipeline(name))

    @classmethod
    def at(cls, root: Path) -> PipelinePaths:
        """Those of a pipeline that is on this machine only."""
        return cls(root, root)

    @property
    def pointer(self) -> Path:
        """Names of the checkpoints that were switched to, a row each; the last one runs. No file: the first one."""
        return self.lasting / "current"

    @property
    def switched(self) -> tuple[str, ...]:
        """The content of the pointer file.

        Raises:
            IncompatibleCheckpointError: the file is damaged. Without it, the first checkpoint would run again.
        """
        try:
            text = self.pointer.read_text(errors="replace")
        except FileNotFoundError:
            return ()
        if not _POINTER.fullmatch(text):
            raise IncompatibleCheckpointError(
                f"{self.pointer} holds {text[:80]!r} in the place of the checkpoints it was switched to.",
                hint=f"write their names into it, one per row, the one that runs last; see {self.root / 'checkpoints'}",
            )
        return tuple(text.split())

    @property
    def current(self) -> CheckpointPaths:
        """The checkpoint that runs. Only who holds the lease can rely on it for longer than a moment.

        Raises:
            IncompatibleCheckpointError: its folder is missing.
        """
        switched = self.switched
        if not switched:
            return self.first
        checkpoint = self.checkpoint_of(switched[-1])
        if not checkpoint.plan.exists():
            raise IncompatibleCheckpointError(
                f"{self.pointer} says that the checkpoint {switched[-1]} runs, but {checkpoint.plan} is not there.",
                hint="restore its folder; without it, the pipeline can only start over: "
                f"move {self.root} away, and it starts at its start offsets",
            )
        return checkpoint

    @property
    def first(self) -> CheckpointPaths:
        """The first checkpoint."""
        return CheckpointPaths(self.lasting, self.root)

    @property
    def checkpoints(self) -> Path:
        """The checkpoints that follow the first one, a folder each."""
        return self.lasting / "checkpoints"

    def checkpoint_of(self, name: str) -> CheckpointPaths:
        """A checkpoint that follows another one, whether it runs or not.

        Args:
            name: the id of the run that was handed over, which is also its query id; or another name, of a checkpoint
                whose query id is that of the one before: `handover.ERASED`, `RESCALED`, `WIDENED`.
        """
        below = RUN.checked(name, self.checkpoints)
        return CheckpointPaths(self.checkpoints / below, self.root / "checkpoints" / below)

    @property
    def batches(self) -> Path:
        return self.lasting / "batches"

    @property
    def answers(self) -> Path:
        """The recorded answers of other systems; see `runtime.call_outs.books`."""
        return self.lasting / "answers"

    @property
    def call_outs(self) -> Path:
        """Which systems count as down; see `control.call_outs`."""
        return self.root / "call-outs"

    @property
    def restores(self) -> Path:
        """How far restores of tasks have come; see `control.restores`."""
        return self.root / "restores"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat.json"

    @property
    def served(self) -> Path:
        """What readers of stores elsewhere need to know; see `control.served`."""
        return self.root / "served.json"

    @property
    def lease(self) -> Path:
        return self.root / "lease.json"

    @property
    def fence(self) -> Path:
        """The highest generation that was admitted; see `control.fence`."""
        return self.lasting / "generation"

    @property
    def next_tick(self) -> Path:
        """When tasks next have work without records; written by the driver, read by its source."""
        return self.root / "next-tick"

    @property
    def commands(self) -> Path:
        """Commands that the driver executes between two batches; see `control.commands`."""
        return self.root / "commands"

    @property
    def replays(self) -> Path:
        """One folder per run; see `replay.model`."""
        return self.root / "replays"

    @property
    def shared_replays(self) -> Path:
        """What is processed on a cluster, a folder per run."""
        return self.lasting / "replays"

    @property
    def publications(self) -> Path:
        """Publications of replays; see `lakehouse.publish.publication`."""
        return self.lasting / "publications"

    @property
    def handovers(self) -> Path:
        """Handovers of this pipeline to replays; see `lakehouse.publish.ownership`."""
        return self.lasting / "handovers"

    def cascade(self, run_id: str) -> Path:
        """What was computed again behind a replay; see `cascade.release`."""
        cascades = self.lasting / "cascades"
        return cascades / f"{RUN.checked(run_id, cascades)}.json"

    def made_checkpoints(self) -> list[CheckpointPaths]:
        """All checkpoints that follow the first one, whether they run, ran, or never did."""
        try:
            names = sorted(each.name for each in self.checkpoints.iterdir() if not each.name.startswith("."))
        except FileNotFoundError:
            return []
        return [self.checkpoint_of(name) for name in names]

    def handover(self, run_id: str) -> Path:
        """The record of a handover to a run; exists from the moment when its tables change owner."""
        return self.handovers / f"{RUN.checked(run_id, self.handovers)}.json"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def codes(self) -> Path:
        """Notes on the code of the last generations; see `control.retention`."""
        return self.lasting / "codes"

    @property
    def closed_days(self) -> Path:
        """How far the days of its tables are closed, and what was said of it; see `control.closed_days`."""
        return self.lasting / "closed-days.json"

    @property
    def records_set_aside(self) -> Path:
        """The list of records that were set aside; see `control.set_aside`."""
        return self.lasting / "set-aside"

    @property
    def resends(self) -> Path:
        """Which dead letters were sent again; see `control.resends`."""
        return self.lasting / "resends"

    @property
    def questions(self) -> Path:
        """What tasks ask a person, a file each; see `control.questions`."""
        return self.root / self.QUESTIONS

    @property
    def erasures(self) -> Path:
        """The record of erasures, one file each; see `control.erasures`."""
        return self.lasting / "erasures"

    def drain(self, generation: int) -> Path:
        """Exists while that generation is asked to finish and stop."""
        return self.root / f"drain-{generation}"

    def finishing(self, generation: int) -> Path:
        """Exists while older code finishes a batch for that generation, and must not start another one."""
        return self.root / f"drain-{generation}-finish"

    def outcome(self, generation: int) -> Path:
        """How that generation ended, if it could write it; see `control.outcome`."""
        return self.root / "outcomes" / f"{generation}.json"

    def finished(self, generation: int) -> Path:
        """How the older code ended that had to finish a batch for that generation; see `control.opening`."""
        return self.root / "outcomes" / f"{generation}-finish.json"

    @property
    def stop(self) -> Path:
        """Exists while the stream was told to stop but the registry, which did not answer, does not know it yet."""
        return self.root / "stop"


def known_pipelines(settings: Settings) -> list[PipelinePaths]:
    """Those of all pipelines that have run in this home, or in its object store, by name."""
    names = {path.name for path in settings.pipelines.glob("*/")}
    if isinstance(lasting := settings.lasting_pipelines, ObjectPath):
        with suppress(FileNotFoundError):
            names |= {path.name for path in lasting.iterdir()}
    return [PipelinePaths.of(settings, name) for name in sorted(names)]
