"""What `files` does with paths is the same in a folder and in an object store."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaworks import files
from deltaworks.files import LocalFiles
from deltaworks.object_path import ObjectPath, connect, take_requests
from tests.support import object_stores


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    """A server of S3."""
    with object_stores.moto():
        yield


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """An empty folder, and an empty place in the store."""
    address = f"s3://{object_stores.BUCKET}/{tmp_path.name}"
    in_store = connect(address, object_stores.access(), tmp_path / "local")
    return {"folder": tmp_path / "folder", "store": in_store}


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, places: dict[str, Path]) -> Path:
    return places[request.param]


def written(path: Path, content: bytes = b"one") -> Path:
    files.write_new(path, content)
    return path


def test_the_files_of_a_place_are_in_it(place: Path) -> None:
    found = files.files_in(place / "log")

    assert isinstance(found, LocalFiles) == (not isinstance(place, ObjectPath))
    assert found.put_if_absent("1.json", b"one")
    assert (place / "log/1.json").read_bytes() == b"one"
    assert files.files_in(place).names() == ["log/1.json"]


def test_a_new_file_is_written_once(place: Path) -> None:
    files.write_new(place / "a/b", b"one")

    with pytest.raises(FileExistsError):
        files.write_new(place / "a/b", b"two")
    assert (place / "a/b").read_bytes() == b"one"


@pytest.mark.parametrize("content", [b"", b"one", bytearray(b"two"), memoryview(b"three")[1:]])
def test_a_new_file_has_the_content_of_a_buffer(place: Path, content: Any) -> None:
    files.write_new(place / "a", content)
    assert (place / "a").read_bytes() == bytes(content)


@pytest.mark.parametrize("source", ["folder", "store"])
@pytest.mark.parametrize("target", ["folder", "store"])
def test_a_file_gets_a_second_name_anywhere(places: dict[str, Path], source: str, target: str) -> None:
    first, second = written(places[source] / "a"), places[target] / "deep/er/b"

    files.link(first, second)

    assert second.read_bytes() == b"one"
    first.unlink()
    assert second.read_bytes() == b"one"


@pytest.mark.parametrize("source", ["folder", "store"])
@pytest.mark.parametrize("target", ["folder", "store"])
def test_what_is_not_there_gets_no_second_name(places: dict[str, Path], source: str, target: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.link(places[source] / "none", places[target] / "b")
    assert not (places[target] / "b").exists()


def test_a_file_is_read_from_any_position(place: Path) -> None:
    content = bytes(range(256)) * 20_000
    with files.opened(written(place / "a", content)) as file:
        assert (file.read(3), file.tell()) == (content[:3], 3)
        assert (file.seek(-5, os.SEEK_END), file.read()) == (len(content) - 5, content[-5:])
        assert (file.read(), file.seek(4_000_000), file.read(7)) == (b"", 4_000_000, content[4_000_000:4_000_007])
        file.seek(0)
        assert file.read() == content
    with pytest.raises(FileNotFoundError):
        files.opened(place / "none")


def test_sizes_are_those_of_the_files_and_none_for_what_is_not_there(places: dict[str, Path]) -> None:
    for place in places.values():
        written(place / "a", b"123")
        written(place / "sub/b", b"")
        assert files.sizes([place / "sub/b", place / "none", place / "a"]) == [0, None, 3]
    assert files.sizes([places["store"] / "a", places["folder"] / "none", places["folder"] / "a"]) == [3, None, 3]
    assert files.sizes([]) == []


def test_many_sizes_are_asked_for_side_by_side_also_by_a_fork(places: dict[str, Path]) -> None:
    paths = [written(places["store"] / str(n), b"x" * n) for n in range(40)]
    assert files.sizes(paths) == list(range(40))

    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(files.sizes, [paths]).get(timeout=30) == list(range(40))


def test_files_are_deleted_wherever_they_are(places: dict[str, Path]) -> None:
    here = [written(places["folder"] / "a"), places["folder"] / "none", written(places["folder"] / "b")]
    there = [written(places["store"] / name) for name in ("a", "sub/b")]
    kept = [written(place / "kept") for place in places.values()]

    assert files.delete(path for path in (here[0], there[0], *here[1:], there[1])) == 4

    assert not any(path.exists() for path in here + there)
    assert all(path.exists() for path in kept)
    assert files.delete([]) == 0
    assert files.delete([places["folder"] / "none"]) == 0


def test_many_files_of_a_store_are_deleted_by_one_request(places: dict[str, Path]) -> None:
    paths = [written(places["store"] / str(n)) for n in range(20)]
    take_requests()

    assert files.delete(paths) == 20

    assert take_requests() == {"DELETE": 1}
    assert list(files.walk(places["store"])) == []


def test_a_tree_is_removed_and_nothing_beside_it(place: Path) -> None:
    written(place / "tree/a")
    written(place / "tree/sub/b")
    written(place / "tree2/c")

    files.remove_tree(place / "tree")
    files.remove_tree(place / "tree")

    assert not (place / "tree").exists()
    assert (place / "tree2/c").exists()


def test_a_walk_finds_all_files_but_those_in_skipped_folders(place: Path) -> None:
    for name in ("a", "_b", "sub/c", "_log/d", "sub/_log/e", "sub/_f", "x=1/deeper/g"):
        written(place / name, name.encode())

    def found(**options: Any) -> list[str]:
        return sorted(path.relative_to(place).as_posix() for path, _ in files.walk(place, **options))

    everything = ["_b", "_log/d", "a", "sub/_f", "sub/_log/e", "sub/c", "x=1/deeper/g"]
    assert found() == everything
    assert found(skip=("_",)) == ["_b", "a", "sub/_f", "sub/c", "x=1/deeper/g"]
    assert found(skip=("_log", "x=1")) == ["_b", "a", "sub/_f", "sub/c"]
    assert {path.relative_to(place).as_posix(): about.st_size for path, about in files.walk(place)} == {
        name: len(name) for name in everything
    }


def test_a_walk_begins_where_folders_would_be_skipped(place: Path) -> None:
    written(place / "_inner/a")
    assert [path for path, _ in files.walk(place / "_inner", skip=("_",))] == [place / "_inner/a"]
    assert list(files.walk(place / "none")) == []


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_whether_it_is_there_or_not(place: Path, durable: bool) -> None:
    for content in (b"one", b"two"):
        files.replace_file(place / "sub/a", content, durable=durable)
        assert (place / "sub/a").read_bytes() == content
    assert [path for path, _ in files.walk(place)] == [place / "sub/a"]


def test_a_folder_that_was_made_can_be_used(place: Path) -> None:
    files.make_folder(place / "a/b")
    (place / "a/b/c").write_bytes(b"")
    files.sync_folder(place / "a/b")
    files.sync([place / "a/b/c"])
    assert (place / "a/b/c").exists()


def test_a_local_file_that_is_not_there_cannot_be_synced(places: dict[str, Path]) -> None:
    with pytest.raises(FileNotFoundError):
        files.sync([places["store"] / "a", places["folder"] / "none"])


def test_what_need_not_last_is_on_this_machine(places: dict[str, Path]) -> None:
    assert files.local_side(places["folder"] / "a") == places["folder"] / "a"
    beside = files.local_side(places["store"] / "orders")
    assert not isinstance(beside, ObjectPath)
    assert beside.parts[-3:] == (object_stores.BUCKET, places["store"].name, "orders")


def test_one_thread_at_a_time_is_alone_with_a_place(place: Path) -> None:
    place.mkdir(exist_ok=True)
    with files.alone(place):
        assert not is_free(place)
    assert is_free(place)


def is_free(place: Path) -> bool:
    handle = os.open(files.local_side(place), os.O_RDONLY)
    try:
        return files.lock(handle)
    finally:
        os.close(handle)
