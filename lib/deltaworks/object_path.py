"""Paths of an object store: a `Path` such as `s3://lake/tables/order_counts`, whose methods ask the store.

So code that names, lists, reads and writes whole files works in a folder and in a bucket. What an object store does not
have, a path of one refuses: it is no path of the operating system (`os.fspath`), and files are not opened for writing.
`files` has what is done differently: links, folders, locks and trees.

A process has to be told how a bucket is reached (`connect`). A path that is sent to another process tells it.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import Any, NoReturn, Protocol

SCHEME = "s3:"
_WILDCARD = re.compile(r"\*\*/|[*?]|\[!?[^]/]+\]")


@dataclass(frozen=True, slots=True)
class About:
    """What a store says of an object."""

    size_bytes: int
    modified_s: float
    """Unix time, by the clock of the store, in whole seconds."""


class Bucket(Protocol):
    """The requests that paths of a bucket make. Each is durable when it returns, and is repeated until it is answered.

    All of them raise `TransientError` if the store does not answer, and `ConfigurationError` if it refuses us.
    """

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, whether there is one or not."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes an object unless there is one; returns whether it was written."""

    def upload(self, key: str, file: Path) -> None:
        """Writes an object with the content of a local file."""

    def read(self, key: str) -> bytes | None:
        """The content of an object; None: there is none."""

    def read_part(self, key: str, start: int, size: int) -> bytes | None:
        """Some bytes of an object, fewer if it ends before; None: there is none."""

    def about(self, key: str) -> About | None:
        """Size and time of an object; None: there is none."""

    def children(self, prefix: str) -> tuple[list[str], list[str]]:
        """The names directly below a prefix that ends with `/`, sorted: first those with others below, then objects."""

    def keys(self, prefix: str) -> Iterator[tuple[str, About]]:
        """All objects whose keys begin with a prefix, in the order of their keys."""

    def copy(self, key: str, to: str) -> bool:
        """Copies an object within the store; returns False if there is none."""

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, if they are there."""

    def end_uploads(self, prefix: str) -> int:
        """Ends uploads in parts to keys that begin with a prefix, whoever makes them; returns how many there were."""

    def keeps_versions(self) -> bool:
        """Whether the store keeps objects that were replaced or deleted, or has kept them once."""

    def files(self, prefix: str) -> Any:
        """The `files.Files` below a prefix."""

    def options(self) -> dict[str, str]:
        """How delta-rs reaches it."""

    def arrow(self) -> dict[str, Any]:
        """How Arrow reaches it: arguments of `pyarrow.fs.S3FileSystem`."""

    def hadoop(self) -> dict[str, str]:
        """How Hadoop reaches it: its settings, with secrets."""


class Access(Protocol):
    """How buckets are reached; can be sent to other processes."""

    def bucket(self, name: str) -> Bucket:
        """A bucket, for one process."""


requests: Counter[str] = Counter()
"""What this process has asked of object stores, such as `PUT`, since `take_requests`; attempts count."""


def take_requests() -> dict[str, int]:
    """The requests since the last call, by kind."""
    taken = dict(requests)
    requests.clear()
    return taken


_known: dict[str, tuple[Access, Path]] = {}


def is_address(text: str) -> bool:
    """Whether a text is the address of a place in an object store."""
    return text.startswith(f"{SCHEME}//")


def connect(address: str, access: Access, local: Path) -> ObjectPath:
    """Tells this process how a bucket is reached.

    Args:
        address: `s3://<bucket>/<prefix>`.
        access: how.
        local: a folder of this machine for what belongs to the files of the bucket and need not last.

    Returns:
        The path of the address.
    """
    path = ObjectPath(address)
    if _known.get(path.bucket) != (access, local):
        _known[path.bucket] = access, local
        _bucket.cache_clear()
    return path


def access_of(path: ObjectPath) -> tuple[Access, Path]:
    """What `connect` was told of the bucket of a path."""
    try:
        return _known[path.bucket]
    except KeyError:
        raise LookupError(f"{path} lies in an object store that nobody has told this process how to reach") from None


def place_below(folder: Path, *paths: Path) -> None:
    """Puts what belongs to the files of some stores, and need not last, below another folder of this machine.

    Args:
        folder: of this machine.
        paths: of the stores; others stay where they are.
    """
    for path in paths:
        if isinstance(path, ObjectPath):
            connect(str(path), access_of(path)[0], folder)


@lru_cache
def _bucket(name: str) -> Bucket:
    """One per process: a client must not be used on both sides of a fork."""
    return access_of(ObjectPath(f"{SCHEME}//{name}"))[0].bucket(name)


os.register_at_fork(after_in_child=_bucket.cache_clear)


class ObjectPath(PosixPath):
    """A path of an object store, `s3://<bucket>/<key>`.

    A folder is what keys have in common up to a `/`. It exists as long as something is in it.
    """

    __slots__ = ()

    @property
    def bucket(self) -> str:
        return self.parts[1]

    @property
    def key(self) -> str:
        return "/".join(self.parts[2:])

    @property
    def store(self) -> Bucket:
        """The bucket, to make requests of."""
        return _bucket(self.bucket)

    @property
    def local(self) -> Path:
        """The place on this machine for what belongs to a file or folder and need not last."""
        return access_of(self)[1] / self.bucket / self.key

    def __str__(self) -> str:
        text = super().__str__()
        return f"{SCHEME}//{text[len(SCHEME) + 1 :]}" if text.startswith(f"{SCHEME}/") else text

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is a path of an object store, not of this machine")

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process is told how the bucket is reached."""
        known = _known.get(self.bucket) if self.parts[:1] == (SCHEME,) else None
        return (type(self), (str(self),)) if known is None else (connect, (str(self), *known))

    def absolute(self) -> ObjectPath:
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size and time of the object."""
        if (found := self.store.about(self.key)) is None:
            raise FileNotFoundError(f"{self} is not there")
        return _as_stat(found)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self.key) and self.store.about(self.key) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return next(self.store.keys(self._below), None) is not None

    def is_symlink(self) -> bool:
        return False

    def read_bytes(self) -> bytes:
        if (data := self.store.read(self.key)) is None:
            raise FileNotFoundError(f"{self} is not there")
        return data

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        """Writes the object, durably."""
        self.store.put(self.key, bytes(data))
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        if not self.store.put_if_absent(self.key, b"") and not exist_ok:
            raise FileExistsError(f"{self} is there")

    def open(self, mode: str = "r", *args: Any, **options: Any) -> Any:
        """The whole content, for reading only."""
        if mode == "rb":
            return io.BytesIO(self.read_bytes())
        if mode == "r":
            return io.StringIO(self.read_text())
        raise io.UnsupportedOperation(f"{self} is in an object store, which writes whole files: {mode!r}")

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and not self.is_file():
            raise FileNotFoundError(f"{self} is not there")
        self.store.delete([self.key])

    def rename(self, target: Any) -> Any:
        """Copies the object, then removes it here; whoever is interrupted may do it again."""
        if not self.store.copy(self.key, target.key):
            raise FileNotFoundError(f"{self} is not there")
        self.store.delete([self.key])
        return target

    replace = rename

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: a folder is there when something is in it."""

    def iterdir(self) -> Generator[ObjectPath, None, None]:
        folders, objects = self.store.children(self._below)
        if not folders and not objects and self.key:
            raise FileNotFoundError(f"{self} is not there")
        yield from (self / name for name in sorted({*folders, *objects}))

    def glob(self, pattern: str, **options: Any) -> Generator[ObjectPath, None, None]:
        """The files (not the folders) that a pattern matches."""
        fixed = pattern.split("/")
        first = next((at for at, part in enumerate(fixed) if _WILDCARD.search(part)), len(fixed) - 1)
        begin = self.joinpath(*fixed[:first])
        texts, wildcards = _WILDCARD.split(pattern), [*_WILDCARD.findall(pattern), ""]
        wanted = re.compile("".join(map(_regular, texts, wildcards)))
        yield from (path for path, _ in begin.files() if wanted.fullmatch(path.key[len(self._below) :]))

    def rglob(self, pattern: str, **options: Any) -> Generator[ObjectPath, None, None]:
        return self.glob(f"**/{pattern}")

    def files(self) -> Iterator[tuple[ObjectPath, os.stat_result]]:
        """All files below, with size and time, in the order of their paths."""
        for key, about in self.store.keys(self._below):
            if not key.endswith("/"):  # which stands for a folder
                yield ObjectPath(f"{SCHEME}//{self.bucket}/{key}"), _as_stat(about)

    @property
    def _below(self) -> str:
        """How the keys of what is in it begin."""
        return f"{self.key}/" if self.key else ""


def path_of(text: str) -> Path:
    """The path that a text names, in an object store or on this machine."""
    return ObjectPath(text) if is_address(text) else Path(text)


def _regular(text: str, wildcard: str) -> str:
    known = {"": "", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.escape(text) + known.get(wildcard, wildcard.replace("[!", "[^"))


def _as_stat(about: About) -> os.stat_result:
    seconds = about.modified_s
    return os.stat_result((0o100600, 0, 0, 1, 0, 0, about.size_bytes, seconds, seconds, seconds))
