"""The command line with its fault points armed: `python -m tests.system.replays.armed COMMAND ...`."""

from __future__ import annotations

from deltaworks import faults
from deltaworks.cli.app import main
from deltaworks.settings import Settings

if __name__ == "__main__":
    faults.install(Settings.from_environment().fault_hook)
    main()
