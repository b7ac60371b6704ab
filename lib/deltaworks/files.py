"""Files that others read while they are written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes a file whose readers see the old content or the new one, never a part; makes its folder.

    Args:
        path: the file.
        content: all of it.
        mode: permissions of the file before the process's umask; 0o600 for a secret.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
        handle.write(content)
    temporary.replace(path)
