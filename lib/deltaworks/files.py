"""Durable files: written whole or not at all, and on the disk when a call returns.

`Files` is the only way to make durable what others rely on: what a batch is to do, who may run, a commit, a deletion.
It has no rename, no append and no second name for a file, so that an object store can implement it; `LocalFiles` uses a
folder of a file system. `replace_file` is for files that may be lost: a heartbeat, a page.

All functions here also take paths of an object store (`object_path`), where whatever was written is durable.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from deltaworks import clock
from deltaworks.object_path import ObjectPath

_LOCK = ".lock"
_SIDE_BY_SIDE = 16
_LOCK_POLL_S = 0.005
_AHEAD = 8
_PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a file and its version."""

    data: bytes
    version: str
    """The version of this content, for `Files.replace`; other content has another version."""


class Files(Protocol):
    """Small files under names such as `intents/000000000042.json`; parts of a name are separated by `/`.

    Every call is atomic, and durable when it returns: it survives a loss of power. No part of a name is empty or begins
    with a dot. `tests/unit/test_files_contract.py` says what an implementation must do.
    """

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file that does not exist yet.

        Returns:
            False if it exists; nothing was done.
        """

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Replaces a file if it still has `version` (compare and swap).

        Returns:
            False if it has another version or does not exist; nothing was done.
        """

    def get(self, name: str) -> Stored | None:
        """The content of a file; None if it does not exist."""

    def names(self, prefix: str = "") -> list[str]:
        """All names that begin with `prefix`, sorted."""

    def delete(self, name: str) -> None:
        """Removes a file if it exists."""


class LocalFiles:
    """`Files` in a folder of a local file system.

    A new file is a link to one that was written and synced under another name, so readers never see a part of it; then
    the folder is synced. A replacement compares versions under a lock that ends with the process.

    Args:
        root: the folder; created when the first file is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()
        """Folders whose own names are known to be on the disk."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        target = self._path(name)
        self._make_folder(target.parent)
        if created := not target.exists():
            with _written(target, data) as temporary:
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    created = False
        sync_folder(target.parent)  # even if another process wrote the file and is about to sync it
        return created

    def replace(self, name: str, data: bytes, version: str) -> bool:
        target = self._path(name)
        if not target.parent.is_dir():
            return False
        with alone(target.parent / _LOCK):
            found = self.get(name)
            if found is None or found.version != version:
                return False
            with _written(target, data) as temporary:
                temporary.replace(target)
            sync_folder(target.parent)
        return True

    def get(self, name: str) -> Stored | None:
        try:
            data = self._path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stored(data, hashlib.sha256(data).hexdigest())

    def names(self, prefix: str = "") -> list[str]:
        above = prefix.rpartition("/")[0]
        folder = self._path(above) if "/" in prefix else self._root
        found = (path.relative_to(self._root).as_posix() for path in folder.rglob("*") if path.is_file())
        return sorted(name for name in found if name.startswith(prefix) and not is_hidden(name))

    def delete(self, name: str) -> None:
        target = self._path(name)
        with suppress(FileNotFoundError):
            target.unlink()
            sync_folder(target.parent)

    def _path(self, name: str) -> Path:
        return self._root.joinpath(*checked_name(name, self._root).split("/"))

    def _make_folder(self, folder: Path) -> None:
        """Makes a folder durable, even one whose creator was killed before it could sync it."""
        if folder in self._durable:
            return
        make_folder(folder)
        for each in (folder, *folder.parents):
            sync_folder(each.parent)
            self._durable.add(each)
            if each == self._root:
                break


def files_in(folder: Path) -> Files:
    """The files of a folder, wherever it is."""
    if isinstance(folder, ObjectPath):
        found: Files = folder.store.files(folder.key)
        return found
    return LocalFiles(folder)


def swap(files: Files, name: str, data: bytes, read: Stored | None) -> bool:
    """Writes a file if it still is as it was read; returns whether it was.

    Args:
        files: where it is.
        name: of the file.
        data: its new content.
        read: what `Files.get` has said of it; None: it was not there, and must not be there now.
    """
    return files.put_if_absent(name, data) if read is None else files.replace(name, data, read.version)


def local_side(path: Path) -> Path:
    """Where what belongs to a file or folder lies on this machine, if it need not last; a local path itself."""
    return path.local if isinstance(path, ObjectPath) else path


