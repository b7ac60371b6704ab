"""Which checkpoint of a pipeline runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError


def test_without_a_pointer_the_first_checkpoint_runs_in_the_folder_of_the_pipeline(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)

    assert paths.switched == ()
    assert paths.current.root == tmp_path
    assert (paths.current.spark, paths.current.local) == (tmp_path / "checkpoint", tmp_path / "local")
    assert paths.current.plan == tmp_path / "plan.json"


def test_the_last_checkpoint_that_was_switched_to_runs_and_all_lines_share_the_rest(tmp_path: Path) -> None:
    first, paths = PipelinePaths.at(tmp_path), PipelinePaths.at(tmp_path)
    for name in ("run-1", "run-2"):
        paths.checkpoint_of(name).root.mkdir(parents=True)
        paths.checkpoint_of(name).plan.touch()

    paths.pointer.write_text("run-1\nrun-2\n")

    assert paths.switched == ("run-1", "run-2")
    assert paths.current == paths.checkpoint_of("run-2")
    checkpoint = tmp_path / "checkpoints" / "run-2"
    assert (paths.current.spark, paths.current.local, paths.current.plan) == (
        checkpoint / "checkpoint",
        checkpoint / "local",
        checkpoint / "plan.json",
    )
    assert (paths.batches, paths.lease, paths.fence) == (first.batches, first.lease, first.fence)


def test_a_checkpoint_whose_folder_is_gone_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    paths.pointer.write_text("run-1\n")

    with pytest.raises(
        IncompatibleCheckpointError, match=r"the checkpoint run-1 runs, but .*run-1/plan\.json is not there"
    ):
        _ = paths.current.spark
