"""How a user gets into a component of the stack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The login for a component."""

    url: str
    user: str
    password: str
    file: Path
    """The file with the password."""
    created_now: bool
    """Whether they are new, so nobody has seen them yet."""

    def __repr__(self) -> str:
        return f"Credentials({self.url!r}, {self.user!r}, password in {self.file})"
