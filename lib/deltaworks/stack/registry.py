"""Migrates the tables of the registry: `python -m deltaworks.stack.registry`, a step of every start."""

from __future__ import annotations

import sys

from deltaworks.control.registry import migrate
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings

if __name__ == "__main__":
    try:
        migrate(Settings.from_environment())
    except DeltaworksError as error:
        sys.exit(f"error: {error}")
