"""What the local implementation does with the file system: in which order, and what is left when it fails."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks.files import LocalFiles, make_folder, replace_file, sync, sync_folder

Call = tuple[str, str]


class Calls:
    """Records what the file system is told, in order; the part of a temporary name that is random is left out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[Call] = []
        fsync = os.fsync

        def synced(fd: int) -> None:
            self._add("fsync", str(Path(f"/proc/self/fd/{fd}").readlink()))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", synced)
        for call, argument in (("link", 1), ("rename", 1), ("replace", 1), ("unlink", 0), ("mkdir", 0)):
            self._record(monkeypatch, call, argument)

    def _record(self, monkeypatch: pytest.MonkeyPatch, call: str, argument: int) -> None:
        real: Callable[..., object] = getattr(os, call)

        def recorded(*args: object, **options: object) -> object:
            done = real(*args, **options)
            self._add(call, str(args[argument]))
            return done

        monkeypatch.setattr(os, call, recorded)

    def _add(self, call: str, path: str) -> None:
        name = Path(path).name
        self.all.append((call, f".{name.split('.')[1]}.tmp" if name.startswith(".") else name))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_put_syncs_the_content_before_the_name_and_the_folder_after_it(tmp_path: Path, calls: Calls) -> None:
    LocalFiles(tmp_path).put_if_absent("a", b"one")
    put = [("fsync", ".a.tmp"), ("link", "a"), ("unlink", ".a.tmp"), ("fsync", tmp_path.name)]
    assert calls.all[-4:] == put


def test_put_of_what_is_there_syncs_the_folder_too(tmp_path: Path, calls: Calls) -> None:
    """Who put it may not have done so yet, and the caller relies on it."""
    files = LocalFiles(tmp_path)
    files.put_if_absent("a", b"one")
    calls.all.clear()
    files.put_if_absent("a", b"two")
    assert calls.all == [("fsync", tmp_path.name)]


def test_new_folders_are_durable_before_the_name_in_them(tmp_path: Path, calls: Calls) -> None:
    LocalFiles(tmp_path / "x").put_if_absent("y/a", b"one")
    link = calls.all.index(("link", "a"))
    assert {("fsync", tmp_path.name), ("fsync", "x")} <= set(calls.all[:link])
    assert ("fsync", "y") in calls.all[link:]


def test_replace_syncs_the_content_before_the_name_and_the_folder_after_it(tmp_path: Path, calls: Calls) -> None:
    files = LocalFiles(tmp_path)
    files.put_if_absent("a", b"one")
    stored = files.get("a")
    assert stored is not None
    calls.all.clear()
    files.replace("a", b"two", stored.version)
    named = next(at for at, (call, name) in enumerate(calls.all) if call in ("replace", "rename") and name == "a")
    assert calls.all[named - 1] == ("fsync", ".a.tmp") and ("fsync", tmp_path.name) in calls.all[named:]


def test_delete_syncs_the_folder_after_it(tmp_path: Path, calls: Calls) -> None:
    files = LocalFiles(tmp_path)
    files.put_if_absent("a", b"one")
    calls.all.clear()
    files.delete("a")
    assert calls.all == [("unlink", "a"), ("fsync", tmp_path.name)]


def test_replace_file_is_durable_when_told_so(tmp_path: Path, calls: Calls) -> None:
    replace_file(tmp_path / "a", b"one", durable=True)
    named = next(at for at, (call, name) in enumerate(calls.all) if call in ("replace", "rename") and name == "a")
    assert calls.all[:named] == [("fsync", ".a.tmp")] and calls.all[-1] == ("fsync", tmp_path.name)
    calls.all.clear()
    replace_file(tmp_path / "b", b"one")
    assert "fsync" not in {call for call, _ in calls.all}


def test_replace_file_in_a_new_folder_makes_the_folder_durable(tmp_path: Path, calls: Calls) -> None:
    replace_file(tmp_path / "x" / "y" / "a", b"one", durable=True)
    assert {("fsync", tmp_path.name), ("fsync", "x"), ("fsync", "y")} <= set(calls.all)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_replace_file_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, durable: bool
) -> None:
    replace_file(tmp_path / "a", b"one")

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        try:
            replace_file(tmp_path / "a", b"two", durable=durable)
        except OSError:
            assert (tmp_path / "a").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_replace_file_keeps_a_secret(tmp_path: Path) -> None:
    replace_file(tmp_path / "a", b"secret", mode=0o600)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_sync_syncs_every_file_before_every_folder(tmp_path: Path, calls: Calls) -> None:
    paths = [tmp_path / folder / name for folder in ("x", "y") for name in ("1", "2")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    calls.all.clear()
    sync(paths)
    assert sorted(calls.all[:4]) == [("fsync", n) for n in ("1", "1", "2", "2")]
    assert sorted(calls.all[4:]) == [("fsync", "x"), ("fsync", "y")]


def test_sync_of_nothing_and_of_what_is_not_there(tmp_path: Path) -> None:
    sync([])
    (tmp_path / "a").touch()
    for missing in ([tmp_path / "b"], [tmp_path / "a", tmp_path / "b"]):
        with pytest.raises(FileNotFoundError):
            sync(missing)


def test_sync_tells_an_error_of_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / str(n) for n in range(20)]
    for path in paths:
        path.touch()
    fsync = os.fsync

    def broken(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "13":
            raise OSError(5, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        sync(paths)


def test_make_folder_syncs_only_what_it_makes(tmp_path: Path, calls: Calls) -> None:
    make_folder(tmp_path / "x" / "y")
    assert {("fsync", tmp_path.name), ("fsync", "x")} <= set(calls.all)
    calls.all.clear()
    make_folder(tmp_path / "x" / "y")
    assert "fsync" not in {call for call, _ in calls.all}
    sync_folder(tmp_path / "x")


def test_temporary_files_of_the_dead_are_never_listed(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.put_if_absent("x/a", b"one")
    (tmp_path / "x" / ".b.123-abcd").write_bytes(b"half")
    assert files.names() == files.names("x/") == ["x/a"]
    assert files.put_if_absent("x/b", b"two")


def test_a_folder_that_a_killed_process_made_is_made_durable(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    calls.all.clear()
    LocalFiles(tmp_path / "x").put_if_absent("y/a", b"one")
    link = calls.all.index(("link", "a"))
    assert {("fsync", tmp_path.name), ("fsync", "x")} <= set(calls.all[:link])
