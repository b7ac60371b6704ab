"""Handovers: what is refused, what an interruption leaves, where a checkpoint goes on. What runs: `tests/hosts`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deltaworks import StreamsBuilder
from deltaworks.control import batches
from deltaworks.control.batches import BatchRecord
from deltaworks.control.checkpoint import CheckpointPlan, fitting_plan, open_plan, stored_plan, write_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, ConflictError, IncompatibleCheckpointError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.local_store import LocalStore, StateVersion
from deltaworks.runtime.state.recovery import local_path
from deltaworks.spark import handover
from deltaworks.spark.source import TICK
from deltaworks.topology.plan import Plan


def counting(store: str = "counts") -> Plan:
    builder = StreamsBuilder()
    builder.stream("t", key=str, value=str).group_by_key().count(store=store)
    return builder.build()


class Folder:
    """A pipeline whose first checkpoint has run batches 0 to 2, and the state of a replay of them."""

    def __init__(self, root: Path) -> None:
        self.paths = PipelinePaths.at(root / "pipeline")
        self.state = root / "state"
        self.record(0, 1, 2)
        open_plan(self.paths.current.plan, "p", counting("old").fingerprint(), {"t": 2}, (2,), 2)
        self.spark(begun=2, committed=2)

    def record(self, *numbers: int) -> None:
        for number in numbers:
            batches.append(self.paths.batches, BatchRecord(number, 1_000 * number, {"t": {"0": (number, number + 1)}}))

    def spark(self, *, begun: int, committed: int | None) -> None:
        """What Spark's checkpoint of the running checkpoint says."""
        for log, last in (("offsets", begun), ("commits", committed)):
            (self.paths.current.spark / log).mkdir(parents=True, exist_ok=True)
            for number in range(-1 if last is None else last + 1):
                ends: Offsets = {"t": {"0": number + 1, "1": 40}, "g": {"0": 7}}
                (self.paths.current.spark / log / str(number)).write_bytes(b"v1\n{}\n" + msgspec.json.encode(ends))

    def make(self, run_id: str = "run", last_batch: int = 2) -> CheckpointPlan:
        offsets = handover.offsets_after(self.paths, last_batch)
        return handover.make_checkpoint(
            self.paths, counting(), tasks=(2,), shards=2, partitions={"t": 2}, run_id=run_id, last_batch=last_batch,
            offsets=offsets, state=self.state,
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_checkpoint_knows_the_topics_that_the_batches_before_it_have_read(folder: Folder) -> None:
    batches.append(folder.paths.batches, BatchRecord(3, 9_000, {"t": {"0": (3, 4)}}, topics={"t": "id"}))

    assert folder.make(last_batch=3).topics == {"t": "id"}


def test_a_checkpoint_goes_on_after_the_last_batch_with_the_new_plan(folder: Folder) -> None:
    old = stored_plan(folder.paths.current.plan)
    made = folder.make()
    assert stored_plan(folder.paths.current.plan) == old, "nothing has changed for the stream"

    handover.switch(folder.paths, "run")
    handover.switch(folder.paths, "run")  # once more

    opened = open_plan(folder.paths.current.plan, "p", counting().fingerprint(), {"t": 2}, (2,), 8)
    assert opened == made == stored_plan(folder.paths.checkpoint_of("run").plan)
    assert (made.query_id, made.first_batch, made.shards) == ("run", 3, 2)
    handover.undo(folder.paths)
    assert stored_plan(folder.paths.current.plan) == old
    assert not folder.paths.pointer.exists()


def test_partitions_without_records_go_on_where_the_checkpoint_before_has_begun(folder: Folder) -> None:
    assert handover.offsets_after(folder.paths, 2) == {"t": {"0": 3, "1": 40}, "g": {"0": 7}}
    batches.append(folder.paths.batches, BatchRecord(3, 9_000, {"t": {"1": (40, 45)}, "g": {"0": (7, 9)}}, tick=True))
    assert handover.offsets_after(folder.paths, 2) == {"t": {"0": 3, "1": 40}, "g": {"0": 7}}
    assert handover.offsets_after(folder.paths, 3) == {"t": {"0": 3, "1": 45}, "g": {"0": 9}, TICK: {"0": 9_000}}


def test_a_checkpoint_that_has_not_run_yet_says_where_it_begins(folder: Folder) -> None:
    made = folder.make()
    handover.switch(folder.paths, "run")

    assert handover.offsets_after(folder.paths, 2) == made.start


def test_a_stream_that_has_gone_on_is_not_switched(folder: Folder) -> None:
    folder.make()
    folder.record(3)

    with pytest.raises(ConflictError, match="goes on after batch 2, but the stream is at batch 3"):
        handover.switch(folder.paths, "run")
    assert folder.paths.switched == ()


def test_a_batch_that_was_begun_is_finished_before(folder: Folder) -> None:
    folder.make()
    folder.spark(begun=3, committed=2)

    with pytest.raises(ConflictError, match="has begun batch 3 and not finished it"):
        handover.switch(folder.paths, "run")
    handover.switch(folder.paths, "run", accept_unfinished=True)
    assert folder.paths.switched == ("run",)


def test_what_spark_has_not_committed_although_everything_is_recorded_is_finished(folder: Folder) -> None:
    folder.make()
    (folder.paths.current.spark / "commits" / "2").unlink()

    handover.switch(folder.paths, "run")


def test_batches_are_counted_from_the_first_checkpoint_on(folder: Folder) -> None:
    folder.make()
    handover.switch(folder.paths, "run")
    folder.record(3, 4)
    folder.spark(begun=2, committed=1)  # batch 5
    folder.make("second", last_batch=4)

    with pytest.raises(ConflictError, match="has begun batch 5 and not finished it"):
        handover.switch(folder.paths, "second")
    folder.record(5)
    assert folder.make("second", last_batch=5).first_batch == 6
    handover.switch(folder.paths, "second")
    assert folder.paths.switched == ("run", "second")

    handover.undo(folder.paths, "second")
    with pytest.raises(ConfigurationError, match="gone is not the checkpoint that was switched to last"):
        handover.undo(folder.paths, "gone")
    handover.undo(folder.paths)
    with pytest.raises(
        ConfigurationError, match="The first checkpoint is not the checkpoint that was switched to last"
    ):
        handover.undo(folder.paths)


def test_a_checkpoint_that_has_not_run_is_made_again(folder: Folder) -> None:
    folder.make()
    (folder.paths.checkpoint_of("run").root / "leftover").touch()
    folder.record(3)

    made = folder.make(last_batch=3)

    assert made.first_batch == 4
    assert not (folder.paths.checkpoint_of("run").root / "leftover").exists()
    handover.switch(folder.paths, "run")


def test_a_checkpoint_that_has_run_is_neither_made_nor_switched_to_again(folder: Folder) -> None:
    folder.make()
    handover.switch(folder.paths, "run")
    with pytest.raises(ConflictError, match="switched to already"):
        folder.make()

    handover.undo(folder.paths)

    with pytest.raises(ConflictError, match="switched to already"):
        folder.make()
    with pytest.raises(ConflictError, match="was undone: the checkpoint before it goes on"):
        handover.switch(folder.paths, "run")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_a_name_that_is_no_folder_is_refused(folder: Folder, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the id of a replay, or of a checkpoint"):
        handover.switch(folder.paths, name)


def test_a_checkpoint_that_nobody_has_made_is_refused(folder: Folder) -> None:
    with pytest.raises(ConfigurationError, match="There is no checkpoint other"):
        handover.switch(folder.paths, "other")


def test_an_undo_that_was_interrupted_is_ended_by_who_runs_the_stream_next(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make()
    handover.switch(folder.paths, "run")
    folder.record(3, 4)
    handover.settle(folder.paths)
    assert folder.paths.switched == ("run",), "there was nothing to end"

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(handover, "_point", interrupt)
        handover.undo(folder.paths)
    assert folder.paths.switched == ("run",)
    handover.settle(folder.paths)

    assert not folder.paths.pointer.exists()
    assert [record.batch for record in batches.read(folder.paths.batches)] == [0, 1, 2]
    assert [record.batch for record in batches.read(folder.paths.checkpoint_of("run").set_aside)] == [3, 4]
    handover.undo(folder.paths, "run")  # who asked for it asks again


class Widened(Folder):
    """A stream that has used more cores before a hand-over and after it, twice."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.widen("widened-1-0")
        self.record(3)
        self.make("run", 3)
        handover.switch(self.paths, "run")
        self.widen("widened-2-2")
        self.record(4, 5)
        self.widen("widened-3-3")
        self.record(6)

    def widen(self, name: str) -> None:
        self.make(name, batches.last_number(self.paths.batches))
        handover.switch(self.paths, name)


@pytest.mark.parametrize("name", ["run", None])
@pytest.mark.parametrize("interrupted", [None, "set_aside", "_point"])
def test_what_has_continued_a_checkpoint_on_more_cores_is_undone_with_it(
    name: str | None, interrupted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Widened(tmp_path)
    paths = folder.paths
    assert handover.predecessor(paths, "run") == paths.checkpoint_of("widened-1-0")
    handover.require_last(paths, name)
    if interrupted is not None:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(batches if interrupted == "set_aside" else handover, interrupted, interrupt)
            handover.undo(paths, name)
        assert paths.switched == ("widened-1-0", "run", "widened-2-2", "widened-3-3")
        handover.settle(paths)
    else:
        handover.undo(paths, name)

    assert paths.switched == ("widened-1-0",)
    assert [record.batch for record in batches.read(paths.batches)] == [0, 1, 2, 3]
    assert [record.batch for record in batches.read(paths.checkpoint_of("run").set_aside)] == [4, 5, 6]
    handover.undo(paths, "run")  # once more
    handover.settle(paths)
    assert paths.switched == ("widened-1-0",)
    for ended in ("run", "widened-2-2", "widened-3-3"):
        with pytest.raises(ConflictError, match="was undone"):
            handover.switch(paths, ended)
    with pytest.raises(ConfigurationError, match=r"The first checkpoint is not .* nothing to undo"):
        handover.undo(paths)
    folder.widen("widened-5-1")
    assert stored_plan(paths.current.plan) == stored_plan(paths.checkpoint_of("widened-5-1").plan)


def test_an_undo_begins_with_the_checkpoint_that_is_asked_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed between two marks."""
    folder, touched = Widened(tmp_path), Path.touch

    def touch(path: Path) -> None:
        touched(path)
        interrupt()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "touch", touch)
        handover.undo(folder.paths)
    handover.settle(folder.paths)
    assert folder.paths.switched == ("widened-1-0",)
    assert all(folder.paths.checkpoint_of(name).undone.exists() for name in ("run", "widened-2-2", "widened-3-3"))


@pytest.mark.parametrize("of", ["rescaled-1", "erased-one"])
def test_there_is_no_way_back_behind_more_cores_either(of: str, folder: Folder) -> None:
    for name in (of, "widened-2-1"):
        folder.make(name)
        handover.switch(folder.paths, name)
    for asked in (None, of, "widened-2-1"):
        with pytest.raises(ConflictError, match=of):
            handover.undo(folder.paths, asked)


def test_only_what_nobody_has_switched_to_is_left_over(tmp_path: Path) -> None:
    folder = Widened(tmp_path)
    folder.make("widened-9-4", 6)
    folder.make("another-run", 6)
    (folder.paths.checkpoints / ".widened-8-4").mkdir()
    handover.undo(folder.paths)

    handover.expire(folder.paths, 0.0)

    assert sorted(path.name for path in folder.paths.checkpoints.iterdir()) == [
        "another-run", "run", "widened-1-0", "widened-2-2", "widened-3-3"
    ]  # fmt: skip


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_checkpoint_that_was_not_finished_is_not_there(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(handover, "write_plan", interrupt)
        folder.make()
    with pytest.raises(ConfigurationError, match="There is no checkpoint run"):
        handover.switch(folder.paths, "run")

    folder.make()
    handover.switch(folder.paths, "run")


def test_a_store_that_is_further_than_the_batch_is_refused(folder: Folder) -> None:
    local = LocalStore(local_path(folder.state, 0, 1), {"counts": False, "__task__": False}, durable=True)
    local.commit({"counts": StoreChanges([(b"k", b"v")])}, StateVersion(4, b"replay"), None)
    local.close()

    with pytest.raises(ConflictError, match=r"0-1 is at batch 3, after batch 2"):
        folder.make()
    folder.record(3)
    assert folder.make(last_batch=3).first_batch == 4


def test_to_start_over_everything_is_moved_away(tmp_path: Path, folder: Folder) -> None:
    folder.make()
    handover.switch(folder.paths, "run")

    with pytest.raises(IncompatibleCheckpointError, match=f"move {folder.paths.root} away"):
        fitting_plan(folder.paths.current.plan, "p", counting("other").fingerprint(), {"t": 2}, (2,))
    plan = stored_plan(folder.paths.current.plan)
    assert plan is not None
    write_plan(folder.paths.current.plan, plan)
    assert stored_plan(folder.paths.current.plan) == plan
