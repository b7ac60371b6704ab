"""Files that a loss of power, a full disk or a hand left empty or torn: what is done about those that may be lost.

What must not be lost is written durably (`files`), and refused where it is read if it is damaged all the same.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
SUFFIX = ".unreadable"
_log = logging.getLogger(__name__)


def read_json(path: Path, kind: type[T]) -> T | None:
    """What a file that may be lost says; None if it is not there, empty, torn, or another version wrote it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def set_aside(path: Path, reason: object) -> None:
    """Keeps a file that cannot be read for whoever wants to look, under a name that nobody reads."""
    aside = path.with_name(path.name + SUFFIX)
    try:
        path.replace(aside)
    except FileNotFoundError:
        return
    _log.warning("%s cannot be read (%s); it is now %s", path, reason, aside.name)
