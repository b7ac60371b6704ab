"""How the rows of a table are kept: what `store=` takes besides a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from deltaworks.serdes import Serde


@dataclass(frozen=True)
class Materialized:
    """A store in detail; where only its name matters, the name alone will do.

    Args:
        name: of the store; part of the pipeline's state, so keep it. Empty: a generated one, where the builder allows.
        caching: forward the last update per key at a commit; None: as the builder's `record_cache` says.
        retention: how long windows and sessions are kept; None: as long as they can change.
        history: keeps the versions of each key for this long (a versioned store), so that joins see the past.
        in_memory: asks for a store in memory. Our stores are both at once, so it changes nothing.
        logging: a store without a changelog is empty after a restart. Ours come back with the checkpoint.
        key: serde of the keys, if it is not known.
        value: serde of the values, if it is not known.
        migrate: `(old_serde, old_to_new)`: how the values that the store holds become values of its new type, once,
            when the pipeline starts with it; None from the function deletes. Without it a start is refused, unless the
            old values can be read as they are: JSON with fields that are gone, new ones with a default, `int` that is
            `float` now, or a value that may be None now.

    Source: `Materialized`.

    >>> Materialized("users", history=timedelta(hours=1)).name
    'users'
    """

    name: str = ""
    caching: bool | None = None
    retention: timedelta | None = None
    history: timedelta | None = None
    in_memory: bool = False
    logging: bool = True
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    migrate: tuple[Serde[Any], Callable[[Any], Any]] | None = None

    @property
    def history_ms(self) -> int | None:
        """None: not versioned."""
        return None if self.history is None else self.history // timedelta(milliseconds=1)

    @classmethod
    def of(cls, store: Stored | None) -> Materialized:
        """From what a user gave as `store=`."""
        if isinstance(store, Materialized):
            return store
        return cls(store or "")


Stored: TypeAlias = str | Materialized
