"""Key-value stores: tables, aggregates without windows, stores of processors, global tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from deltaworks.errors import StoreQueryError
from deltaworks.kernel.stores.ordered import after_prefix
from deltaworks.queries.answers import Change, Changes, Entry, Found, Page, Place, Several
from deltaworks.queries.store import LIMIT, K, Raw, StoreView, V, begin_of, checked_limit
from deltaworks.queries.stream import Look, Part


class KeyValues(StoreView[K, V]):
    """A value per key. Rows are in the order of the bytes of their keys.

    Source: `ReadOnlyKeyValueStore`, `KeyQuery`, `RangeQuery`; differs: answers have a batch, ranges are cut into pages.
    """

    def get(self, key: K, *, min_batch: int | None = None) -> Found[V]:
        """The value of a key.

        Args:
            key: the key.
            min_batch: waits until this batch is committed.

        Raises:
            StoreQueryError: the key has another type.
            StoreUnavailableError: the store cannot be read now.
        """
        data = self._key(key)

        def answer(look: Look) -> Found[V]:
            raw, task = self._first(look, data, lambda part: part.reader.get(data))
            value, timestamp_ms = (None, None) if raw is None else self._value(raw)
            return Found(value=value, timestamp_ms=timestamp_ms, task=task, as_of=look.as_of)

        return self._ask(answer, min_batch)

    def get_many(self, keys: Sequence[K], *, min_batch: int | None = None) -> Several[K, V]:
        """The values of several keys, as of one batch; else as `get`."""
        wanted = [self._key(key) for key in keys]

        def entry(key: K, raw: bytes | None) -> Entry[K, V] | None:
            if raw is None:
                return None
            value, timestamp_ms = self._value(raw)
            return Entry(key=key, value=value, timestamp_ms=timestamp_ms)

        def answer(look: Look) -> Several[K, V]:
            return Several(entries=tuple(map(entry, keys, look.values(wanted))), as_of=look.as_of)

        return self._ask(answer, min_batch)

    def changes(self, *, min_batch: int | None = None) -> Changes[Change[K, V]]:
        """What the last committed batch has changed. Whoever asks after each batch gets each change once.

        Raises:
            StoreQueryError: it is a global table.
            StoreUnavailableError: the store cannot be read now.
        """

        def rows(key: bytes, raw: bytes | None) -> tuple[Change[K, V], ...]:
            value, timestamp_ms = (None, None) if raw is None else self._value(raw)
            return (Change(key=self._codec.key_object(key), value=value, timestamp_ms=timestamp_ms),)

        return self._changes(rows, min_batch)

    def range(
        self,
        from_key: K | None = None,
        to_key: K | None = None,
        *,
        limit: int = LIMIT,
        after: str | None = None,
        reverse: bool = False,
        min_batch: int | None = None,
    ) -> Page[Entry[K, V]]:
        """The keys between two keys, both inclusive; None: no bound.

        Args:
            from_key: the lower bound, by the order of bytes.
            to_key: the upper bound.
            limit: rows of the page.
            after: `Page.next` of the page before; the bounds must be the same.
            reverse: the last row first.
            min_batch: waits until this batch is committed.

        Raises:
            StoreQueryError: a key has another type, the bounds are reversed, or the limit is too large.
            StoreUnavailableError: the store cannot be read now.
        """
        start = b"" if from_key is None else self._key(from_key)
        stop = None if to_key is None else self._key(to_key) + b"\0"
        if stop is not None and stop <= start:
            raise StoreQueryError(
                f"{from_key!r} comes after {to_key!r} in the store {self.name!r}, so nothing is between them.",
                hint="the order is that of the bytes of keys; numbers below zero come after the others",
            )
        return self._between(start, stop, limit, after, reverse, min_batch)

    def prefix(
        self,
        prefix: Any,
        *,
        limit: int = LIMIT,
        after: str | None = None,
        reverse: bool = False,
        min_batch: int | None = None,
    ) -> Page[Entry[K, V]]:
        """The keys whose bytes begin with those of `prefix`, a key or bytes; else as `range`."""
        start = prefix if isinstance(prefix, bytes) else self._key(prefix)
        return self._between(start, after_prefix(start), limit, after, reverse, min_batch)

    def all(
        self, *, limit: int = LIMIT, after: str | None = None, reverse: bool = False, min_batch: int | None = None
    ) -> Page[Entry[K, V]]:
        """All keys; else as `range`."""
        return self._between(b"", None, limit, after, reverse, min_batch)

    def approximate_count(self, *, min_batch: int | None = None) -> int:
        """The number of keys."""
        return self.stats(min_batch=min_batch).entries

    def _between(
        self, start: bytes, stop: bytes | None, limit: int, after: str | None, reverse: bool, min_batch: int | None
    ) -> Page[Entry[K, V]]:
        wanted, begin = checked_limit(limit), begin_of(after)

        def row(raw: Raw) -> Entry[K, V]:
            value, timestamp_ms = self._value(raw[2])
            return Entry(key=self._codec.key_object(raw[0]), value=value, timestamp_ms=timestamp_ms)

        def answer(look: Look) -> Page[Entry[K, V]]:
            series = [_series(part, start, stop, begin, reverse) for part in look.parts()]
            return self._page(look, series, wanted, row, reverse=reverse)

        return self._ask(answer, min_batch)

    def _value(self, raw: bytes) -> tuple[V, int | None]:
        """A value, and its time."""
        value, timestamp_ms = self._codec.entry(raw)
        return self._codec.value_of_cached(value), self._time(timestamp_ms)


def _series(part: Part, start: bytes, stop: bytes | None, begin: Place | None, reverse: bool) -> Iterator[Raw]:
    """The entries of a task; of those with the key at which the page before ended, the ones that are behind it."""
    if begin is not None and reverse:
        stop = begin.key + b"\0" if part.number < begin.task else begin.key
    elif begin is not None:
        start = begin.key if part.number > begin.task else begin.key + b"\0"
    entries = part.reader.scan_back(start, stop) if reverse else part.reader.scan(start, stop)
    return ((key, part.number, value) for key, value in entries)
