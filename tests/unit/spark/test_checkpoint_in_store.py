"""Spark's checkpoint in an object store: what a start copies into its folder, whatever others write beside it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import faults
from deltaworks.control import checkpoint_folders
from deltaworks.errors import FencedError, IncompatibleCheckpointError, TransientError
from deltaworks.files import contents, link_all
from deltaworks.kafka.ranges import Offsets
from deltaworks.object_path import ObjectPath, connect
from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark import checkpoint_in_store, checkpoint_recovery
from deltaworks.spark.checkpoint_recovery import Settled, View
from tests.support import object_stores
from tests.unit.spark import checkpoints
from tests.unit.spark.memory_bucket import MemoryBucket

LAST = 8
FIRST, SECOND, THIRD = "000000000001-01", "000000000002-01", "000000000003-01"
Damage = Callable[[Path], object]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No test arms the next one."""
    yield
    faults.arm(None)


@pytest.fixture
def root(tmp_path: Path) -> ObjectPath:
    """A checkpoint that has never run."""
    return MemoryBucket().root("home/orders", tmp_path / "here")


def intended(batch: int) -> Offsets | None:
    return checkpoints.offsets_after(batch)


def no_intent(batch: int) -> Offsets | None:
    return None


def metadata_at(operator: Path, schema_of: str) -> bytes:
    """Metadata of an operator whose schema is said to be below another folder."""
    path = operator / "_metadata" / "v2" / "0"
    if (found := layout.read_operator(path)) is None:
        return path.read_bytes()
    written = f"{schema_of}/state/{operator.name}/_stateSchema/default/0_b8f0"
    stores = [each | {"stateSchemaFilePaths": [written]} for each in found.content["stateStoreInfo"]]
    return replace(found, content=found.content | {"stateStoreInfo": stores}).encode()


def upload(disk: Path, root: ObjectPath, name: str = FIRST, *, written_at: str | None = None) -> ObjectPath:
    """A complete folder with what is on a disk, as S3A would have written it."""
    target = root / "spark" / name
    files = [path for path in layout.everything(disk) if not layout.is_crc(path)]
    link_all((path, target / path.relative_to(disk)) for path in files)
    for operator in disk.glob("state/*"):
        if (operator / "_metadata/v2/0").exists():
            content = metadata_at(operator, str(target) if written_at is None else written_at)
            (target / operator.relative_to(disk) / "_metadata/v2/0").write_bytes(content)
    checkpoint_folders.complete(root, target)
    return target


def everything(folder: ObjectPath) -> dict[str, bytes]:
    """All that is below a folder of a store, by name."""
    paths = [path for path, _ in folder.files()]
    return {path.relative_to(folder).as_posix(): data for path, data in zip(paths, contents(paths), strict=True)}


def current(root: ObjectPath) -> ObjectPath:
    found = checkpoint_folders.current(root)
    assert isinstance(found, ObjectPath)
    return found


def state_in(folder: ObjectPath) -> layout.StateFiles:
    return layout.StateFiles(folder, None, {path: about.st_size for path, about in folder.files()})


def read_by_spark(committed: int, opened: int | None) -> set[str]:
    """The names of all that Spark needs of a checkpoint of `checkpoints.make` to go on after a batch."""
    before = {each for each in (committed - 1, committed) if each >= 0}
    names = {"metadata", *(f"commits/{each}" for each in before)}
    names |= {f"offsets/{each}" for each in before | ({opened} if opened is not None else set())}
    version = committed + 1
    snapshot = version - (version - 1) % checkpoints.SNAPSHOT_EVERY
    for number in range(checkpoints.OPERATORS):
        names |= {f"state/{number}/_metadata/v2/0", f"state/{number}/_stateSchema/default/0_b8f0"}
        for partition in range(checkpoints.PARTITIONS):
            of = f"state/{number}/{partition}"
            names |= {f"{of}/{snapshot}.zip", f"{of}/SSTs/00000{snapshot}-e0ca.sst"}
            names |= {f"{of}/{each}.changelog" for each in range(snapshot + 1, version + 1)}
    return names


