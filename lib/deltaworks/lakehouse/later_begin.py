"""Tables that begin later than the history of their stream. Separate from `scope`, because DAG files import it."""

from __future__ import annotations

import msgspec


class LaterBegin(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a replay that leaves out records which its days do not depend on."""

    batch: int
    """The first batch of which all topics are read."""
    topics: tuple[str, ...]
    """The topics that are also read of earlier batches."""
    since_ms: int
    """Records of other topics that are left out are older than this."""
    complete_from_ms: int
    """Results from this moment on equal those of a replay of all history."""
