"""The time of the next tick, when tasks have work without records; the driver writes it, the planner reads it."""

from __future__ import annotations

from pathlib import Path

from deltaworks.files import replace_file

_NEVER = "never"


def write(path: Path, due_ms: int | None) -> None:
    """Replaces the file atomically; None: not before there are records."""
    replace_file(path, f"{_NEVER if due_ms is None else due_ms}\n".encode())


def read(path: Path) -> int | None:
    """When the next tick is due, on the wall clock; None: never. A missing or unreadable file means now."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return 0
    if text == f"{_NEVER}\n":
        return None
    number = text.removesuffix("\n")
    return int(number) if text.endswith("\n") and number.isdecimal() and number.isascii() else 0
