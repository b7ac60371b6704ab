"""What all kinds of stores have in common: keys, places, pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, groupby, islice, starmap
from typing import Any, Generic, TypeVar

import msgspec

from deltaworks.errors import SerializationError, StoreQueryError
from deltaworks.kernel.stores.entries import TIME_BYTES, Codec
from deltaworks.kernel.stores.state import NEVER
from deltaworks.queries.answers import Changes, KeyMetadata, Page, Place, StoreMetadata, StoreStats, after, place_of
from deltaworks.queries.stream import Look, OpenStream, Part
from deltaworks.runtime.state.local_store import LONG_KEY
from deltaworks.serdes.type_names import type_name

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

LIMIT = 1_000
"""Rows of a page, unless the question says otherwise."""
MAX_LIMIT = 100_000
"""Rows of a page at most."""

Raw = tuple[bytes, int, bytes]
"""`(place of the row, task, value)` as they are in a store."""


class StoreView(Generic[K, V]):
    """A store of a stream, to be read.

    Args:
        stream: the stream.
        name: of the store.
    """

    def __init__(self, stream: OpenStream, name: str) -> None:
        owned = stream.owner(name)
        self._stream, self._owned, self.name = stream, owned, name
        self._spec, self._codec = owned.spec, Codec(owned.spec)

    def metadata(self) -> StoreMetadata:
        """What the store is."""
        spec = self._spec
        return StoreMetadata(
            store=self.name, kind=spec.kind, key=type_name(spec.key.type), value=type_name(spec.value.type),
            tasks=0 if self._owned.is_global else self._stream.places(self.name).tasks,
            timestamped=spec.timestamped and spec.kind != "session",
        )  # fmt: skip

    def metadata_for_key(self, key: K) -> KeyMetadata:
        """Which task has a key.

        Raises:
            StoreQueryError: the key has another type.
        """
        data, places = self._key(key), self._stream.places(self.name)
        task = None if self._owned.is_global else places.likely(data)
        return KeyMetadata(store=self.name, task=task, certain=places.certain)

    def stats(self, *, min_batch: int | None = None) -> StoreStats:
        """How large the store is; counts nothing one by one, but for the changes of the newest batch."""

        def answer(look: Look) -> StoreStats:
            parts = list(look.parts())
            sizes = [part.size() for part in parts]
            newest_ms = max(part.newest_ms for part in parts)
            return StoreStats(
                store=self.name, kind=self._spec.kind, entries=sum(entries for entries, _, _ in sizes),
                size_bytes=sum(size_bytes for _, size_bytes, _ in sizes),
                oldest_ms=min((oldest_ms for _, _, oldest_ms in sizes if oldest_ms is not None), default=None),
                newest_ms=None if newest_ms == NEVER else newest_ms, as_of=look.as_of,
            )  # fmt: skip

        return self._ask(answer, min_batch)

    def key_of_text(self, text: str) -> K:
        """A key from the text that people write: a string as it is, a number, or else JSON.

        Raises:
            StoreQueryError: it is not one.
        """
        kind: Any = self._spec.key.type
        if kind is str:
            return text  # type: ignore[return-value]
        try:
            if kind is bytes:
                return bytes.fromhex(text)  # type: ignore[return-value]
            found: K = msgspec.json.decode(text, type=kind, strict=False)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise StoreQueryError(
                f"{text!r} is no key of the store {self.name!r}, whose keys are {type_name(kind)}: {error}",
                hint="bytes are written in hexadecimal digits, other types in JSON",
            ) from error
        return found

    def keys_of_json(self, text: str) -> list[K]:
        """Keys from an array of JSON.

        Raises:
            StoreQueryError: it is none, or has a key of another type.
        """
        kind: Any = self._spec.key.type
        try:
            found: list[K] = msgspec.json.decode(text, type=list[kind])
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoreQueryError(
                f"This is no array of keys of the store {self.name!r}, whose keys are {type_name(kind)}: {error}"
            ) from error
        return found

    def _time(self, timestamp_ms: int) -> int | None:
        """The time of a value, if the store keeps it."""
        return timestamp_ms if self._spec.timestamped else None

    def _ask(self, answer: Callable[[Look], R], min_batch: int | None) -> R:
        return self._stream.ask(self.name, answer, min_batch)

    def _changes(self, rows: Callable[[bytes, bytes | None], Iterable[R]], min_batch: int | None) -> Changes[R]:
        """What the last committed batch has changed.

        Args:
            rows: of a key and its new value, both as they are in the store; None: it is gone.
            min_batch: waits until this batch is committed.
        """
        if self._owned.is_global:
            raise StoreQueryError(
                f"The global table {self.name!r} does not say what a batch has changed.", hint="read its topic"
            )

        def answer(look: Look) -> Changes[R]:
            found = look.changes()
            changed = None if found is None else tuple(chain.from_iterable(starmap(rows, found)))
            return Changes(rows=changed, as_of=look.as_of)

        return self._ask(answer, min_batch)

    def _key(self, key: Any) -> bytes:
        """The bytes of a key."""
        kind = self._spec.key.type
        if key is None or (isinstance(kind, type) and not isinstance(key, kind)):
            raise self._wrong_key(key, "")
        try:
            return self._codec.key_bytes(key)
        except SerializationError as error:
            raise self._wrong_key(key, f": {error}") from error

    def _key_or_none(self, key: K | None) -> bytes | None:
        """The bytes of a bound."""
        return None if key is None else self._key(key)

    def _wrong_key(self, key: Any, why: str) -> StoreQueryError:
        return StoreQueryError(
            f"The keys of the store {self.name!r} are {type_name(self._spec.key.type)}, not "
            f"{type_name(type(key))}{why}.",
            hint=f"give a key of the type {type_name(self._spec.key.type)}",
        )

    def _first(self, look: Look, key: bytes, read: Callable[[Part], R | None]) -> tuple[R | None, int | None]:
        """What the first task that has something says, and which one it is."""
        for part in look.parts_with(key):
            found = read(part)
            if found is not None:
                return found, part.task
        return None, None

    def _page(
        self,
        look: Look,
        series: Iterable[Iterator[Raw]],
        limit: int,
        row: Callable[[Raw], R],
        *,
        reverse: bool = False,
    ) -> Page[R]:
        """The first rows of several series, each in order."""
        merged = merge(*series, key=lambda raw: raw[:2], reverse=reverse)
        found = list(islice(merged, limit + 1))
        rest = after(Place(*found[limit - 1][:2])) if len(found) > limit else None
        return Page(rows=tuple(map(row, found[:limit])), next=rest, as_of=look.as_of)


def of_span(
    part: Part,
    span: tuple[int, int],
    keys: tuple[bytes | None, bytes | None],
    begin: Place | None,
    *,
    times: int,
) -> Iterator[Raw]:
    """The entries of a timed store in a span, in the order of places.

    Args:
        part: of the store.
        span: the first and the last time of an entry, in milliseconds.
        keys: the first and the last key; None: no bound.
        begin: where the page before ended.
        times: how many times an entry has behind its key.
    """
    (from_ms, to_ms), (first, last) = span, keys
    if begin is not None:
        from_ms = max(from_ms, int.from_bytes(begin.key[:TIME_BYTES], "big"))
    if from_ms > to_ms:
        return
    for place, value in _by_time(part, from_ms, to_ms):
        if begin is not None and (place, part.number) <= (begin.key, begin.task):
            continue
        key = place[TIME_BYTES : -times * TIME_BYTES]
        if (first is None or key >= first) and (last is None or key <= last):
            yield place, part.number, value


def _by_time(part: Part, from_ms: int, to_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """`(place, value)` of the entries of a timed store in a span, both bounds inclusive, in the order of places.

    A place is the time of an entry and then its whole key. The index by time has long keys by their digests, so those
    that begin alike are sorted here.
    """
    found = ((data[-TIME_BYTES:] + data, value) for data, value in part.reader.scan_time(from_ms, to_ms + 1))
    for _, group in groupby(found, key=lambda entry: entry[0][:LONG_KEY]):
        yield from sorted(group)


def checked_limit(limit: int) -> int:
    """
    Raises:
        StoreQueryError: it is no number of rows, or too large.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise StoreQueryError(
            f"limit={limit}: a page has from 1 to {MAX_LIMIT:,} rows.",
            hint="ask for pages, each with after= of the one before",
        )
    return limit


def begin_of(text: str | None) -> Place | None:
    """Where a page begins."""
    return None if text is None else place_of(text)