def schemas_in(folder: Path) -> list[str]:
    """Where the metadata of all operators says that their schemas are."""
    found = []
    for path in sorted(folder.rglob("_metadata/v2/*")):
        stores = json.loads(path.read_text().splitlines()[1])["stateStoreInfo"]
        found += [schema for store in stores for schema in store["stateSchemaFilePaths"]]
    return found


def settle(root: ObjectPath, generation: int = 2, offsets_of: checkpoint_in_store.OffsetsOf = intended) -> Settled:
    return checkpoint_in_store.settle(root, generation, offsets_of)


def add(folder: ObjectPath, *batches: int, scratch: Path) -> None:
    """Further batches, written into a folder of the store by whoever still runs."""
    for batch in batches:
        checkpoints.add_batch(scratch, batch)
        checkpoints.add_commit(scratch, batch)
    files = [path for path in layout.everything(scratch) if not layout.is_crc(path)]
    link_all((path, folder / path.relative_to(scratch)) for path in files)


@pytest.mark.parametrize(("committed", "begun"), [(8, 8), (8, 9), (5, 6), (6, 6), (0, 0), (1, 2)])
def test_a_start_gets_what_spark_reads_and_nothing_else(
    tmp_path: Path, root: ObjectPath, committed: int, begun: int
) -> None:
    disk = checkpoints.make(tmp_path / "disk", committed, begun=begun)
    old = upload(disk, root)
    (old / "state/0/0/.9.changelog.ab.TID7.tmp").write_bytes(b"half")
    (old / "commits/.9.ab-c.tmp").write_bytes(b"")
    before = everything(old)

    settled = settle(root)

    opened = begun if begun > committed else None
    assert settled == Settled(committed=committed, open=opened, was_committed=committed)
    new = root / "spark" / SECOND
    assert current(root) == new
    copied = everything(new)
    assert copied.keys() == read_by_spark(committed, opened)
    assert all(data == before[name] for name, data in copied.items() if "_metadata" not in name)
    schemas = [f"{new}/state/{n}/_stateSchema/default/0_b8f0" for n in range(checkpoints.OPERATORS)]
    assert schemas_in(new) == schemas and schemas[0].startswith("s3://")
    assert everything(old) == before


def test_a_start_gets_it_in_a_store_that_speaks_s3(tmp_path: Path) -> None:
    with object_stores.moto():
        address = f"s3://{object_stores.BUCKET}/{tmp_path.name}/orders"
        root = connect(address, object_stores.access(), tmp_path / "here")
        old = upload(checkpoints.make(tmp_path / "disk", 1, begun=2), root)
        before = everything(old)
        assert settle(root) == Settled(1, 2, 1)
        assert everything(current(root)).keys() == read_by_spark(1, 2)
        assert everything(old) == before


@pytest.mark.parametrize(
    "written_at", ["file:/elsewhere/orders/checkpoint", "s3://another/bucket/spark/000000000009-01"]
)
def test_a_checkpoint_from_elsewhere_points_to_the_schemas_of_the_new_folder(
    tmp_path: Path, root: ObjectPath, written_at: str
) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root, written_at=written_at)
    settle(root)
    new = current(root)
    assert all(schema.startswith(f"{new}/state/") for schema in schemas_in(new)), schemas_in(new)


def removed(*names: str) -> Damage:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()
            layout.crc_path(folder / name).unlink()

    return act


def written(name: str, content: bytes) -> Damage:
    return lambda folder: checkpoints.write(folder / name, content)


def every_partition(name: str) -> Damage:
    return lambda folder: [removed(name)(partition) for partition in checkpoints.partitions(folder)]


