"""Full disks: how they show in the errors of all writers, and the error that they become.

`told` wraps the driver, its batches and its workers, so it covers every write below it. It only reports: each writer
removes its own partial output, and a supervisor restarts the stream until there is room.
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
"""Modules whose errors are recognised by their text. Other errors may quote a record, which can hold any text."""
_IN_SPARK = re.compile(
    r"^.*\b(?:\w*IOException|FSError|FileSystemException)\b.*(?:No space left|quota exceeded).*$", re.M
)
_LMDB = ("DiskError", "MapFullError")
_BROKER = (56, 57)
"""`KAFKA_STORAGE_ERROR` and `LOG_DIR_NOT_FOUND`; a broker with a broken disk answers with them, too."""
_LEAST_BYTES, _LEAST_FILES = 1 << 20, 16
_HINT = "free some space or use a larger disk; no record is lost, and the stream is restarted until there is room"


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Raises `DiskFullError` in place of any error that reports a full disk.

    Args:
        folder: where the block writes, for errors that do not say it.
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
    """The error to raise if a full disk caused another error; None if it did not."""
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
            return DiskFullError(f"The disk of {path} is full: {free(path)} ({at}).", hint=_HINT)
        at = at.__cause__ or at.__context__
    return None


def spark_error(text: str) -> DiskFullError | None:
    """The error to raise if Spark reports a full disk for its own writes: checkpoint, state, shuffle."""
    found = _IN_SPARK.search(text)
    if found is None:
        return None
    return DiskFullError(f"A disk that Spark writes to is full: {found[0].strip()[:300]}", hint=_HINT)


def is_full(path: Path) -> bool:
    """Whether the disk has no room even for the outcome of a driver."""
    found = os.statvfs(_there(path))
    return found.f_bavail * found.f_frsize < _LEAST_BYTES or (found.f_files > 0 and found.f_favail < _LEAST_FILES)


def free(path: Path) -> str:
    """The free space, for people."""
    try:
        found = os.statvfs(_there(path))
    except OSError as error:
        return f"free space unknown: {error}"
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
    """The code of an exception or error of the Kafka client, without importing the client."""
    if type(error).__name__ not in ("KafkaException", "KafkaError", "ConsumeError", "ProduceError"):
        return None
    about = error.args[0] if error.args and hasattr(error.args[0], "code") else error
    code = getattr(about, "code", None)
    return code() if callable(code) else None


def _there(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
