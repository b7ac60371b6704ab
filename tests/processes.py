"""What tests ask about processes."""

from __future__ import annotations

import psutil


def is_gone(process: psutil.Process | int) -> bool:
    """Whether it runs no more. One that still waits for its parent is gone: an orphan's new parent may be slow."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return not found.is_running() or found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
