"""A path of an object store answers like one of a folder, as far as a store can; both get the same questions."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from deltaworks import object_path
from deltaworks.object_path import ObjectPath, connect, take_requests
from tests.support import object_stores

TREE = {
    "a.json": b"a",
    "b.txt": b"bb",
    "é x=%2F.json": b"",
    "sub/c.json": b"c",
    "sub/deeper/d.json": b"d",
    "sub.json": b"a name that begins like a folder",
    "sub2/e.txt": b"e",
}


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[str]:
    """A server of S3."""
    with object_stores.moto() as endpoint:
        yield endpoint


@pytest.fixture
def in_store(tmp_path: Path) -> ObjectPath:
    """An empty place in the store."""
    return connect(f"s3://{object_stores.BUCKET}/{tmp_path.name}", object_stores.access(), tmp_path / "local")


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty place."""
    found: Path = tmp_path / "tree" if request.param == "folder" else request.getfixturevalue("in_store")
    found.mkdir()
    return found


@pytest.fixture
def tree(place: Path) -> Path:
    """A place with the files of `TREE`."""
    for name, content in TREE.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return place


def names(root: Path, paths: Iterator[Path]) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in paths)


def test_a_path_has_the_parts_of_its_address() -> None:
    path = ObjectPath("s3://lake/tables/orders")

    assert (path.bucket, path.key, path.name) == ("lake", "tables/orders", "orders")
    assert str(path) == f"{path}" == path.as_posix() == "s3://lake/tables/orders"
    assert repr(path) == "ObjectPath('s3://lake/tables/orders')"
    assert (str(path.parent), str(path.parent.parent)) == ("s3://lake/tables", "s3://lake")
    assert path.parent.parent.key == ""


def test_paths_are_built_and_taken_apart_as_in_a_folder() -> None:
    root = ObjectPath("s3://lake/tables/")

    path = root / "orders" / "_delta_log/0.json"

    assert isinstance(path, ObjectPath)
    assert str(path) == "s3://lake/tables/orders/_delta_log/0.json"
    assert str(path.with_name("1.json")) == "s3://lake/tables/orders/_delta_log/1.json"
    assert str(root.joinpath("a", "b")) == "s3://lake/tables/a/b"
    assert path.relative_to(root).as_posix() == "orders/_delta_log/0.json"
    assert path.is_relative_to(root)
    assert path.absolute() == path
    with pytest.raises(ValueError, match="is not in the subpath"):
        path.relative_to(ObjectPath("s3://another/tables"))


def test_a_path_of_a_store_is_refused_where_one_of_the_machine_is_needed(in_store: ObjectPath) -> None:
    with pytest.raises(TypeError, match=r"s3://files/\S* is a path of an object store, not of this machine"):
        os.fspath(in_store)
    with pytest.raises(TypeError, match="is a path of an object store"):
        open(in_store)  # noqa: PTH123, SIM115
    with pytest.raises(TypeError, match="is a path of an object store"):
        (in_store / "a").chmod(0o600)


def test_paths_are_equal_and_sorted_by_their_parts(in_store: ObjectPath) -> None:
    same = ObjectPath(str(in_store))

    assert same == in_store
    assert same is not in_store
    assert len({same, in_store, in_store / "a", in_store / "b" / ".." / "a"}) == 3
    assert sorted([in_store / "b", in_store / "a"]) == [in_store / "a", in_store / "b"]
    assert in_store != ObjectPath(f"s3://another/{in_store.key}")


def test_only_an_address_of_a_store_is_one() -> None:
    assert object_path.is_address("s3://lake/tables")
    assert not any(map(object_path.is_address, ("/lake/tables", "s3:/lake", "gs://lake", "")))


def test_a_bucket_that_nobody_connected_is_told() -> None:
    path = ObjectPath("s3://nobody/tables/orders")

    with pytest.raises(LookupError, match=r"s3://nobody\S* lies in an object store that nobody has told this process"):
        path.read_bytes()
    assert pickle.loads(pickle.dumps(path)) == path


def read(path: Path) -> tuple[bytes, str]:
    return path.read_bytes(), str(path)


def test_another_process_that_gets_a_path_can_read_it(in_store: ObjectPath) -> None:
    (in_store / "a").write_bytes(b"one")

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(read, in_store / "a").result() == (b"one", f"{in_store}/a")


def test_a_part_of_a_path_can_be_sent_too(in_store: ObjectPath) -> None:
    part = (in_store / "orders/a").relative_to(in_store)

    assert pickle.loads(pickle.dumps(part)) == part
    assert pickle.loads(pickle.dumps(in_store)) == in_store


