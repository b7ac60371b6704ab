"""The outcome of a driver, which it writes as its last act: its launcher may be gone and cannot wait for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.clock import Sign
from deltaworks.control import damaged
from deltaworks.files import replace_file


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one generation; a killed driver leaves no outcome."""

    generation: int
    exit_code: int
    """One of `deltaworks.exits`."""
    reason: str | None = None
    """The error; None if there was none."""
    at: float
    """Unix seconds."""
    sign: Sign | None = None
    """The same moment, to compute its age."""


def write(path: Path, generation: int, exit_code: int, reason: str | None) -> None:
    """Replaces the file atomically and durably: whether to restart depends on it."""
    sign = Sign.now()
    outcome = Outcome(generation=generation, exit_code=exit_code, reason=reason, at=sign.wall_s, sign=sign)
    replace_file(path, msgspec.json.encode(outcome), durable=True)


def read(path: Path) -> Outcome | None:
    """The outcome of a generation; None if it left none or it is unreadable."""
    return damaged.read_json(path, Outcome)


def sign_of(word: Outcome) -> Sign:
    """When the driver ended, to compute its age."""
    return word.sign or Sign.of(word.at)
