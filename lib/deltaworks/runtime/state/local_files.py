"""The folder of a local store: decides whether its files can be trusted, before LMDB opens them.

LMDB maps its file, so a missing or damaged page does not raise an error: it causes a signal or a wrong answer. LMDB
does not wait for the disk either, so a crash of the operating system may lose some pages and keep others. So each
folder has a note of the machine's boot and of the format, and is trusted only in that boot.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from deltaworks import processes
from deltaworks.errors import StateError
from deltaworks.files import replace_file

FORMAT = 2
"""The format of entries, header and note."""
DATA = "data.mdb"
WRITER = "writer"
"""Its lock is held by the process that writes."""
_NOTE = "made.json"


class Note(msgspec.Struct, frozen=True):
    """Which folder this is."""

    format: int
    boot: str | None
    """Boot id of the machine; None: every commit waits for the disk, so a crash leaves nothing half-written."""


def prepare(path: Path, *, durable: bool) -> None:
    """Creates the folder of a store, or checks that an existing one may be opened.

    Args:
        path: the folder.
        durable: commits wait for the disk.

    Raises:
        StateError: an existing folder is of another boot or format, or has no note.
    """
    boot = None if durable else processes.boot_id()
    found = _read(path / _NOTE)
    if found is None and _made(path, Note(FORMAT, boot)):
        return
    _require_same(path, found or _read(path / _NOTE), boot)


def require_intact(path: Path) -> None:
    """Raises `StateError` if a store that another process keeps does not exist, or may not be opened."""
    _require_same(path, _read(path / _NOTE), processes.boot_id())


def _require_same(path: Path, found: Note | None, boot: str | None) -> None:
    if found is None:
        raise doubt(path, "it does not say how it was made")
    if found.format != FORMAT:
        raise doubt(path, f"it has format {found.format}, and this version reads format {FORMAT}")
    if not same_boot(found.boot, boot):
        raise doubt(path, "the machine was restarted since it was written")


def same_boot(found: str | None, now: str | None) -> bool:
    """Whether what was written is intact: it was durable (`found` is None), or the machine has not been restarted."""
    return found in (None, now)


def distrust(path: Path) -> None:
    """Marks a copy, so that no process opens it again without throwing it away."""
    found = _read(path / _NOTE)
    if found is not None and found.boot is not None:
        (path / _NOTE).unlink(missing_ok=True)


def is_trusted(path: Path) -> bool:
    """Whether nobody has distrusted it."""
    return (path / _NOTE).exists()


def identity(path: Path) -> tuple[int, int] | None:
    """Identifies the data file; None: there is none."""
    try:
        found = (path / DATA).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def require_whole(path: Path, size_bytes: int) -> None:
    """Raises `StateError` if the data file is smaller than it should be: reads past its end would end the process."""
    found = (path / DATA).stat().st_size
    if found < size_bytes:
        raise doubt(path, f"{found:,} of {size_bytes:,} bytes are there")


def extend(path: Path, size_bytes: int) -> None:
    """Grows the data file to its nominal size: LMDB does not write pages that it has taken and given back at once."""
    data = path / DATA
    with suppress(OSError):  # then a later check takes it for a file that was cut off
        if data.stat().st_size < size_bytes:
            with data.open("r+b") as file:
                # If another process has made it larger meanwhile, it stays so.
                os.posix_fallocate(file.fileno(), size_bytes - 1, 1)


def discard(path: Path) -> None:
    """Removes the local copy of one task. A process that has it open goes on with a file that nobody else sees."""
    gone = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def doubt(path: Path, why: str) -> StateError:
    """The error for a store that cannot be trusted."""
    return StateError(
        f"The local store {path} cannot be trusted: {why}.",
        hint="a stream fills it again by itself; nothing else has the stores of a replay, so start that again",
    )


def _made(path: Path, note: Note) -> bool:
    """Creates the folder with its note; False: it exists and is not empty."""
    made = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    replace_file(made / _NOTE, msgspec.json.encode(note), durable=note.boot is None)
    try:
        made.rename(path)
    except OSError:
        shutil.rmtree(made)
        return False
    return True


def _read(path: Path) -> Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
