"""What the soak does in driver and workers: a clock that is set, another boot, and the fault points of `fault_hooks`.

The folder above the one of the fault orders is shared by all streams of a run:

- `clock`: nanoseconds that the wall clock is ahead;
- `boot`: the id of this boot of the machine; another one after each loss of power.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltaworks import clock, processes
from tests.support import fault_hooks

HOOK = "tests.system.soak.hooks:install"
CLOCK, BOOT = "clock", "boot"


def install() -> None:
    """Called once in the driver and in every worker (`Settings.fault_hook`)."""
    fault_hooks.install()
    folder = os.environ.get(fault_hooks.VARIABLE)
    if folder is None:
        return
    shared = Path(folder).parent
    clock.arm(lambda: _number(shared / CLOCK))
    set_boot_id(shared / BOOT)


def set_boot_id(file: Path) -> None:
    """This process finds the boot id that the file says, if there is one."""
    original: Callable[[], Any] | None = getattr(processes, "boot_id", None)
    if original is None or not file.exists():
        return
    boot = file.read_text()

    def boot_id() -> str:
        return boot

    for module in list(sys.modules.values()):  # who imported the function by its name has it, too
        if getattr(module, "boot_id", None) is original:
            setattr(module, "boot_id", boot_id)  # noqa: B010


def _number(file: Path) -> int:
    try:
        return int(file.read_text() or "0")
    except (FileNotFoundError, ValueError):
        return 0
