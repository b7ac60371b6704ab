"""Session stores: a value per key and session."""

from __future__ import annotations

from collections.abc import Iterator

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.queries.answers import Found, Page, Place, Session
from deltaworks.queries.store import LIMIT, K, Raw, StoreView, V, begin_of, by_time, checked_limit
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
        data, codec = self._key(key), self._codec

        def answer(look: Look) -> Found[V]:
            def read(part: Part) -> bytes | None:
                is_visible = end_ms >= _store(part).expired_before_ms
                return part.reader.get(data + _bytes(start_ms) + _bytes(end_ms)) if is_visible else None

            raw, task = self._first(look, data, read)
            value = None if raw is None else codec.value_of_cached(codec.cached_value_of_bytes(raw))
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
        data, wanted, begin, codec = self._key(key), checked_limit(limit), begin_of(after), self._codec

        def row(raw: Raw) -> Session[K, V]:
            start_ms, end_ms = _bounds(raw[0])
            value = codec.value_of_cached(codec.cached_value_of_bytes(raw[2]))
            return Session(key=key, start_ms=start_ms, end_ms=end_ms, value=value)

        def answer(look: Look) -> Page[Session[K, V]]:
            series = [_of_key(part, data, earliest_end_ms, latest_start_ms, begin) for part in look.parts_with(data)]
            return self._page(look, series, wanted, row)

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
        wanted, begin, codec = checked_limit(limit), begin_of(after), self._codec
        first = None if from_key is None else self._key(from_key)
        last = None if to_key is None else self._key(to_key)
        checked_span(from_ms, to_ms)

        def row(raw: Raw) -> Session[K, V]:
            start_ms, end_ms = _bounds(raw[0])
            value = codec.value_of_cached(codec.cached_value_of_bytes(raw[2]))
            key = codec.key_object(raw[0][TIME_BYTES : -2 * TIME_BYTES])
            return Session(key=key, start_ms=start_ms, end_ms=end_ms, value=value)

        def answer(look: Look) -> Page[Session[K, V]]:
            series = [_of_span(part, first, last, from_ms, to_ms, begin) for part in look.parts()]
            return self._page(look, series, wanted, row)

        return self._ask(answer, min_batch)


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
    task, gone_ms = 0 if part.task is None else part.task, _store(part).expired_before_ms
    found: list[Raw] = []
    for data, value in part.reader.scan(key, key + _bytes(min(latest_start_ms, FOR_EVER_MS) + 1)):
        # A longer key that starts with this one may lie between its sessions.
        if len(data) == len(key) + 2 * TIME_BYTES:
            end_ms = int.from_bytes(data[-TIME_BYTES:], "big")
            place = data[-TIME_BYTES:] + data
            is_new = begin is None or (place, task) > (begin.key, begin.task)
            if end_ms >= max(earliest_end_ms, gone_ms) and is_new:
                found.append((place, task, value))
    return iter(sorted(found))


def _of_span(
    part: Part, first: bytes | None, last: bytes | None, from_ms: int, to_ms: int, begin: Place | None
) -> Iterator[Raw]:
    task = 0 if part.task is None else part.task
    if begin is not None:
        from_ms = max(from_ms, int.from_bytes(begin.key[:TIME_BYTES], "big"))
    from_ms = max(from_ms, _store(part).expired_before_ms)
    if from_ms > to_ms:
        return
    for place, value in by_time(part, from_ms, to_ms):
        if begin is not None and (place, task) <= (begin.key, begin.task):
            continue
        key = place[TIME_BYTES : -2 * TIME_BYTES]
        if (first is None or key >= first) and (last is None or key <= last):
            yield place, task, value
