"""The value of a record of a table: what a row is now and what it was."""

from __future__ import annotations

from typing import Any

import msgspec


class Change(msgspec.Struct, frozen=True, gc=False):
    """An update of one row; `new` is None for a delete."""

    new: Any
    old: Any = None
    """Only where a reader asked for old values, else None."""