def test_a_fork_works_beside_its_parent(in_store: ObjectPath) -> None:
    contents = {in_store / str(n): str(n).encode() * 50_000 for n in range(6)}
    for path, content in contents.items():
        path.write_bytes(content)
    store = in_store.store

    def all_are_right() -> bool:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(Path.read_bytes, [*contents] * 4)) == [*contents.values()] * 4

    assert all_are_right()
    child = os.fork()
    if child == 0:
        try:
            is_right = in_store.store is not store and all_are_right()
        finally:
            os._exit(0 if is_right else 1)
    assert all_are_right()
    assert os.waitpid(child, 0)[1] == 0
    assert in_store.store is store


def test_who_is_connected_anew_asks_the_new_place(in_store: ObjectPath, tmp_path: Path) -> None:
    (in_store / "a").write_bytes(b"one")
    store = in_store.store

    connect(str(in_store), object_stores.access(), tmp_path / "local")
    assert in_store.store is store

    with object_stores.Faults(object_stores.access().endpoint or "") as proxy:
        connect(str(in_store), object_stores.access(proxy.endpoint), tmp_path / "other")
        assert (in_store / "a").read_bytes() == b"one"
        assert proxy.requests == ["GET"]
        assert (in_store / "a").local == tmp_path / "other" / object_stores.BUCKET / in_store.key / "a"


def test_what_is_there_is_a_file_or_a_folder(tree: Path) -> None:
    found = {
        name: ((tree / name).exists(), (tree / name).is_file(), (tree / name).is_dir())
        for name in ("a.json", "sub", "sub/deeper", "su", "sub/deeper/d", "none", "a.json/none")
    }

    file, folder, nothing = (True, True, False), (True, False, True), (False, False, False)
    assert found == {
        "a.json": file,
        "sub": folder,
        "sub/deeper": folder,
        "su": nothing,
        "sub/deeper/d": nothing,
        "none": nothing,
        "a.json/none": nothing,
    }
    assert not (tree / "a.json").is_symlink()


def test_a_folder_lists_what_is_directly_in_it(tree: Path) -> None:
    assert names(tree, tree.iterdir()) == ["a.json", "b.txt", "sub", "sub.json", "sub2", "é x=%2F.json"]
    assert names(tree, (tree / "sub").iterdir()) == ["sub/c.json", "sub/deeper"]


def test_what_is_not_there_cannot_be_listed(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list((tree / "none").iterdir())
    assert list((tree / "none").glob("*")) == []


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*", ["a.json", "b.txt", "sub.json", "é x=%2F.json"]),
        ("*.json", ["a.json", "sub.json", "é x=%2F.json"]),
        ("?.json", ["a.json"]),
        ("a.json", ["a.json"]),
        ("none.json", []),
        ("sub/*", ["sub/c.json"]),
        ("sub/deeper/d.json", ["sub/deeper/d.json"]),
        ("*/*.json", ["sub/c.json"]),
        ("*/*/*.json", ["sub/deeper/d.json"]),
        ("sub*/*", ["sub/c.json", "sub2/e.txt"]),
        ("**/*.json", ["a.json", "sub.json", "sub/c.json", "sub/deeper/d.json", "é x=%2F.json"]),
        ("sub/**/*.json", ["sub/c.json", "sub/deeper/d.json"]),
        ("**/deeper/*", ["sub/deeper/d.json"]),
        ("[ab].*", ["a.json", "b.txt"]),
        ("[!ab].*", []),
    ],
)
def test_a_pattern_matches_the_same_files(tree: Path, pattern: str, files: list[str]) -> None:
    assert names(tree, (path for path in tree.glob(pattern) if path.is_file())) == files


def test_a_pattern_matches_files_at_any_depth(tree: Path) -> None:
    assert names(tree, tree.rglob("*.txt")) == ["b.txt", "sub2/e.txt"]
    assert names(tree, (tree / "sub").rglob("*.json")) == ["sub/c.json", "sub/deeper/d.json"]


def test_the_mark_of_an_empty_folder_is_no_file(in_store: ObjectPath) -> None:
    """Consoles of stores make such objects."""
    for key in (f"{in_store.key}/", f"{in_store.key}/sub/"):
        in_store.store.put(key, b"")
    (in_store / "sub/a").write_bytes(b"")

    assert names(in_store, in_store.rglob("*")) == ["sub/a"]
    assert names(in_store, in_store.iterdir()) == ["sub"]
    assert names(in_store, (in_store / "sub").iterdir()) == ["sub/a"]
    assert [path for path, _ in in_store.files()] == [in_store / "sub/a"]


