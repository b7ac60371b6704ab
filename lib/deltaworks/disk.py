"""A disk without room: what it looks like in the errors of everybody who writes, and what becomes of it.

`told` stands around the driver, its batches and its workers, so that each write below it is covered. It tells; whoever
writes removes what it has written by half, and a supervisor starts the stream again until there is room.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks.errors import DiskFullError

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_TEXTS = ("No space left on device", "Disk quota exceeded", "(os error 28)", "(os error 122)")
_WRITERS = ("deltalake", "pyarrow", "py4j", "pyspark")
"""Whose errors are believed by their text. A record may hold any text, and errors quote records."""
_IN_SPARK = re.compile(
    r"^.*\b(?:\w*IOException|FSError|FileSystemException)\b.*(?:No space left|quota exceeded).*$", re.M
)
_LMDB = ("DiskError", "MapFullError")
_BROKER = (56, 57)
"""`KAFKA_STORAGE_ERROR`, `LOG_DIR_NOT_FOUND`: also what a broker says whose disk is broken."""
_LEAST_BYTES, _LEAST_FILES = 1 << 20, 16
_HINT = "make room, or a larger disk; no record is lost, and the stream is started again until there is room"


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Raises `DiskFullError` in the place of whatever says that a disk has no room.

    Args:
        folder: where the block writes, if the error does not say it.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        found = as_error(error, folder)
        if found is None:
            raise
        raise found from error


def as_error(error: BaseException, folder: Path) -> DiskFullError | None:
    """The error to raise if a disk without room is the reason of another one; None: it is not."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, DiskFullError):
            return at
        if (code := _kafka_code(at)) in _BROKER:
            return DiskFullError(f"Kafka's broker cannot write to its disk (error {code}: {at}).", hint=_HINT)
        if _says_full(at):
            name = at.filename if isinstance(at, OSError) else None
            path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else folder
            return DiskFullError(f"There is no room on the disk of {path}: {free(path)} ({at}).", hint=_HINT)
        at = at.__cause__ or at.__context__
    return None


def spark_error(text: str) -> DiskFullError | None:
    """Likewise for what Spark says of its own writes: checkpoint, state, shuffle."""
    found = _IN_SPARK.search(text)
    if found is None:
        return None
    return DiskFullError(f"There is no room on a disk that Spark writes to: {found[0].strip()[:300]}", hint=_HINT)


def is_full(path: Path) -> bool:
    """Whether not even the last word of a driver would find room there."""
    found = os.statvfs(_there(path))
    return found.f_bavail * found.f_frsize < _LEAST_BYTES or (found.f_files > 0 and found.f_favail < _LEAST_FILES)


def free(path: Path) -> str:
    """How much room there is, for people."""
    try:
        found = os.statvfs(_there(path))
    except OSError as error:
        return f"nobody knows how much is free: {error}"
    text = f"{found.f_bavail * found.f_frsize / 1e6:.0f} MB of {found.f_blocks * found.f_frsize / 1e6:.0f} MB are free"
    return f"{text}, for {found.f_favail} files" if found.f_files else text


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    kind = type(error)
    if kind.__module__.partition(".")[0] == "lmdb" and kind.__name__ in _LMDB:
        return True
    writes = isinstance(error, OSError) or kind.__module__.partition(".")[0] in _WRITERS
    return writes and any(text in str(error) for text in _TEXTS)


def _kafka_code(error: BaseException) -> int | None:
    """Of an exception of the client, or of one of its errors, without importing it."""
    if type(error).__name__ not in ("KafkaException", "KafkaError", "ConsumeError", "ProduceError"):
        return None
    about = error.args[0] if error.args and hasattr(error.args[0], "code") else error
    code = getattr(about, "code", None)
    return code() if callable(code) else None


def _there(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
