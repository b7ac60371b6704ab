"""Versioned stores: a table with what it was before."""

from __future__ import annotations

from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.queries.answers import Version
from deltaworks.queries.store import K, StoreView, V
from deltaworks.queries.stream import Look, Part
from deltaworks.topology.state_stores import VersionedRecord


class VersionedValues(StoreView[K, V]):
    """The versions of each key, as far back as the store's history.

    Source: `VersionedKeyQuery`; differs: answers have a batch.
    """

    def get(self, key: K, as_of_ms: int | None = None, *, min_batch: int | None = None) -> Version[V]:
        """The version of a key that was valid at a time; None: the latest one.

        Args:
            key: the key.
            as_of_ms: the time, in milliseconds since 1970.
            min_batch: waits until this batch is committed.

        Raises:
            StoreQueryError: the key has another type.
            StoreUnavailableError: the store cannot be read now.
        """
        data = self._key(key)

        def read(part: Part) -> VersionedRecord[V] | None:
            store = part.store()
            assert isinstance(store, VersionedStore)
            return store.get_record(key, as_of_ms)

        def answer(look: Look) -> Version[V]:
            found, task = self._first(look, data, read)
            if found is None:
                return Version(value=None, valid_from_ms=None, task=None, as_of=look.as_of)
            return Version(value=found.value, valid_from_ms=found.timestamp_ms, task=task, as_of=look.as_of)

        return self._ask(answer, min_batch)
