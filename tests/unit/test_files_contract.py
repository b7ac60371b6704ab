"""What every implementation of `Files` must do; another one is one more entry in `FILES`."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from deltaworks.files import Files, LocalFiles
from tests.support import object_stores

Make = Callable[[Path], Files]

FILES: dict[str, Make] = {"local": LocalFiles, "S3": object_stores.make}
"""Makes an implementation in an empty place; called with the same place again, it finds what was written."""

WRITERS = 4


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    """A server of S3."""
    with object_stores.moto():
        yield


@pytest.fixture(params=list(FILES.values()), ids=list(FILES))
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def files(make: Make, tmp_path: Path) -> Files:
    return make(tmp_path / "files")


def version_of(files: Files, name: str) -> str:
    stored = files.get(name)
    assert stored is not None
    return stored.version


def data_of(files: Files, name: str) -> bytes | None:
    stored = files.get(name)
    return None if stored is None else stored.data


def test_nothing_is_there_at_first(files: Files) -> None:
    assert files.get("a") is None and files.get("a/b") is None
    assert files.names() == [] and files.names("a/") == []


def test_the_first_put_wins(files: Files, make: Make, tmp_path: Path) -> None:
    assert files.put_if_absent("a/b.json", b"one")
    assert not files.put_if_absent("a/b.json", b"two")
    assert data_of(files, "a/b.json") == b"one"
    assert data_of(make(tmp_path / "files"), "a/b.json") == b"one"


def test_the_empty_content_is_a_content(files: Files) -> None:
    assert files.put_if_absent("a", b"")
    assert data_of(files, "a") == b"" and not files.put_if_absent("a", b"x")


def test_content_is_bytes_of_any_length(files: Files) -> None:
    data = bytes(range(256)) * 10_000
    files.put_if_absent("a", data)
    assert data_of(files, "a") == data


def test_another_content_has_another_version(files: Files) -> None:
    files.put_if_absent("a", b"one")
    first = version_of(files, "a")
    assert version_of(files, "a") == first
    assert files.replace("a", b"two", first)
    assert version_of(files, "a") != first and data_of(files, "a") == b"two"


def test_replace_needs_the_version_that_is_there(files: Files) -> None:
    files.put_if_absent("a", b"one")
    old = version_of(files, "a")
    assert files.replace("a", b"two", old)
    assert not files.replace("a", b"three", old) and data_of(files, "a") == b"two"


def test_replace_of_what_is_not_there_does_nothing(files: Files) -> None:
    files.put_if_absent("x/a", b"one")
    version = version_of(files, "x/a")
    for name in ("x/b", "y/a"):
        assert not files.replace(name, b"two", version) and files.get(name) is None
    assert files.names() == ["x/a"]


def test_replace_of_what_was_deleted_does_nothing(files: Files) -> None:
    files.put_if_absent("a", b"one")
    version = version_of(files, "a")
    files.delete("a")
    assert not files.replace("a", b"two", version) and files.get("a") is None


def test_names_are_sorted_and_begin_with_the_prefix(files: Files) -> None:
    names = ["b", "a/10", "a/9", "ab/1", "a/sub/2"]
    for name in names:
        files.put_if_absent(name, b"")
    assert files.names() == sorted(names)
    assert files.names("a") == ["a/10", "a/9", "a/sub/2", "ab/1"]
    assert files.names("a/") == ["a/10", "a/9", "a/sub/2"]
    assert files.names("a/1") == ["a/10"] and files.names("a/sub/") == ["a/sub/2"]
    assert files.names("c") == [] and files.names("a/9/") == []


def test_delete_may_come_twice(files: Files) -> None:
    files.put_if_absent("a/b", b"one")
    for _ in range(2):
        files.delete("a/b")
        assert files.get("a/b") is None and files.names() == []
    files.delete("never/there")


def test_a_name_may_be_used_again(files: Files) -> None:
    files.put_if_absent("a", b"one")
    files.delete("a")
    assert files.put_if_absent("a", b"two") and data_of(files, "a") == b"two"


BAD = ("", ".", "..", "/a", "a/../b", "../a", ".hidden", "a/.hidden", ".a/b", "a//b", "a/", "a/./b", "a\0b")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_by_every_call(files: Files, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: files.put_if_absent(name, b""),
        lambda: files.replace(name, b"", "0"),
        lambda: files.get(name),
        lambda: files.delete(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="is not the name"):
            call()
    assert files.names() == []


@pytest.mark.parametrize("prefix", ["/", "/etc", "../", "a/../../"])
def test_a_prefix_does_not_lead_out(files: Files, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"")
    with pytest.raises(ValueError, match="is not the name"):
        files.names(prefix)


def test_names_that_differ_little_are_different(files: Files) -> None:
    names = ["a", "A", "a.json", "a b", "é", "a%2Fb", "a.tmp", "a.crc", "-", "~", "0" * 200]
    for name in names:
        assert files.put_if_absent(name, name.encode())
    assert {name: data_of(files, name) for name in names} == {name: name.encode() for name in names}
    assert files.names() == sorted(names)


def _put_many(make: Make, root: Path, names: list[str], me: int) -> list[str]:
    files = make(root)
    return [name for name in names if files.put_if_absent(name, str(me).encode() * 1000)]


def test_of_many_processes_that_put_a_name_exactly_one_wins(make: Make, tmp_path: Path) -> None:
    names = [f"intents/{n:03d}" for n in range(30)]
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        won = list(pool.map(partial(_put_many, make, tmp_path, names), range(WRITERS)))
    assert sorted(name for each in won for name in each) == names
    files = make(tmp_path)
    assert {name: data_of(files, name) for me in range(WRITERS) for name in won[me]} == {
        name: str(me).encode() * 1000 for me in range(WRITERS) for name in won[me]
    }
    assert files.names() == names


def _count_up(make: Make, root: Path, times: int) -> int:
    files, lost = make(root), 0
    for _ in range(times):
        while True:
            stored = files.get("count")
            assert stored is not None
            if files.replace("count", str(int(stored.data) + 1).encode(), stored.version):
                break
            lost += 1
    return lost


def test_of_many_processes_that_replace_a_version_exactly_one_wins(make: Make, tmp_path: Path) -> None:
    make(tmp_path).put_if_absent("count", b"0")
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_count_up, make, tmp_path), [10] * WRITERS))
    assert data_of(make(tmp_path), "count") == str(10 * WRITERS).encode()


def test_a_reader_never_sees_a_part(make: Make, tmp_path: Path) -> None:
    writer, reader, size = make(tmp_path), make(tmp_path), 300_000
    writer.put_if_absent("a", b"0" * size)

    def write() -> None:
        for n in range(1, 10):
            assert writer.replace("a", str(n).encode() * size, version_of(writer, "a"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            data = data_of(reader, "a")
            assert data is not None and len(data) == size and len(set(data)) == 1
        writing.result()


def test_what_a_crash_left_is_not_seen_and_does_not_stand_in_the_way(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the operating system fails once; an implementation without such calls sees no failure."""
    for call in ("link", "fsync", "replace", "rename", "unlink"):
        for nth in range(4):
            root = tmp_path / f"{call}-{nth}"
            files = make(root)
            files.put_if_absent("old", b"one")
            version = version_of(files, "old")
            with monkeypatch.context() as patched:
                _fail(patched, call, nth)
                for attempt in (
                    partial(files.put_if_absent, "new", b"new"),
                    partial(files.replace, "old", b"two", version),
                ):
                    try:
                        attempt()
                    except OSError as error:
                        assert "planted" in str(error)
            after = make(root)
            assert set(after.names()) <= {"new", "old"}
            assert data_of(after, "old") in (b"one", b"two") and data_of(after, "new") in (None, b"new")
            after.put_if_absent("new", b"new")
            after.replace("old", b"two", version)
            assert (data_of(after, "new"), data_of(after, "old")) == (b"new", b"two")


def _fail(patched: pytest.MonkeyPatch, call: str, nth: int) -> None:
    real, left = getattr(os, call), [nth]

    def failing(*args: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(5, "planted")
        return real(*args, **options)

    patched.setattr(os, call, failing)
