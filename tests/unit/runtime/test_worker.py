"""What those who run tasks are told of where things are."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import object_path
from deltaworks.files import local_side
from deltaworks.object_path import ObjectPath, access_of, connect
from deltaworks.runtime.worker import HostConfig
from tests.unit.spark.memory_bucket import MemoryBucket


@pytest.fixture(autouse=True)
def no_stores_of_others() -> Iterator[None]:
    """What a test has said of stores is forgotten."""
    before = dict(object_path._known)
    yield
    object_path._known.clear()
    object_path._known.update(before)
    object_path._bucket.cache_clear()


def config(**options: Any) -> HostConfig:
    given: dict[str, Any] = {"local_root": None, "fence": Path("/h/fence"), "tables_root": Path("/h/tables")}
    return HostConfig(
        pipeline=b"", bootstrap="", query_id="run", generation=1, tasks=(1,), exchange_partitions={},
        **given | options,
    )  # fmt: skip


def test_who_is_not_told_where_stores_are_has_to_say_it() -> None:
    with pytest.raises(AssertionError, match="where local stores are"):
        _ = config().local_folder

    assert config(local_root="/h/stores").local_folder == Path("/h/stores")
    assert config().at(Path("/e")).local_folder == Path("/e/stores")
    assert config(local_root="/h/stores").at(Path("/e")).local_folder == Path("/e/stores")


def test_all_that_need_not_last_lies_below_the_folder_of_the_executor(tmp_path: Path) -> None:
    streams, tables = MemoryBucket(), MemoryBucket()
    fence = connect("s3://streams/pipelines/p/generation", streams, tmp_path / "driver")
    root = connect("s3://lake/tables", tables, tmp_path / "driver")
    whole = config(fence=fence, tables_root=root, commits=fence.parent / "commits", initial_state=fence.parent / "x")

    found = whole.at(tmp_path / "executor")

    assert (found.fence, found.tables_root) == (fence, root)
    assert (access_of(fence)[0], access_of(root)[0]) == (streams, tables), "they are reached as before"
    assert local_side(found.tables_root / "t") == tmp_path / f"executor/tables/{os.getpid()}/lake/tables/t"
    assert found.commits is not None and found.initial_state is not None
    for path in (found.fence, found.commits, found.initial_state):
        assert local_side(path).is_relative_to(tmp_path / f"executor/tables/{os.getpid()}/streams")
    assert msgspec.structs.replace(found, local_root=None) == whole


def test_what_a_process_was_told_is_not_what_others_read(tmp_path: Path) -> None:
    root = connect("s3://lake/tables", MemoryBucket(), tmp_path / "driver")

    def told() -> str:
        return str(local_side(config(tables_root=root).at(tmp_path / "executor").tables_root / "t"))

    if (other := os.fork()) == 0:
        (tmp_path / "other").write_text(told())
        os._exit(0)
    assert os.waitpid(other, 0) == (other, 0)
    assert (tmp_path / "other").read_text() != told()


def test_folders_of_a_machine_stay_where_they_are(tmp_path: Path) -> None:
    found = config().at(tmp_path)

    assert (found.fence, local_side(found.tables_root)) == (Path("/h/fence"), Path("/h/tables"))


def test_a_store_that_nobody_has_told_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="s3://unknown/fence lies in an object store that nobody has told"):
        config(fence=ObjectPath("s3://unknown/fence")).at(tmp_path)


def test_a_process_that_is_sent_the_configuration_knows_the_stores(tmp_path: Path) -> None:
    bucket = Known()
    packed = pickle.dumps(config(fence=connect("s3://lake/fence", bucket, tmp_path / "driver")))
    object_path._known.clear()

    found = pickle.loads(packed).at(tmp_path / "executor")

    assert isinstance(found.fence, ObjectPath)
    assert access_of(found.fence) == (bucket, tmp_path / f"executor/tables/{os.getpid()}")


class Known(MemoryBucket):
    """A bucket that can be sent, and is the same there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Known, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known)

    def __hash__(self) -> int:
        return 0