DAMAGES: dict[str, Damage] = {
    "none": lambda folder: None,
    "last changelog": removed("state/1/0/9.changelog"),
    "a changelog before": removed("state/0/1/8.changelog"),
    "changelogs of two batches": removed("state/0/0/8.changelog", "state/1/1/9.changelog"),
    "an old changelog": removed("state/0/1/3.changelog"),
    "a snapshot": removed("state/0/0/7.zip"),
    "a snapshot and a changelog before": removed("state/0/0/7.zip", "state/0/0/6.changelog"),
    "a snapshot that is garbage": written("state/0/0/7.zip", b"no zip at all"),
    "all snapshots of a partition": removed("state/1/1/7.zip", "state/1/1/4.zip", "state/1/1/1.zip"),
    "an sst": removed("state/0/0/SSTs/000007-e0ca.sst"),
    "an sst that is cut": written("state/0/0/SSTs/000007-e0ca.sst", b"sst 7"),
    "the last sst of every partition": every_partition("SSTs/000007-e0ca.sst"),
    "an old sst": removed("state/0/0/SSTs/000004-e0ca.sst"),
    "last commit": removed("commits/8"),
    "last commit that is garbage": written("commits/8", b"\0" * 29),
    "a commit in the middle": removed("commits/3"),
    "last three commits": removed("commits/8", "commits/7", "commits/6"),
    "all commits": removed(*(f"commits/{n}" for n in range(9))),
    "last offsets": removed("offsets/8"),
    "last offsets that are cut": written("offsets/8", b'v1\n{"batchWat'),
    "offsets before the last": removed("offsets/7"),
    "offsets in the middle": removed("offsets/3"),
    "all offsets but the first": removed(*(f"offsets/{n}" for n in range(1, 9))),
    "all offsets": removed(*(f"offsets/{n}" for n in range(9))),
    "metadata of an operator": removed("state/0/_metadata/v2/0"),
    "metadata of an operator that is cut": written("state/0/_metadata/v2/0", b"v2\n{"),
    "a schema": removed("state/1/_stateSchema/default/0_b8f0"),
    "an empty schema": written("state/1/_stateSchema/default/0_b8f0", b""),
    "a partition": lambda folder: shutil.rmtree(folder / "state/1/0"),
    "an operator": lambda folder: shutil.rmtree(folder / "state/1"),
    "the query": removed("metadata"),
    "the query, garbage": written("metadata", b"{"),
    "offsets of a later batch": lambda folder: checkpoints.write(folder / "offsets/9", b"v1\nhalf"),
    "a torn metadata after the last": written("state/0/_metadata/v2/5", b"v2\n"),
    "state of a later batch": lambda folder: checkpoints.add_state(folder / "state/0/0", 10),
}


def on_disk(folder: Path, offsets_of: checkpoint_in_store.OffsetsOf) -> Settled | None:
    """What becomes of the same checkpoint on a disk; None: it is refused."""
    trash, mark = folder.with_name("trash"), folder.with_name("mark")
    try:
        return checkpoint_recovery.settle(folder, trash, "boot", mark=mark, offsets_of=offsets_of)
    except IncompatibleCheckpointError:
        return None


def without_paths(data: bytes, folder: Path) -> bytes:
    scheme = "" if isinstance(folder, ObjectPath) else "file:"
    return data.replace(f"{scheme}{folder}".encode(), b"")


