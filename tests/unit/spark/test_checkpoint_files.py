"""What counts as whole: read from a checkpoint that Spark wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark.checkpoint_files import Crc, StateFiles, crc_of, crc_path
from tests.support import old_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    old_checkpoint.unpack(tmp_path)
    return tmp_path / "pipelines" / "orders" / "checkpoint"


def test_all_that_spark_wrote_is_whole(checkpoint: Path) -> None:
    state = StateFiles(checkpoint)
    assert (state.problems(1), state.problems(2)) == ([], [])
    assert all("3.changelog is missing" in problem for problem in state.problems(3))
    assert layout.is_query(checkpoint / "metadata")
    assert all(layout.is_commit(checkpoint / "commits" / n) for n in "01")
    sums = [path for path in layout.everything(checkpoint) if layout.is_crc(path)]
    assert len(sums) > 20 and {crc_of(layout.owner_of_crc(path)) for path in sums} == {Crc.FITS}


def test_what_is_rewritten_is_what_spark_writes(checkpoint: Path) -> None:
    path = checkpoint / "offsets" / "1"
    offsets = layout.read_offsets(path)
    assert offsets is not None and offsets.encode() == path.read_bytes()
    path = checkpoint / "state" / "0" / "_metadata" / "v2" / "1"
    operator = layout.read_operator(path)
    assert operator is not None and operator.encode() == path.read_bytes()
    (moved,) = operator.at(checkpoint / "state" / "0").schemas(checkpoint / "state" / "0")
    assert moved.is_file() and f"file:{moved}" in operator.at(checkpoint / "state" / "0").encode().decode()


@pytest.mark.parametrize("name", ["offsets/1", "commits/1", "state/0/0/2.changelog", "state/0/0/1.zip", "metadata"])
@pytest.mark.parametrize("with_crc", [True, False])
def test_no_part_of_a_file_is_taken_for_the_whole(checkpoint: Path, name: str, with_crc: bool) -> None:
    path = checkpoint / name
    whole = path.read_bytes()
    assert _is_whole(checkpoint, name)
    if not with_crc:
        crc_path(path).unlink(missing_ok=True)
        assert _is_whole(checkpoint, name)
    step = max(len(whole) // 50, 1)
    for length in (*range(0, len(whole) - 1, step), len(whole) - 2):
        for torn in (whole[:length], whole[:length] + b"\0" * (len(whole) - length)):
            path.write_bytes(torn)
            assert torn == whole or not _is_whole(checkpoint, name), length


def _is_whole(checkpoint: Path, name: str) -> bool:
    path = checkpoint / name
    if name.startswith("offsets"):
        return layout.read_offsets(path) is not None
    if name.startswith("commits"):
        return layout.is_commit(path)
    return layout.is_query(path) if name == "metadata" else StateFiles(checkpoint).problems(2) == []


def test_batches_of_files() -> None:
    names = {
        "offsets/7": 7, "commits/12": 12, "state/0/_metadata/v2/3": 3, "state/0/1/8.changelog": 7, "state/0/1/8.zip": 7,
        "metadata": None, "state/0/1/SSTs/000008-a.sst": None, "state/0/_stateSchema/default/0_a": None,
        "offsets/x": None,
    }  # fmt: skip
    assert {name: layout.batch_of(name) for name in names} == names
