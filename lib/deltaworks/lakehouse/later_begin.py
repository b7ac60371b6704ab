"""Tables that begin later than the history of their stream. Apart from `scope`, because DAG files import it."""

from __future__ import annotations

import msgspec


class LaterBegin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay begins that leaves out what its days do not depend on."""

    batch: int
    """The first one of which all topics are read."""
    topics: tuple[str, ...]
    """Those that are read of the batches before, too."""
    since_ms: int
    """Records of the others that are left out are older."""
    complete_from_ms: int
    """Results of this moment and later are those of a replay of all history."""
