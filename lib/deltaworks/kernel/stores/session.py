"""Session store: one value per key and session, gone once its end is older than the retention."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from deltaworks.kernel.stores.closing_sessions import ClosingSessions
from deltaworks.kernel.stores.entries import TIME_BYTES, Codec
from deltaworks.kernel.stores.ordered import segment_ms
from deltaworks.kernel.stores.state import FOR_EVER_MS, NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

Session = tuple[Any, ...]
"""`(end_ms, start_ms, cached value)`, with a record cache also `batch number, index` of the record that wrote it."""


class KeyChanges(NamedTuple):
    """The changes to the sessions of one key since the last commit."""

    cached_key: Any
    removed: list[Session]
    """Committed sessions that were merged away or deleted, oldest first."""
    written: list[tuple[Session, Session | None]]
    """New and changed sessions, oldest first, each with what was committed under its bounds."""
    latest: Session | None
    """The session that was put last, even if its value was None."""


class SessionStore:
    """Session store of one task: the sessions of a key are read once, then kept as a list ordered by end.

    A session is visible while `end > newest end ever put - retention`. Processors use `sessions` and `replace`; the
    other methods are for everybody else.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"session store '{spec.name}' needs a retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = FOR_EVER_MS if spec.expired_stay_cached else spec.retention_ms
        if spec.keeps_unforwarded:
            # A session that a record at the limit of lateness can still join must not be gone.
            self.retention_ms += 1
        self.newest_ms = newest_ms
        """The newest end ever put."""
        self._by_key: dict[Any, list[Session]] = {}
        self._touched: dict[Any, list[Session]] = {}
        """Keys that were written since the last commit, with their sessions as committed."""
        self._latest: dict[Any, Session] = {}
        self._outlived: dict[Any, list[Session]] = {}
        """Sessions written and expired since the last commit: no reader finds them, but their changes count."""
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached
        self._segment_ms = segment_ms(spec.retention_ms)
        self.closing = (
            ClosingSessions(self.codec, spec.retention_ms, reader, keeps_unforwarded=spec.keeps_unforwarded)
            if spec.emits_final
            else None
        )
        """The sessions kept to be read back when they have closed."""
        self._expired_before_ms = 0 if spec.emits_final else max(0, self.expired_before_ms)

    @property
    def expired_before_ms(self) -> int:
        """Sessions that ended earlier are gone."""
        return self.newest_ms - self.retention_ms + 1

    def sessions(self, cached_key: Any) -> list[Session]:
        """The visible sessions of a key, by end, then start. Callers must not change the list."""
        sessions = self._by_key.get(cached_key)
        if sessions is None:
            sessions = self._by_key[cached_key] = self._load(cached_key)
        if sessions and sessions[0][0] <= self.newest_ms - self.retention_ms:
            self._expire(cached_key, sessions)
        return sessions

    def replace(self, cached_key: Any, old: Sequence[Session], new: Session | None) -> None:
        """Deletes sessions of `sessions(key)` and writes `new` instead, unless it or its value is None."""
        sessions = self._by_key[cached_key]
        if cached_key not in self._touched:
            self._touched[cached_key] = sessions.copy()
        for session in old:
            sessions.remove(session)
        if self.closing is not None:
            self.closing.replace(cached_key, old, new)
        if new is None:
            return
        end_ms = new[0]
        self._latest[cached_key] = new
        if end_ms > self.newest_ms:
            self.newest_ms = end_ms
        if new[2] is None:
            return
        if not sessions or sessions[-1][0] < end_ms:
            sessions.append(new)
        else:
            insort(sessions, new, key=_bounds)

    def changes(self) -> Iterator[KeyChanges]:
        """The writes since the last commit, key by key; a session that came and went is not included."""
        for cached_key, committed in self._touched.items():
            current = self._by_key[cached_key]
            if outlived := self._outlived.get(cached_key):
                current = outlived + current
            latest = self._latest.get(cached_key)
            if not committed:
                yield KeyChanges(cached_key, [], [(session, None) for session in current], latest)
                continue
            before = {_bounds(session): session for session in committed}
            after = {_bounds(session): session for session in current}
            removed = [session for bounds, session in before.items() if bounds not in after]
            written = [
                (session, before.get(bounds)) for bounds, session in after.items() if before.get(bounds) is not session
            ]
            yield KeyChanges(cached_key, removed, written, latest)

    def fetch(self, key: Any) -> list[tuple[int, int, Any]]:
        """`(start_ms, end_ms, value)` of the sessions of a key, oldest first."""
        sessions = self.sessions(self._cached_key(key))
        return [(session[1], session[0], self.codec.value_of_cached(session[2])) for session in sessions]

    def put(self, key: Any, start_ms: int, end_ms: int, kept: Any, *written: int) -> None:
        """Writes a session: the value's form in the caches, then as in `Session`; None deletes."""
        cached_key = self._cached_key(key)
        before = [session for session in self.sessions(cached_key) if _bounds(session) == (end_ms, start_ms)]
        self.replace(cached_key, before, (end_ms, start_ms, kept, *written))

    def all(self) -> Iterator[tuple[Any, int, int, Any]]:
        """`(key, start_ms, end_ms, value)` of every session."""
        return iter(self.between(None, None))

    def between(self, from_key: Any | None, to_key: Any | None) -> list[tuple[Any, int, int, Any]]:
        """`(key, start_ms, end_ms, value)` of the keys between two keys, both inclusive; None: no bound.

        Ordered by segment of time, then by bytes of key, end and start, as in Kafka Streams' persistent stores.
        """
        codec = self.codec
        first = b"" if from_key is None else codec.key_bytes(from_key)
        last = None if to_key is None else codec.key_bytes(to_key)
        stored = {data[: -2 * TIME_BYTES] for data, _ in self._reader.scan_time(max(0, self.expired_before_ms), None)}
        rows: list[tuple[int, bytes, tuple[Any, int, int, Any]]] = []
        for key_bytes in stored.union(map(codec.cached_key_bytes, self._touched)):
            if key_bytes >= first and (last is None or key_bytes <= last):
                key = codec.key_object(key_bytes)
                for start_ms, end_ms, value in self.fetch(key):
                    place = key_bytes + end_ms.to_bytes(TIME_BYTES, "big") + start_ms.to_bytes(TIME_BYTES, "big")
                    rows.append((end_ms // self._segment_ms, place, (key, start_ms, end_ms, value)))
        rows.sort(key=lambda row: row[:2])
        return [row[2] for row in rows]

    def left_store(self, end_ms: int) -> bool:
        """Whether only a record cache still shows it; its updates do not know an old value."""
        return self.spec.expired_stay_cached and end_ms <= self._committed_newest_ms - (self.spec.retention_ms or 0)

    def take_lost(self) -> int:
        """How many sessions have expired before they were forwarded, since the last call."""
        return 0 if self.closing is None else self.closing.take_lost()

    def take_changes(self) -> StoreChanges | None:
        """The entries written or expired since the last call; None if there are none."""
        codec, visible = self.codec, self.expired_before_ms
        if self.closing is not None:
            visible = min(visible, self.closing.kept_from_ms(self.newest_ms))
            self.closing.forget()
        changed: list[tuple[bytes, bytes | None]] = []
        for cached_key, removed, written, _ in self.changes():
            key = codec.cached_key_bytes(cached_key)
            changed += [(key + _window(session), None) for session in removed if session[0] >= visible]
            changed += [
                (key + _window(session), codec.value_bytes(session[2]))
                for session, _ in written
                if session[0] >= visible
            ]
        self._touched = {}
        self._latest = {}
        self._outlived = {}
        expires = visible > self._expired_before_ms
        self._expired_before_ms = max(0, visible)
        self._committed_newest_ms = self.newest_ms
        if len(self._by_key) > self._max_cached:
            for cached_key in list(islice(self._by_key, len(self._by_key) - self._max_cached // 2)):
                del self._by_key[cached_key]
        return StoreChanges(changed, visible if expires else None) if changed or expires else None

    def _cached_key(self, key: Any) -> Any:
        return key if self.codec.cache_key is None else self.codec.cache_key(key)

    def _expire(self, cached_key: Any, sessions: list[Session]) -> None:
        """Forgets sessions that are no longer visible; the state expires them by itself."""
        visible = self.expired_before_ms
        committed = self._touched.get(cached_key, [])
        while sessions and sessions[0][0] < visible:
            gone = sessions.pop(0)
            if any(gone is session for session in committed):
                committed.remove(gone)
            elif cached_key in self._touched:
                self._outlived.setdefault(cached_key, []).append(gone)

    def _load(self, cached_key: Any) -> list[Session]:
        if self._committed_newest_ms == NEVER:
            return []
        prefix = self.codec.cached_key_bytes(cached_key)
        stop = prefix + (self._committed_newest_ms + 1).to_bytes(TIME_BYTES, "big")
        found: list[Session] = []
        for data, raw in self._reader.scan(prefix, stop):
            # A longer key that starts with this one may lie between its sessions.
            if len(data) == len(prefix) + 2 * TIME_BYTES:
                end_ms = int.from_bytes(data[-TIME_BYTES:], "big")
                start_ms = int.from_bytes(data[-2 * TIME_BYTES : -TIME_BYTES], "big")
                found.append((end_ms, start_ms, self.codec.cached_value_of_bytes(raw)))
        return sorted(found, key=_bounds)


def _window(session: Session) -> bytes:
    return int(session[1]).to_bytes(TIME_BYTES, "big") + int(session[0]).to_bytes(TIME_BYTES, "big")


def _bounds(session: Session) -> tuple[int, int]:
    return session[0], session[1]
