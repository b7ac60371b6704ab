"""Handles expendable files that a loss of power, a full disk or a person left empty or torn.

Files that must not be lost are written durably (`files`); their readers refuse damaged ones.
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
    """The content of an expendable file; None if it is missing, empty, torn, or from another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def set_aside(path: Path, reason: object) -> None:
    """Keeps an unreadable file for inspection, under a name that no code reads."""
    aside = path.with_name(path.name + SUFFIX)
    try:
        path.replace(aside)
    except FileNotFoundError:
        return
    _log.warning("%s cannot be read (%s); it is now %s", path, reason, aside.name)
