"""When tasks have something to do without records: written by the driver, read by the planner in another process."""

from __future__ import annotations

from pathlib import Path

from deltaworks.files import replace_file

_NEVER = "never"


def write(path: Path, due_ms: int | None) -> None:
    """Replaces the file atomically; None: never, before there are records."""
    replace_file(path, f"{_NEVER if due_ms is None else due_ms}\n".encode())


def read(path: Path) -> int | None:
    """When the next tick is due, on the wall clock; None: never. What is missing or cannot be read is due now."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return 0
    if text == f"{_NEVER}\n":
        return None
    number = text.removesuffix("\n")
    return int(number) if text.endswith("\n") and number.isdecimal() and number.isascii() else 0