def require_same(tmp_path: Path, root: ObjectPath, damage: Damage, offsets_of: checkpoint_in_store.OffsetsOf) -> None:
    """A checkpoint in the store is settled as on a disk: the same decision, and the same files as far as needed."""
    disk = tmp_path / "disk"
    damage(disk)
    old = upload(disk, root)
    before = everything(root)
    expected = on_disk(disk, offsets_of)
    if expected is None:
        with pytest.raises(IncompatibleCheckpointError, match="cannot run again"):
            settle(root, 2, offsets_of)
        assert everything(root) == before
        return

    settled = settle(root, 2, offsets_of)

    assert replace(settled, done=()) == replace(expected, done=())
    new = current(root)
    assert new.name == SECOND
    found = everything(new)
    below = f"spark/{FIRST}/"
    kept = {below + name: data for name, data in everything(old).items()}
    assert kept == {name: data for name, data in before.items() if name.startswith(below)}
    there = {name: data for name, data in checkpoints.contents(disk).items() if not name.endswith(".crc")}
    assert found.keys() <= there.keys()
    for name, data in found.items():
        if name != "metadata" or before.get(f"{below}metadata") == data:
            assert without_paths(data, new) == without_paths(there[name], disk), name
    if settled.committed is not None:
        assert state_in(new).problems(settled.committed + 1) == []
        assert layout.is_query(new / "metadata")
    assert settle(root, 3, offsets_of) == Settled(settled.committed, settled.open, settled.committed)
    assert everything(current(root)).keys() == found.keys()


@pytest.mark.parametrize("begun", [LAST, LAST + 1])
@pytest.mark.parametrize("offsets_of", [intended, no_intent], ids=["intents", "no intents"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damage_is_settled_as_on_a_disk(
    tmp_path: Path, root: ObjectPath, damage: Damage, offsets_of: checkpoint_in_store.OffsetsOf, begun: int
) -> None:
    checkpoints.make(tmp_path / "disk", LAST, begun=begun)
    require_same(tmp_path, root, damage, offsets_of)


@pytest.mark.parametrize("damage", ["none", "last commit", "offsets before the last", "the query"])
@pytest.mark.parametrize(("operators", "partitions"), [(0, 0), (1, 1), (3, 1), (1, 5)])
def test_any_number_of_operators_and_partitions_is_settled_as_on_a_disk(
    tmp_path: Path, root: ObjectPath, operators: int, partitions: int, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "OPERATORS", operators)
    monkeypatch.setattr(checkpoints, "PARTITIONS", partitions)
    checkpoints.make(tmp_path / "disk", LAST)
    require_same(tmp_path, root, DAMAGES[damage], intended)


def test_a_snapshot_whose_sst_is_cut_is_not_copied(tmp_path: Path, root: ObjectPath) -> None:
    disk = checkpoints.make(tmp_path / "disk", LAST)
    DAMAGES["an sst that is cut"](disk)
    upload(disk, root)
    assert settle(root) == Settled(LAST, None, LAST)
    found = {name for name in everything(current(root)) if name.startswith("state/0/0/")}
    below = ("4.zip", "SSTs/000004-e0ca.sst", *(f"{n}.changelog" for n in range(5, 10)))
    assert found == {f"state/0/0/{name}" for name in below}


def test_what_a_driver_that_was_replaced_writes_later_is_never_seen(tmp_path: Path, root: ObjectPath) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST), root)
    settled = settle(root)
    copied = everything(current(root))

    add(old, 9, 10, scratch=tmp_path / "late")
    (old / "offsets/8").write_bytes(b"other")
    checkpoint_folders.complete(root, root / "spark" / "000000000001-07")

    assert current(root).name == SECOND
    assert everything(current(root)) == copied
    assert settle(root, 3) == settled
    assert everything(current(root)).keys() == copied.keys()


def test_what_a_driver_that_was_replaced_wrote_before_decides_nothing_wrong(tmp_path: Path, root: ObjectPath) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST), root)
    add(root / "spark" / "000000000000-05", 9, 10, scratch=tmp_path / "other")  # which is not complete
    checkpoints.add_commit(tmp_path / "late", 9)
    checkpoints.add_state(tmp_path / "late/state/0/0", 10)  # of one partition only
    checkpoints.add_batch(tmp_path / "late", 12)  # but not what is between
    add(old, scratch=tmp_path / "late")

    settled = settle(root)

    assert (settled.committed, settled.open, settled.was_committed) == (LAST, None, 9)
    assert everything(current(root)).keys() == read_by_spark(LAST, None)


