"""How a driver ended, written by itself as its last act: who launched it may be gone and cannot wait for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.clock import Sign
from deltaworks.control import damaged
from deltaworks.files import replace_file


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one generation. A driver that was killed leaves none."""

    generation: int
    exit_code: int
    """One of `deltaworks.exits`."""
    reason: str | None = None
    """What went wrong; None if nothing did."""
    at: float
    """Unix seconds."""
    sign: Sign | None = None
    """The same moment, for who asks how long ago that was."""


def write(path: Path, generation: int, exit_code: int, reason: str | None) -> None:
    """Replaces the file atomically and durably: whether to restart depends on it."""
    sign = Sign.now()
    outcome = Outcome(generation=generation, exit_code=exit_code, reason=reason, at=sign.wall_s, sign=sign)
    replace_file(path, msgspec.json.encode(outcome), durable=True)


def read(path: Path) -> Outcome | None:
    """What a generation said; None if it said nothing, or nothing that can be read."""
    return damaged.read_json(path, Outcome)


def sign_of(word: Outcome) -> Sign:
    """When it was, for who asks how long ago."""
    return word.sign or Sign.of(word.at)
