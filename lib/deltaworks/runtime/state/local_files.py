"""The folder of a local store: whether what lies in it may be believed, before LMDB looks at it.

LMDB maps its file, so a page that is missing or wrong is not an error but a signal, or an answer that is not true. It
also does not wait for the disk, so after a crash of the operating system some pages are there and some are not. Hence
each folder has a note of the machine's boot and of the format, and is believed only in that boot.
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
"""Of entries, header and note."""
DATA = "data.mdb"
_NOTE = "made.json"


class Note(msgspec.Struct, frozen=True):
    """Which folder this is."""

    format: int
    boot: str | None
    """Of the machine; None: every commit waits for the disk, so a crash leaves nothing half."""


def prepare(path: Path, *, durable: bool) -> None:
    """Makes the folder of a store, or says that the one that is there may be opened.

    Args:
        path: of the folder.
        durable: commits wait for the disk.

    Raises:
        StateError: what is there is of another boot or format, or does not say what it is.
    """
    boot = None if durable else processes.boot_id()
    found = _read(path / _NOTE)
    if found is None and _made(path, Note(FORMAT, boot)):
        return
    found = found or _read(path / _NOTE)
    if found is None:
        raise doubt(path, "nothing says how it was made")
    if found.format != FORMAT:
        raise doubt(path, f"it has format {found.format}, and this version reads format {FORMAT}")
    if not same_boot(found.boot, boot):
        raise doubt(path, "the machine was started again since it was written")


def same_boot(found: str | None, now: str | None) -> bool:
    """Whether what was written then is what is there now."""
    return found in (None, now)


def distrust(path: Path) -> None:
    """Nobody opens a copy again, in this process or another, without throwing it away."""
    found = _read(path / _NOTE)
    if found is not None and found.boot is not None:
        (path / _NOTE).unlink(missing_ok=True)


def is_trusted(path: Path) -> bool:
    """Nobody has distrusted it."""
    return (path / _NOTE).exists()


def identity(path: Path) -> tuple[int, int] | None:
    """Which data file is there; None: none."""
    try:
        found = (path / DATA).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def require_whole(path: Path, size_bytes: int) -> None:
    """Raises `StateError` if the data file is smaller than it says; to read beyond its end would end the process."""
    found = (path / DATA).stat().st_size
    if found < size_bytes:
        raise doubt(path, f"{found:,} of {size_bytes:,} bytes are there")


def extend(path: Path, size_bytes: int) -> None:
    """Makes the data file as large as it says: LMDB does not write pages that it has taken and given back at once."""
    data = path / DATA
    with suppress(OSError):  # then it is taken for one that was cut off, some day
        if data.stat().st_size < size_bytes:
            with data.open("r+b") as file:
                # If another process has made it larger meanwhile, so it stays.
                os.posix_fallocate(file.fileno(), size_bytes - 1, 1)


def discard(path: Path) -> None:
    """Removes the local copy of one task. Who has it open goes on with a file that nobody else sees."""
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
        hint="a stream fills it again by itself; the stores of a replay are nowhere else, so start it anew",
    )


def _made(path: Path, note: Note) -> bool:
    """False: there is a folder already, and it is not empty."""
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
