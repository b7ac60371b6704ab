"""A table that a newer generation has opened takes no commit of an older one."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from deltaworks.errors import FencedError
from tests.unit.lakehouse.lake import Expected, check, open_tables, task_tables, write_batch


def test_a_zombie_cannot_commit_not_even_a_batch_that_nobody_has_written(tmp_path: Path) -> None:
    zombie, expected = open_tables(tmp_path, generation=1), Expected()
    zombie.commit(0, write_batch(task_tables(tmp_path), 0, expected))
    written_before = write_batch(task_tables(tmp_path), 1, deepcopy(expected))

    newer = open_tables(tmp_path, generation=2)

    for _ in range(2):  # trying again does not help
        with pytest.raises(FencedError, match=r"Generation 1 .* generation 2 has taken over"):
            zombie.commit(1, written_before)
    newer.commit(1, write_batch(task_tables(tmp_path), 1, expected))
    newer.refresh_snapshots(force=True)
    check(tmp_path, expected)


def test_a_zombie_refreshes_no_snapshot(tmp_path: Path) -> None:
    zombie = open_tables(tmp_path, generation=1)
    zombie.commit(0, write_batch(task_tables(tmp_path), 0, Expected()))
    open_tables(tmp_path, generation=2)

    with pytest.raises(FencedError):
        zombie.refresh_snapshots(force=True)


def test_an_older_generation_cannot_even_open(tmp_path: Path) -> None:
    open_tables(tmp_path, generation=3)

    with pytest.raises(FencedError, match="generation 3 has taken over"):
        open_tables(tmp_path, generation=2)


def test_the_same_generation_opens_again_without_a_commit(tmp_path: Path) -> None:
    version = open_tables(tmp_path, generation=3).tables["orders"].log.version

    assert open_tables(tmp_path, generation=3).tables["orders"].log.version == version