def test_what_was_written_is_read(tree: Path) -> None:
    assert (tree / "sub/c.json").write_bytes(b"\xc3\xa9") == 2
    assert (tree / "sub/c.json").read_text(encoding="utf-8") == "é"
    (tree / "sub/c.json").write_text("ü", encoding="latin-1")
    assert (tree / "sub/c.json").read_bytes() == b"\xfc"
    assert {name: (tree / name).read_bytes() for name in TREE if name != "sub/c.json"} == {
        name: content for name, content in TREE.items() if name != "sub/c.json"
    }


@pytest.mark.parametrize("method", ["read_bytes", "read_text", "stat", "unlink", "open"])
def test_what_is_not_there_is_told(tree: Path, method: str) -> None:
    for name in ("none", "sub/none"):
        with pytest.raises(FileNotFoundError):
            getattr(tree / name, method)()


def test_a_file_is_opened_for_reading(tree: Path) -> None:
    (tree / "lines").write_bytes(b"one\ntwo\n")

    with (tree / "lines").open("rb") as binary, (tree / "lines").open() as text:
        assert list(binary) == [b"one\n", b"two\n"]
        assert list(text) == ["one\n", "two\n"]


@pytest.mark.parametrize("mode", ["w", "wb", "a", "ab", "x", "xb", "r+", "rb+"])
def test_a_file_of_a_store_is_not_opened_for_writing(in_store: ObjectPath, mode: str) -> None:
    (in_store / "a").write_bytes(b"one")

    with pytest.raises(io.UnsupportedOperation, match="writes whole files"):
        (in_store / "a").open(mode)

    assert (in_store / "a").read_bytes() == b"one"


@pytest.mark.parametrize("method", ["rename", "replace"])
def test_a_file_gets_another_name_whether_that_is_taken_or_not(tree: Path, method: str) -> None:
    assert getattr(tree / "a.json", method)(tree / "sub/a.json") == tree / "sub/a.json"
    assert getattr(tree / "b.txt", method)(tree / "sub/c.json") == tree / "sub/c.json"

    assert (tree / "sub/a.json").read_bytes() == b"a"
    assert (tree / "sub/c.json").read_bytes() == b"bb"
    assert not (tree / "a.json").exists()
    assert not (tree / "b.txt").exists()
    with pytest.raises(FileNotFoundError):
        getattr(tree / "none", method)(tree / "a.json")


def test_a_file_is_removed_once(tree: Path) -> None:
    (tree / "sub2/e.txt").unlink()

    assert not (tree / "sub2/e.txt").exists()
    (tree / "sub2/e.txt").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (tree / "sub2/e.txt").unlink()


def test_a_folder_of_a_store_is_there_as_long_as_something_is_in_it(in_store: ObjectPath) -> None:
    (in_store / "sub").mkdir()
    assert not (in_store / "sub").exists()
    (in_store / "sub/a").write_bytes(b"")
    assert (in_store / "sub").is_dir()
    (in_store / "sub/a").unlink()
    assert not (in_store / "sub").exists()


def test_a_touched_file_is_there_and_keeps_its_content(tree: Path) -> None:
    (tree / "new").touch()
    (tree / "a.json").touch()

    assert (tree / "new").read_bytes() == b""
    assert (tree / "a.json").read_bytes() == b"a"
    with pytest.raises(FileExistsError):
        (tree / "new").touch(exist_ok=False)


def test_a_file_has_a_size_and_a_time(place: Path) -> None:
    begin = int(time.time())
    (place / "a").write_bytes(b"123")
    end = time.time()

    found = (place / "a").stat()

    assert found.st_size == 3
    assert begin <= found.st_mtime <= end


def test_all_files_come_with_size_and_time_in_the_order_of_their_paths(in_store: ObjectPath) -> None:
    for name, content in TREE.items():
        (in_store / name).write_bytes(content)

    found = list(in_store.files())

    assert [(path.relative_to(in_store).as_posix(), about.st_size) for path, about in found] == sorted(
        (name, len(content)) for name, content in TREE.items()
    )
    assert [about.st_mtime for _, about in found] == [path.stat().st_mtime for path, _ in found]


def test_requests_are_counted_until_they_are_taken(in_store: ObjectPath) -> None:
    take_requests()
    (in_store / "a").write_bytes(b"")
    (in_store / "a").rename(in_store / "b")
    assert (in_store / "b").exists()
    assert len(list(in_store.iterdir())) == 1

    assert take_requests() == {"PUT": 1, "COPY": 1, "DELETE": 1, "HEAD": 1, "LIST": 1}
    assert take_requests() == {}
