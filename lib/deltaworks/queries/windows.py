"""Window stores: a value per key and window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from deltaworks.errors import StoreQueryError
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.queries.answers import Changes, Found, Page, Place, Window, WindowChange
from deltaworks.queries.store import LIMIT, K, Raw, StoreView, V, begin_of, checked_limit, of_span
from deltaworks.queries.stream import Look, OpenStream, Part

FOR_EVER_MS = 2**63 - 2
"""The end of all times."""


class WindowedValues(StoreView[K, V]):
    """A value per key and window, as far back as the store's retention. Rows are ordered by the start of the window,
    then by the bytes of the key.

    Source: `ReadOnlyWindowStore`, `WindowKeyQuery`, `WindowRangeQuery`; differs: the order of rows of several keys does
    not depend on segments; answers have a batch, ranges are cut into pages.
    """

    def __init__(self, stream: OpenStream, name: str) -> None:
        super().__init__(stream, name)
        assert self._spec.windows is not None, name
        self._end_of = self._spec.windows.end_of

    def get(self, key: K, start_ms: int, *, min_batch: int | None = None) -> Found[V]:
        """The value of a key in the window that starts then; the last one, if the store keeps several.

        Raises:
            StoreQueryError: the key has another type.
            StoreUnavailableError: the store cannot be read now.
        """
        data = self._key(key)

        def read(part: Part) -> tuple[Any, int] | None:
            entry = _store(part).entry(key, start_ms)
            return None if entry[0] is None else (self._codec.value_of_cached(entry[0]), entry[1])

        def answer(look: Look) -> Found[V]:
            found, task = self._first(look, data, read)
            if found is None:
                return Found(value=None, timestamp_ms=None, task=None, as_of=look.as_of)
            value = found[0][-1] if self._spec.retain_duplicates else found[0]
            return Found(value=value, timestamp_ms=self._time(found[1]), task=task, as_of=look.as_of)

        return self._ask(answer, min_batch)

    def fetch(
        self,
        key: K,
        from_ms: int = 0,
        to_ms: int = FOR_EVER_MS,
        *,
        limit: int = LIMIT,
        after: str | None = None,
        min_batch: int | None = None,
    ) -> Page[Window[K, V]]:
        """The windows of a key that start in a span of time, both bounds inclusive, oldest first.

        Args:
            key: the key.
            from_ms: the first start.
            to_ms: the last start.
            limit: windows of the page.
            after: `Page.next` of the page before; the bounds must be the same.
            min_batch: waits until this batch is committed.

        Raises:
            StoreQueryError: the key has another type, the bounds are reversed, or the limit is too large.
            StoreUnavailableError: the store cannot be read now.
        """
        data, wanted, begin = self._key(key), checked_limit(limit), begin_of(after)
        checked_span(from_ms, to_ms)

        def answer(look: Look) -> Page[Window[K, V]]:
            series = [_of_key(part, data, from_ms, to_ms, begin) for part in look.parts_with(data)]
            return self._windows(look, series, wanted)

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
    ) -> Page[Window[K, V]]:
        """The windows of all keys, or of those between two keys, that start in a span of time; all bounds inclusive.

        It looks at all windows of the span, also if few keys are asked for. Else as `fetch`.
        """
        wanted, begin = checked_limit(limit), begin_of(after)
        keys = self._key_or_none(from_key), self._key_or_none(to_key)
        checked_span(from_ms, to_ms)

        def answer(look: Look) -> Page[Window[K, V]]:
            series = [of_span(part, _visible(part, from_ms, to_ms), keys, begin, times=1) for part in look.parts()]
            return self._windows(look, series, wanted)

        return self._ask(answer, min_batch)

    def changes(self, *, min_batch: int | None = None) -> Changes[WindowChange[K, V]]:
        """What the last committed batch has changed. Whoever asks after each batch gets each change once.

        Windows that the store drops since they are older than its retention are not told. A store that keeps several
        values of a window tells all of them, one by one.

        Raises:
            StoreUnavailableError: the store cannot be read now.
        """

        def rows(data: bytes, raw: bytes | None) -> list[WindowChange[K, V]]:
            key, start_ms = self._codec.key_object(data[:-TIME_BYTES]), int.from_bytes(data[-TIME_BYTES:], "big")
            values, timestamp_ms = ([None], None) if raw is None else self._values(raw)
            return [
                WindowChange(
                    key=key, start_ms=start_ms, end_ms=self._end_of(start_ms), value=value, timestamp_ms=timestamp_ms
                )
                for value in values
            ]

        return self._changes(rows, min_batch)

    def _windows(self, look: Look, series: list[Iterator[Raw]], limit: int) -> Page[Window[K, V]]:
        page = self._page(look, series, limit, self._rows)
        return Page(rows=tuple(row for rows in page.rows for row in rows), next=page.next, as_of=page.as_of)

    def _rows(self, raw: Raw) -> list[Window[K, V]]:
        """A window, several times if the store keeps several values."""
        start_ms, (values, timestamp_ms) = int.from_bytes(raw[0][:TIME_BYTES], "big"), self._values(raw[2])
        return [
            Window(
                key=self._codec.key_object(raw[0][TIME_BYTES:-TIME_BYTES]),
                start_ms=start_ms,
                end_ms=self._end_of(start_ms),
                value=each,
                timestamp_ms=timestamp_ms,
            )
            for each in values
        ]

    def _values(self, raw: bytes) -> tuple[Sequence[Any], int | None]:
        """The values of a window, more than one if the store keeps several, and their time."""
        cached, timestamp_ms = self._codec.entry(raw)
        value = self._codec.value_of_cached(cached)
        return value if self._spec.retain_duplicates else [value], self._time(timestamp_ms)


def checked_span(from_ms: int, to_ms: int) -> None:
    """
    Raises:
        StoreQueryError: it is no span of time.
    """
    if not 0 <= from_ms <= to_ms <= FOR_EVER_MS:
        raise StoreQueryError(
            f"From {from_ms} ms to {to_ms} ms is no span of time.",
            hint="milliseconds since 1970, the lower bound first; both are inclusive",
        )


def _store(part: Part) -> WindowStore:
    store = part.store()
    assert isinstance(store, WindowStore)
    return store


def _visible(part: Part, from_ms: int, to_ms: int) -> tuple[int, int]:
    return max(from_ms, _store(part).expired_before_ms, 0), min(to_ms, part.newest_ms)


def _of_key(part: Part, key: bytes, from_ms: int, to_ms: int, begin: Place | None) -> Iterator[Raw]:
    if begin is not None:
        ended_ms = int.from_bytes(begin.key[:TIME_BYTES], "big")
        from_ms = max(from_ms, ended_ms if part.number > begin.task else ended_ms + 1)
    from_ms, to_ms = _visible(part, from_ms, to_ms)
    if from_ms > to_ms:
        return
    start, stop = (key + time_ms.to_bytes(TIME_BYTES, "big") for time_ms in (from_ms, to_ms + 1))
    for data, value in part.reader.scan(start, stop):
        # A longer key that starts with this one may lie between its windows.
        if len(data) == len(start):
            yield data[-TIME_BYTES:] + data, part.number, value
