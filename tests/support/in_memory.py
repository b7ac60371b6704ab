"""Folders in memory, where nothing waits for a disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 8_000_000_000


def memory() -> Path | None:
    """Where folders are in memory; None: there is no such place, or too little room."""
    fits = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    return _MEMORY if fits else None


def temporary_folder(prefix: str) -> TemporaryDirectory[str]:
    """A folder for a `with`: in memory, or else where temporary folders are."""
    return TemporaryDirectory(prefix=prefix, dir=memory())
