"""Session stores: a value per key and session."""

from __future__ import annotations

from collections.abc import Iterator

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.queries.answers import Changes, Found, Page, Place, Session, SessionChange
from deltaworks.queries.store import LIMIT, K, Raw, StoreView, V, begin_of, checked_limit, of_span
from deltaworks.queries.stream import Look, Part
from deltaworks.queries.windows import FOR_EVER_MS, checked_span


class SessionValues(StoreView[K, V]):
    """A value per key and session, as far back as the store's retention. Rows are ordered by the end of the session.

    Source: `ReadOnlySessionStore`; differs: the order of rows of several keys does not depend on segments; answers have
    a batch, ranges are cut into pages.
    """

    def get(self, key: K, start_ms: int, end_ms: int, *, min_batch: int | None = None) -> Found[V]:
        """The value of the session of a key with exactly these bounds.

        Raises:
            StoreQueryError: the key has another type.
            StoreUnavailableError: the store cannot be read now.
        """
        data = self._key(key)

        def answer(look: Look) -> Found[V]:
            def read(part: Part) -> bytes | None:
                is_visible = end_ms >= _store(part).expired_before_ms
                return part.reader.get(data + _bytes(start_ms) + _bytes(end_ms)) if is_visible else None

            raw, task = self._first(look, data, read)
            value = None if raw is None else self._value(raw)
            return Found(value=value, timestamp_ms=None, task=task, as_of=look.as_of)

        return self._ask(answer, min_batch)

    def fetch(
        self,
        key: K,
        earliest_end_ms: int = 0,
        latest_start_ms: int = FOR_EVER_MS,
        *,
        limit: int = LIMIT,
        after: str | None = None,
        min_batch: int | None = None,
    ) -> Page[Session[K, V]]:
        """The sessions of a key with `end >= earliest_end_ms` and `start <= latest_start_ms`, oldest first.

        Args:
            key: the key.
            earliest_end_ms: see above.
            latest_start_ms: see above.
            limit: sessions of the page.
            after: `Page.next` of the page before; the bounds must be the same.
            min_batch: waits until this batch is committed.

        Raises:
            StoreQueryError: the key has another type, or the limit is too large.
            StoreUnavailableError: the store cannot be read now.
        """
        data, wanted, begin = self._key(key), checked_limit(limit), begin_of(after)

        def answer(look: Look) -> Page[Session[K, V]]:
            series = [_of_key(part, data, earliest_end_ms, latest_start_ms, begin) for part in look.parts_with(data)]
            return self._page(look, series, wanted, self._row)

        return self._ask(answer, min_batch)

    def fetch_all(
        self,
        from_ms: int = 0,
        to_ms: int = FOR_EVER_MS,
        *,
        from_key: K | None = None,
        to_key: K | None = None,
        limit: int = LIMIT,
        after: str | None = None,
        min_batch: int | None = None,
    ) -> Page[Session[K, V]]:
        """The sessions of all keys, or of those between two keys, that end in a span of time; all bounds inclusive.

        It looks at all sessions of the span, also if few keys are asked for. Else as `fetch`.
        """
        wanted, begin = checked_limit(limit), begin_of(after)
        keys = self._key_or_none(from_key), self._key_or_none(to_key)
        checked_span(from_ms, to_ms)

        def answer(look: Look) -> Page[Session[K, V]]:
            series = [
                of_span(part, (max(from_ms, _store(part).expired_before_ms), to_ms), keys, begin, times=2)
                for part in look.parts()
            ]
            return self._page(look, series, wanted, self._row)

        return self._ask(answer, min_batch)

    def changes(self, *, min_batch: int | None = None) -> Changes[SessionChange[K, V]]:
        """What the last committed batch has changed. Whoever asks after each batch gets each change once.

        Sessions that the store drops since they are older than its retention are not told.

        Raises:
            StoreUnavailableError: the store cannot be read now.
        """

        def rows(data: bytes, raw: bytes | None) -> tuple[SessionChange[K, V], ...]:
            key, (start_ms, end_ms) = self._codec.key_object(data[: -2 * TIME_BYTES]), _bounds(data)
            value = None if raw is None else self._value(raw)
            return (SessionChange(key=key, start_ms=start_ms, end_ms=end_ms, value=value),)

        return self._changes(rows, min_batch)

    def _row(self, raw: Raw) -> Session[K, V]:
        start_ms, end_ms = _bounds(raw[0])
        return Session(
            key=self._codec.key_object(raw[0][TIME_BYTES : -2 * TIME_BYTES]),
            start_ms=start_ms,
            end_ms=end_ms,
            value=self._value(raw[2]),
        )

    def _value(self, raw: bytes) -> V:
        found: V = self._codec.value_of_cached(self._codec.cached_value_of_bytes(raw))
        return found


def _bytes(time_ms: int) -> bytes:
    return time_ms.to_bytes(TIME_BYTES, "big")


def _bounds(place: bytes) -> tuple[int, int]:
    """Start and end."""
    start, end = place[-2 * TIME_BYTES : -TIME_BYTES], place[-TIME_BYTES:]
    return int.from_bytes(start, "big"), int.from_bytes(end, "big")


def _store(part: Part) -> SessionStore:
    store = part.store()
    assert isinstance(store, SessionStore)
    return store


def _of_key(part: Part, key: bytes, earliest_end_ms: int, latest_start_ms: int, begin: Place | None) -> Iterator[Raw]:
    gone_ms = _store(part).expired_before_ms
    found: list[Raw] = []
    for data, value in part.reader.scan(key, key + _bytes(min(latest_start_ms, FOR_EVER_MS) + 1)):
        # A longer key that starts with this one may lie between its sessions.
        if len(data) == len(key) + 2 * TIME_BYTES:
            end_ms = int.from_bytes(data[-TIME_BYTES:], "big")
            place = data[-TIME_BYTES:] + data
            is_new = begin is None or (place, part.number) > (begin.key, begin.task)
            if end_ms >= max(earliest_end_ms, gone_ms) and is_new:
                found.append((place, part.number, value))
    return iter(sorted(found))
