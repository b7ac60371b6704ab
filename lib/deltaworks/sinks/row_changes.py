"""Rows of a Delta table that a publication has changed, as a sink is corrected by them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class RowChanges:
    """Some rows; both tables have the columns of the Delta table."""

    now: pa.Table
    """As they are."""
    gone: pa.Table
    """As they were; there is no row of their keys any more."""
