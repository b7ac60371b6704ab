"""Looks for secrets in what a run has written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def files_below(*folders: Path) -> list[Path]:
    """All files in these folders and below."""
    return [file for folder in folders for file in folder.rglob("*") if file.is_file()]


def holding(files: Iterable[Path], *secrets: str) -> list[str]:
    """Those that have one of the secrets in them."""
    wanted = [secret.encode() for secret in secrets]
    return [str(file) for file in files if any(secret in file.read_bytes() for secret in wanted)]