class _Writing(threading.local):
    """What this thread has begun to write into object stores; None: each write is waited for."""

    begun: list[Future[bool]] | None = None


_writing = _Writing()


@contextmanager
def side_by_side() -> Iterator[None]:
    """New files that the block writes into an object store (`write_new`) are written at the same time.

    They are there when the block has ended, unless it raises.
    """
    begun: list[Future[bool]] = []
    _writing.begun = begun
    try:
        yield
    finally:
        _writing.begun = None
        wait(begun)
    for each in begun:
        if not each.result():
            raise FileExistsError("a file that was to be new is there")


def write_new(path: Path, content: Any) -> None:
    """Writes a file under a name that was never used; `sync` makes it durable. Creates its folder.

    Args:
        path: the file.
        content: its bytes, or a buffer of them.

    Raises:
        FileExistsError: there is such a file.
    """
    if isinstance(path, ObjectPath):
        if _writing.begun is not None:
            _writing.begun.append(_threads().submit(path.store.put_if_absent, path.key, bytes(content)))
        elif not path.store.put_if_absent(path.key, bytes(content)):
            raise FileExistsError(f"{path} is there")
        return
    try:
        file = path.open("xb")
    except FileNotFoundError:
        make_folder(path.parent)
        file = path.open("xb")
    with file:
        file.write(content)


def link(source: Path, target: Path) -> None:
    """Gives a second name to a file that never changes; makes a copy if a link is impossible, as on another disk.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        if not source.store.copy(source.key, target.key):
            raise FileNotFoundError(f"{source} is not there")
    elif isinstance(target, ObjectPath):
        target.store.upload(target.key, source)
    elif isinstance(source, ObjectPath):
        write_new(target, source.read_bytes())
    else:
        make_folder(target.parent)
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(source, target)


def link_all(pairs: Iterable[tuple[Path, Path]]) -> None:
    """As `link`, for several files; those of an object store are copied side by side."""
    begun = [_threads().submit(link, source, target) for source, target in pairs]
    wait(begun)
    for each in begun:
        each.result()


@contextmanager
def written_here(target: Path) -> Iterator[Path]:
    """Where a library that only knows local files writes a file; it gets its place when the block has ended.

    Of an object store, nothing is there if the block raises, or has written nothing.
    """
    if not isinstance(target, ObjectPath):
        yield target
        return
    place = local_side(target)
    make_folder(place.parent, durable=False)
    try:
        yield place
        if place.exists():
            link(place, target)
    finally:
        place.unlink(missing_ok=True)


def contents(paths: Iterable[Path]) -> Iterator[bytes]:
    """The contents of files, in order; some of an object store are read ahead.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    ahead: deque[Future[bytes]] = deque()
    for path in paths:
        if not isinstance(path, ObjectPath):
            yield path.read_bytes()
            continue
        ahead.append(_threads().submit(path.read_bytes))
        if len(ahead) > _AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def part(path: Path, start: int, size: int) -> bytes:
    """Some bytes of a file, fewer if it ends before; of an object store, no others are read.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if size == 0:
        return b""
    if isinstance(path, ObjectPath):
        if (data := path.store.read_part(path.key, start, size)) is None:
            raise FileNotFoundError(f"{path} is not there")
        return data
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def opened(path: Path) -> BinaryIO:
    """A file for reading, to be closed; of an object store, only the parts that are asked for are read.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return io.BufferedReader(_Parts(path), _PART_BYTES) if isinstance(path, ObjectPath) else path.open("rb")


