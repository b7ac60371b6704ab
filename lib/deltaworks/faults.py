"""Named points around every step of a batch, where a test can make the process fail.

`reach` is a no-op unless `arm` was called in the process. Production code only calls `reach`; what a test does with
the points lies in `tests/support/fault_hooks.py`, and gets into driver and workers through the fault hook of the
settings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Announces that `point` has been reached."""
    if _hook is not None:
        _hook(point)


def arm(hook: Callable[[str], None] | None) -> None:
    """Calls `hook(point)` at every point from now on; None disarms."""
    global _hook
    _hook = hook


def install(hook: str | None) -> None:
    """Imports and calls `module:function`, which may `arm` this process; None does nothing."""
    if hook is not None:
        module, _, function = hook.partition(":")
        getattr(importlib.import_module(module), function)()
