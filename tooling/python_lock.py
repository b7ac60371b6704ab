"""The locks of Python packages: `constraints.txt`, and those of build tools, of SeaweedFS and of Go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LOCKS = (
    "constraints.txt",
    *(f"infra/{name}-constraints.txt" for name in ("build", "seaweedfs", "go")),
)
_ENTRY = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\\n]+)([^\n]*(?:\n +--hash=\S+[^\n]*)*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Package:
    """One entry of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each of its files."""


def read(root: Path) -> tuple[Package, ...]:
    """The packages of all locks, in order; a package may appear in several versions for different Pythons."""
    return tuple(sorted({package for file in LOCKS for package in parse((root / file).read_text())}))


def parse(text: str) -> tuple[Package, ...]:
    """The entries of one lock."""
    return tuple(
        Package(name, version, tuple(sorted(_HASH.findall(rest)))) for name, version, rest in _ENTRY.findall(text)
    )
