"""What driver and workers of the check do beside their work (`Settings.fault_hook`): fault points, mutations, a disk.

A disk that fills is the one reason that is not caused but told: whoever fills the disk of this machine takes everything
else on it down. The share of it that is free is what the file `free-share` of the home says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import fault_hooks

HOOK = f"{__name__}:install"
_FREE = 0.9


def faults_in(home: Path) -> Path:
    """The folder of orders, see `fault_hooks`."""
    return home / "faults"


def tell_free(home: Path, share: float) -> None:
    """The disk of the home has this share free from now on."""
    temporary = home / "free-share.new"
    temporary.write_text(f"{share}")
    temporary.replace(home / "free-share")


def install() -> None:
    """Called once in the driver and in every worker."""
    home = Path(os.environ["DELTAWORKS_HOME"])
    os.environ[fault_hooks.VARIABLE] = str(faults_in(home))
    fault_hooks.install()
    stream = sys.modules.get("deltaworks.metrics.stream")  # only drivers have it
    if stream is not None:
        vars(stream)["free_share"] = _told


def _told(home: Path) -> float:
    try:
        return float((home / "free-share").read_text())
    except FileNotFoundError:
        return _FREE