def test_what_appears_during_the_copy_is_not_copied(tmp_path: Path, root: ObjectPath) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST), root)
    faults.arm(lambda point: add(old, 9, scratch=tmp_path / "late") if point == "checkpoint.before_copy" else None)
    assert settle(root) == Settled(LAST, None, LAST)
    assert everything(current(root)).keys() == read_by_spark(LAST, None)


class Dying:
    """Lets so many requests that write pass, then the process is as good as dead."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int | None = None) -> None:
        self.done, self._left, self._lock = 0, left, threading.Lock()
        for name in ("copy", "put", "put_if_absent", "delete"):
            patch.setattr(MemoryBucket, name, self._counted(getattr(MemoryBucket, name)))

    def _counted(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            with self._lock:
                if self.done == self._left:
                    raise KeyboardInterrupt
                self.done += 1
            return request(*args)

        return counted


def test_whoever_is_killed_while_settling_leaves_the_old_folder_and_settles_again(
    tmp_path: Path, root: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = checkpoints.make(tmp_path / "disk", 4, begun=5)
    removed("offsets/3")(disk)
    upload(disk, root / "whole")
    with monkeypatch.context() as patch:
        counted = Dying(patch)
        expected = settle(root / "whole")
    copied = everything(current(root / "whole"))
    assert counted.done == len(copied) + 1

    old = upload(disk, root)
    before = everything(old)
    for left in range(counted.done):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            Dying(patch, left)
            settle(root)
        assert current(root) == old
    assert everything(old) == before

    assert settle(root) == expected
    again = current(root)
    assert again.name.startswith("000000000002-") and again.name != SECOND
    assert everything(again).keys() == copied.keys()
    assert set(schemas_in(again)) == {f"{again}/state/{n}/_stateSchema/default/0_b8f0" for n in (0, 1)}


@pytest.mark.parametrize("at", ["checkpoint.before_copy", "checkpoint.copied"])
def test_whoever_is_killed_at_a_fault_point_leaves_the_old_folder(tmp_path: Path, root: ObjectPath, at: str) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST, begun=LAST + 1), root)

    def die(point: str) -> None:
        if point == at:
            raise KeyboardInterrupt

    faults.arm(die)
    with pytest.raises(KeyboardInterrupt):
        settle(root)
    faults.arm(None)
    assert current(root) == old
    assert settle(root) == Settled(LAST, LAST + 1, LAST)
    assert everything(current(root)).keys() == read_by_spark(LAST, LAST + 1)


def test_a_generation_is_fenced_once_a_later_one_has_a_folder(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    settle(root, 3)
    before = everything(root)
    with pytest.raises(FencedError, match="generation 2 was replaced while it started"):
        settle(root, 2)
    with pytest.raises(FencedError, match="generation 2 was replaced while it started"):
        checkpoint_in_store.rewind(root, 2, LAST, intended)
    assert everything(root) == before


@pytest.mark.parametrize("at", ["checkpoint.before_copy", "checkpoint.copied"])
def test_a_generation_that_is_replaced_during_its_copy_does_not_hold(tmp_path: Path, root: ObjectPath, at: str) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)

    def replaced(point: str) -> None:
        if point == at:
            faults.arm(None)
            settle(root, 3)

    faults.arm(replaced)
    settle(root, 2)
    assert current(root).name == THIRD


def test_a_folder_that_was_begun_is_never_used_again(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    (root / "spark" / SECOND / "commits/99").write_bytes(b"of a start that was killed")
    settle(root)
    assert current(root).name == "000000000002-02"
    assert everything(current(root)).keys() == read_by_spark(LAST, None)


READ = [
    "metadata",
    "offsets/7",
    "commits/8",
    "state/0/0/7.zip",
    "state/0/1/SSTs/000007-e0ca.sst",
    "state/1/1/9.changelog",
    "state/1/_stateSchema/default/0_b8f0",
]


@pytest.mark.parametrize("name", READ)
def test_a_file_that_is_removed_during_the_copy_is_no_loss(tmp_path: Path, root: ObjectPath, name: str) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST), root)
    faults.arm(lambda point: (old / name).unlink() if point == "checkpoint.before_copy" else None)
    with pytest.raises(TransientError, match="was removed while it was copied"):
        settle(root)
    assert current(root) == old


@pytest.mark.parametrize("name", [*READ, "state/1/_metadata/v2/0"])
def test_a_file_that_is_removed_before_the_copy_is_no_loss(
    tmp_path: Path, root: ObjectPath, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    settle(root)  # there is no other snapshot to fall back on
    old = current(root)
    needed = View.needed

    def late(self: View, plan: checkpoint_recovery.Plan) -> list[Path]:
        (old / name).unlink()
        return needed(self, plan)

    monkeypatch.setattr(View, "needed", late)
    with pytest.raises(TransientError, match="was removed while it was copied"):
        settle(root, 3)
    assert current(root) == old


def test_rewind_to_the_last_committed_batch_forgets_the_open_one(tmp_path: Path, root: ObjectPath) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST, begun=LAST + 1), root)
    before = everything(old)
    settle(root)
    checkpoint_in_store.rewind(root, 2, LAST, intended)
    new = current(root)
    assert new.name == "000000000002-02"
    assert everything(new).keys() == read_by_spark(LAST, None)
    assert set(schemas_in(new)) == {f"{new}/state/{n}/_stateSchema/default/0_b8f0" for n in (0, 1)}
    assert everything(old) == before
    assert settle(root, 3) == Settled(LAST, None, LAST)


def test_rewind_goes_back_to_a_batch_whose_state_is_there(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    checkpoint_in_store.rewind(root, 2, 5, intended)
    assert everything(current(root)).keys() == read_by_spark(5, None)
    assert settle(root, 3) == Settled(5, None, 5)


def test_rewind_to_a_batch_that_is_gone_is_refused_and_writes_nothing(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    settle(root)  # which copies no state of earlier batches
    before = everything(root)
    with pytest.raises(IncompatibleCheckpointError, match="cannot go back to batch 3"):
        checkpoint_in_store.rewind(root, 2, 3, intended)
    assert everything(root) == before


def test_rewind_to_the_beginning_gives_an_empty_folder(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", LAST), root)
    checkpoint_in_store.rewind(root, 2, -1, intended)
    assert current(root).name == SECOND
    assert everything(current(root)) == {}
    assert settle(root, 3) == Settled(None, None, None)


def test_a_pipeline_that_never_ran_begins_with_an_empty_folder(root: ObjectPath) -> None:
    assert settle(root, 1) == Settled(None, None, None)
    assert everything(root) == {f"spark-ready/{FIRST}": b""}
    assert current(root) == root / "spark" / FIRST


def test_an_empty_folder_stays_empty_at_each_start(root: ObjectPath) -> None:
    for generation in (1, 2, 3):
        assert settle(root, generation) == Settled(None, None, None)
    assert everything(root) == {f"spark-ready/{name}": b"" for name in (FIRST, SECOND, THIRD)}


def test_the_first_batch_runs_again_with_empty_state(tmp_path: Path, root: ObjectPath) -> None:
    upload(checkpoints.make(tmp_path / "disk", -1, begun=0), root)
    assert settle(root) == Settled(None, 0, None)
    found = everything(current(root))
    assert {name for name in found if "_stateSchema" not in name} == {"metadata", "offsets/0"}


def test_of_all_folders_the_last_two_stay(tmp_path: Path, root: ObjectPath) -> None:
    old = upload(checkpoints.make(tmp_path / "disk", LAST), root)
    for generation in (2, 3):
        settle(root, generation)
    last = everything(current(root))
    checkpoint_folders.expire(root)
    assert everything(old) == {}
    assert {name.split("/")[1] for name in everything(root)} == {SECOND, THIRD}
    assert everything(current(root)) == last
    assert settle(root, 4) == Settled(LAST, None, LAST)
