"""Stores that are beside the executors of a cluster, read through the servers there (`query_server.store_server`).

Every request says as of which batch it reads, and a server refuses if its task has gone on. So an answer is of one
batch, whatever the number of requests and of executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import urllib3

from deltaworks import clock
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StateBackend
from deltaworks.kernel.task_times import TASK_STORE
from deltaworks.runtime.state.local_store import StateVersion
from deltaworks.runtime.state.store_requests import (
    FORMAT,
    MAX_ENTRIES,
    PATH,
    SIGNATURE,
    Changes,
    Get,
    OfBatch,
    OfVersion,
    Part,
    Question,
    Request,
    Scan,
    ScanTime,
    Size,
    Version,
    signature,
)
from deltaworks.runtime.state.task_reader import IntentOf, unavailable

T = TypeVar("T")
_CONNECT_S, _ANSWER_S = 1.0, 5.0
_AWAY_S = 1.0
"""How long a server is not asked again that has not answered."""
_FIRST_ENTRIES = 256
_CONNECTIONS = 32
_OK, _UNKNOWN = 200, 401


class Servers:
    """The servers of a stream's executors, with connections to them. For any number of threads.

    Args:
        token: what requests are signed with.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._http = urllib3.PoolManager(
            maxsize=_CONNECTIONS, retries=False, timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
        )
        self._away: dict[str, float] = {}
        """URL -> until when it is not asked."""

    def ask(self, url: str, request: Request, kind: type[T]) -> T:
        """The answer of a server.

        Raises:
            StoreUnavailableError: it has none, or does not answer.
        """
        if clock.ticks_s() < self._away.get(url, 0.0):
            raise unavailable(f"the executor at {url} does not answer")
        body = msgspec.msgpack.encode(request)
        headers = {SIGNATURE: signature(self._token, body)}
        try:
            answer = self._http.request("POST", url + PATH, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            self._away[url] = clock.ticks_s() + _AWAY_S
            raise unavailable(f"the executor at {url} does not answer ({type(error).__name__})") from error
        if answer.status == _OK:
            return msgspec.msgpack.decode(answer.data, type=kind)
        if answer.status == _UNKNOWN:
            raise unavailable(f"the server at {url} belongs to another driver")
        raise unavailable(f"the executor at {url} says: {answer.data.decode(errors='replace')}")

    def close(self) -> None:
        """Ends all connections."""
        self._http.clear()


class RemoteTask:
    """The stores of a task beside its executor; as `TaskReader`, but for any number of threads.

    Args:
        servers: of the stream.
        url: of the server.
        stage: of the task.
        task: its number; None: a global table.
        intents: of the last committed batches.
    """

    def __init__(
        self, servers: Servers, url: str, stage: int, task: int | None, intents: tuple[tuple[int, str], ...]
    ) -> None:
        self._servers, self._url, self._stage, self._task, self._intents = servers, url, stage, task, intents

    def begin(self, batch: int, intent_of: IntentOf) -> RemoteState:
        """The state that a batch has left. Nothing is asked yet: each request says so."""
        return RemoteState(self, OfBatch(batch, self._intents), StateVersion(batch, b""), (self._url, batch))

    def begin_newest(self) -> RemoteState:
        """The newest state of a global table.

        Raises:
            StoreUnavailableError: there is none, or the server does not answer.
        """
        nonce = self.ask(TASK_STORE, OfVersion(None), Version(), bytes)
        return RemoteState(self, OfVersion(nonce), StateVersion(0, nonce), (self._url, nonce))

    def end(self) -> None:
        """As `TaskReader.end`."""

    def close(self) -> None:
        """As `TaskReader.close`."""

    def ask(self, store: str, state: OfBatch | OfVersion, question: Question, kind: type[T]) -> T:
        """The answer to a question of a store in a state."""
        request = Request(FORMAT, self._stage, self._task, store, state, question)
        return self._servers.ask(self._url, request, kind)


class RemoteState:
    """As `TaskState`, of a task beside its executor."""

    def __init__(self, task: RemoteTask, state: OfBatch | OfVersion, version: StateVersion, identity: object) -> None:
        self._task, self._state = task, state
        self.version, self.identity = version, identity
        self.backend: StateBackend = self
        self._readers: dict[str, RemoteReader] = {}

    def reader(self, store: str) -> RemoteReader:
        """As `StateBackend.reader`."""
        if store not in self._readers:
            self._readers[store] = RemoteReader(self, store)
        return self._readers[store]

    def ask(self, store: str, question: Question, kind: type[T]) -> T:
        """The answer to a question of a store as of this state."""
        return self._task.ask(store, self._state, question, kind)

    def size(self, store: str) -> tuple[int, int]:
        """As `TaskState.size`."""
        return self.ask(store, Size(), tuple[int, int])

    def changes(self, store: str, batch: int, intent_of: IntentOf) -> Sequence[tuple[bytes, bytes | None]] | None:
        """As `TaskState.changes`."""
        kind: Any = list[tuple[bytes, bytes | None]] | None
        found: Sequence[tuple[bytes, bytes | None]] | None = self.ask(store, Changes(), kind)
        return found


class RemoteReader:
    """`ReversibleReader` of a store beside an executor."""

    def __init__(self, state: RemoteState, store: str) -> None:
        self._state, self._store = state, store
        self._known: dict[bytes, bytes | None] = {}
        """What the task keeps about its stores, which every answer needs."""

    def get(self, key: bytes) -> bytes | None:
        if self._store != TASK_STORE:
            return self.get_many([key])[0]
        if key not in self._known:
            self._known[key] = self.get_many([key])[0]
        return self._known[key]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys, with one request."""
        return self._state.ask(self._store, Get(list(keys)), list[bytes | None])

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._scanned(start, stop, reverse=False)

    def scan_back(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Like `scan`, the last first."""
        return self._scanned(start, stop, reverse=True)

    def _scanned(self, start: bytes, stop: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        limit = _FIRST_ENTRIES
        while True:
            part = self._state.ask(self._store, Scan(start, stop, reverse, limit), Part)
            yield from part.entries
            if part.is_last:
                return
            last, limit = part.entries[-1][0], MAX_ENTRIES
            start, stop = (start, last) if reverse else (last + b"\0", stop)

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        limit, skip = _FIRST_ENTRIES, 0
        while True:
            part = self._state.ask(self._store, ScanTime(start_ms, stop_ms, skip, limit), Part)
            yield from part.entries
            if part.is_last:
                return
            last_ms = _time(part.entries[-1][0])
            of_last = sum(_time(key) == last_ms for key, _ in part.entries)
            skip = skip + of_last if last_ms == start_ms else of_last
            start_ms, limit = last_ms, MAX_ENTRIES


def _time(key: bytes) -> int:
    return int.from_bytes(key[-TIME_BYTES:], "big")
