"""Session store: one value per key and session, gone once its end is older than the retention."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import islice
from typing import Any

from deltaworks.kernel.stores.entries import TIME_BYTES, Codec, Entry
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.kernel.stores.window import NEVER
from deltaworks.topology.stages import StoreSpec

Session = tuple[int, int, Any]
"""`(end_ms, start_ms, cached value)`"""
SessionId = tuple[Any, int, int]
"""`(cached key, start_ms, end_ms)`"""
DELETED: Entry = (None, NEVER, 0, 0)


class SessionStore:
    """Session store of one task: the sessions of a key are read once, then kept as a list ordered by end.

    A session is visible while `end > newest end ever put - retention`.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"session store '{spec.name}' needs a retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = spec.retention_ms
        self.newest_ms = newest_ms
        """The newest end ever put."""
        self.updates: dict[SessionId, Entry] = {}
        """Written since the last commit; a None value deletes a committed session."""
        self._uncommitted: set[SessionId] = set()
        self._by_key: dict[Any, list[Session]] = {}
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached

    @property
    def expired_before_ms(self) -> int:
        """Sessions that ended earlier are gone."""
        return self.newest_ms - self.retention_ms + 1

    def find(self, cached_key: Any, earliest_end_ms: int, latest_start_ms: int) -> list[Session]:
        """Visible sessions with `end >= earliest_end_ms` and `start <= latest_start_ms`, by end, then start."""
        sessions = self._by_key.get(cached_key)
        if sessions is None:
            sessions = self._by_key[cached_key] = self._load(cached_key)
        visible = self.expired_before_ms
        while sessions and sessions[0][0] < visible:
            del sessions[0]
        return [session for session in sessions if session[0] >= earliest_end_ms and session[1] <= latest_start_ms]

    def put(self, cached_key: Any, start_ms: int, end_ms: int, entry: Entry) -> None:
        """Writes a session; the key's sessions must have been read with `find`."""
        session_id = (cached_key, start_ms, end_ms)
        sessions = self._by_key[cached_key]
        if not _drop(sessions, start_ms, end_ms) and session_id not in self.updates:
            self._uncommitted.add(session_id)
        self.updates[session_id] = entry
        if entry[0] is not None:
            insort(sessions, (end_ms, start_ms, entry[0]), key=_end_start)
        if end_ms > self.newest_ms:
            self.newest_ms = end_ms

    def remove(self, cached_key: Any, start_ms: int, end_ms: int, entry: Entry = DELETED) -> None:
        """Deletes a session that `find` returned."""
        session_id = (cached_key, start_ms, end_ms)
        _drop(self._by_key[cached_key], start_ms, end_ms)
        if session_id in self._uncommitted:
            self._uncommitted.discard(session_id)
            self.updates.pop(session_id, None)
        else:
            self.updates[session_id] = entry

    def committed_value(self, session_id: SessionId) -> Any | None:
        """The cached form of a session's value as of the last commit."""
        if session_id in self._uncommitted:
            return None
        raw = self._reader.get(self._bytes(session_id))
        return None if raw is None else self.codec.cached_value_of_bytes(raw)

    def fetch(self, key: Any) -> list[tuple[int, int, Any]]:
        """`(start_ms, end_ms, value)` of the sessions of a key, oldest first."""
        return [(start, end, value) for k, start, end, value in self.all() if k == key]

    def all(self) -> Iterator[tuple[Any, int, int, Any]]:
        """`(key, start_ms, end_ms, value)`, ordered by key bytes, then end, then start."""
        codec, visible = self.codec, max(0, self.expired_before_ms)
        merged: dict[bytes, Any] = {
            key: codec.cached_value_of_bytes(raw) for key, raw in self._reader.scan_time(visible, None)
        }
        merged.update((self._bytes(i), entry[0]) for i, entry in self.updates.items() if i[2] >= visible)
        rows = [(*_split(data), value) for data, value in merged.items() if value is not None]
        for key, start_ms, end_ms, value in sorted(rows, key=lambda row: (row[0], row[2], row[1])):
            yield codec.key_object(key), start_ms, end_ms, codec.value_of_cached(value)

    def take_changes(self) -> StoreChanges | None:
        """What was written or has expired since the last call; None if nothing."""
        visible = self.expired_before_ms
        changed: list[tuple[bytes, bytes | None]] = []
        for session_id, entry in self.updates.items():
            if session_id[2] >= visible:
                value = entry[0]
                if value is not None:
                    changed.append((self._bytes(session_id), self.codec.value_bytes(value)))
                elif session_id not in self._uncommitted:
                    changed.append((self._bytes(session_id), None))
        self.updates = {}
        self._uncommitted = set()
        expires = self.newest_ms > self._committed_newest_ms and visible > 0
        self._committed_newest_ms = self.newest_ms
        if len(self._by_key) > self._max_cached:
            for key in list(islice(self._by_key, len(self._by_key) - self._max_cached // 2)):
                del self._by_key[key]
        return StoreChanges(changed, visible if expires else None) if changed or expires else None

    def _load(self, cached_key: Any) -> list[Session]:
        if self._committed_newest_ms == NEVER:
            return []
        prefix = self.codec.cached_key_bytes(cached_key)
        stop = prefix + (self._committed_newest_ms + 1).to_bytes(TIME_BYTES, "big")
        found: list[Session] = []
        for data, raw in self._reader.scan(prefix, stop):
            # A longer key that starts with this one may lie between its sessions.
            if len(data) == len(prefix) + 2 * TIME_BYTES:
                _, start_ms, end_ms = _split(data)
                found.append((end_ms, start_ms, self.codec.cached_value_of_bytes(raw)))
        return sorted(found, key=_end_start)

    def _bytes(self, session_id: SessionId) -> bytes:
        key, start_ms, end_ms = session_id
        return (
            self.codec.cached_key_bytes(key) + start_ms.to_bytes(TIME_BYTES, "big") + end_ms.to_bytes(TIME_BYTES, "big")
        )


def _split(data: bytes) -> tuple[bytes, int, int]:
    start_ms = int.from_bytes(data[-2 * TIME_BYTES : -TIME_BYTES], "big")
    return data[: -2 * TIME_BYTES], start_ms, int.from_bytes(data[-TIME_BYTES:], "big")


def _drop(sessions: list[Session], start_ms: int, end_ms: int) -> bool:
    for position, session in enumerate(sessions):
        if session[0] == end_ms and session[1] == start_ms:
            del sessions[position]
            return True
    return False


def _end_start(session: Session) -> tuple[int, int]:
    return session[0], session[1]