class _Parts(io.RawIOBase):
    """A file of an object store, from any position."""

    def __init__(self, path: ObjectPath) -> None:
        self._path, self._size, self._position = path, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = part(self._path, self._position, min(len(buffer), max(0, self._size - self._position)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def sizes(paths: Sequence[Path]) -> list[int | None]:
    """The sizes of files in bytes; None: it does not exist."""
    if any(isinstance(path, ObjectPath) for path in paths):
        return list(_threads().map(_size, paths))
    return [_size(path) for path in paths]


def delete(paths: Iterable[Path]) -> int:
    """Removes files, if they exist; returns how many did, or were to be removed where nobody says so."""
    found = list(paths)
    in_store: dict[str, list[ObjectPath]] = {}
    for path in found:
        if isinstance(path, ObjectPath):
            in_store.setdefault(path.bucket, []).append(path)
    for paths_of_bucket in in_store.values():
        paths_of_bucket[0].store.delete([path.key for path in paths_of_bucket])
    deleted = sum(map(len, in_store.values()))
    for path in found:
        if not isinstance(path, ObjectPath):
            with suppress(FileNotFoundError):
                path.unlink()
                deleted += 1
    return deleted


def remove_tree(folder: Path, *, strict: bool = False) -> None:
    """Removes a folder with all that is in it, as far as it can; `strict`: or raises `OSError`."""
    if isinstance(folder, ObjectPath):
        folder.store.delete([path.key for path, _ in folder.files()])
    else:
        shutil.rmtree(folder, ignore_errors=not strict)


def walk(folder: Path, *, skip: Collection[str] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """All files below a folder, with size and time.

    Args:
        folder: if it does not exist, there are none.
        skip: first letters or names of the folders in it that are left out, at any depth.
    """
    if isinstance(folder, ObjectPath):
        for found, about in folder.files():
            if not any(part.startswith(tuple(skip)) for part in found.relative_to(folder).parts[:-1]):
                yield found, about
        return
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith(tuple(skip)))
        for name in sorted(names):
            path = Path(place, name)
            yield path, path.stat()


def replace_file(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Writes a file atomically: readers see the old content or the new one. Creates its folder.

    Args:
        path: the file.
        content: the whole new content.
        mode: permissions of the file before the process's umask; 0o600 for a secret.
        durable: the new content is on the disk when this returns; otherwise a loss of power may leave any content.
    """
    if isinstance(path, ObjectPath):
        path.write_bytes(content)
        return
    make_folder(path.parent, durable=durable)
    temporary = _temporary(path)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
            handle.write(content)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def lock(file: int | IO[Any], *, shared: bool = False, patience_s: float = 0.0) -> bool:
    """Takes the lock of an open file, which everybody who opens it sees; returns whether it got the lock.

    The lock ends with `unlock`, or when the file is closed, at the latest with the process and its forks. A process
    that is suspended keeps it.

    Args:
        file: an open file, in any mode.
        shared: allow others that also share the lock.
        patience_s: how long to wait for it; `math.inf`: until it is free.
    """
    import fcntl  # only Unix has it; DSL, test driver and new projects need no locks

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if patience_s == math.inf:
        fcntl.flock(file, kind)
        return True
    end: float | None = None
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            end = clock.ticks_s() + patience_s if end is None else end
            if clock.ticks_s() >= end:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True


def unlock(file: int | IO[Any]) -> None:
    """Lets go of the lock of a file that stays open."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Admits one thread of all processes to the block at a time; others wait. The lock ends with the process.

    Args:
        path: a folder, or a file, which is created if it does not exist and keeps its content. Of an object store, only
            processes of this machine are meant.
    """
    place = local_side(path)
    if place is not path:
        make_folder(place, durable=False)
    handle = os.open(place, os.O_RDONLY if place.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        lock(handle, patience_s=math.inf)
        yield
    finally:
        os.close(handle)


def sync(paths: Iterable[Path]) -> None:
    """Makes the contents and names of files durable: first all files in parallel, then all folders.

    Raises:
        FileNotFoundError: a local file does not exist.
    """
    files = [path for path in paths if not isinstance(path, ObjectPath)]
    for group in (files, sorted({file.parent for file in files})):
        if len(group) == 1:
            _sync(group[0])
        elif group:
            list(_threads().map(_sync, group))


def sync_folder(folder: Path) -> None:
    """Makes changes to the names in a folder durable: files created, renamed, linked or removed."""
    if not isinstance(folder, ObjectPath):
        _sync(folder)


def make_folder(folder: Path, *, durable: bool = True) -> None:
    """Makes a folder and its parents, durably by default."""
    if isinstance(folder, ObjectPath):
        return
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()] if durable else []
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


@cache
def _threads() -> ThreadPoolExecutor:
    """The thread pool of this process; a fork does not inherit its threads."""
    return ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="sync")


os.register_at_fork(after_in_child=_threads.cache_clear)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _written(target: Path, data: bytes) -> Iterator[Path]:
    """A temporary synced file with the content, in the target's folder; removed afterwards."""
    temporary = _temporary(target)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


def is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def checked_name(name: str, where: object) -> str:
    """The name of a file for `Files`.

    Raises:
        ValueError: it is none; says of `where`.
    """
    if "" in name.split("/") or "\0" in name or is_hidden(name):
        raise ValueError(f"{name!r} is not the name of a file below {where}")
    return name
