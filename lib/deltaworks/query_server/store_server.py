"""The server beside the stores of an executor: `python -m deltaworks.query_server.store_server`, started by a worker.

Stores are read by a process of their own, because Python's workers come and go, and tasks wander between them. It ends
with the process whose workers fill the stores (`store_process`), and answers nobody who has not the driver's token.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from deltaworks.errors import DeltaworksError, StoreQueryError
from deltaworks.kernel.stores.state import ReversibleReader
from deltaworks.runtime.state.store_requests import (
    FORMAT,
    GLOBAL,
    MAX_BYTES,
    MAX_ENTRIES,
    PATH,
    SIGNATURE,
    Changes,
    Entries,
    Get,
    OfBatch,
    Part,
    Request,
    Scan,
    ScanTime,
    Size,
    Start,
    Version,
    signature,
)
from deltaworks.runtime.state.task_reader import TaskReader, TaskReaders, TaskState, unavailable


class StoreServer:
    """Answers requests. For one thread.

    Args:
        folder: of the stores of all tasks.
        stores: by stage; as in `Start`.
    """

    def __init__(self, folder: Path, stores: dict[str, dict[str, bool]]) -> None:
        self._stores, self._readers = stores, TaskReaders(folder)

    def answer(self, body: bytes) -> bytes:
        """The answer to a request.

        Raises:
            StoreQueryError: it is no request of this version.
            StoreUnavailableError: the store cannot be read now.
        """
        request = _decoded(body)
        reader = self._reader(request)
        try:
            return msgspec.msgpack.encode(self._asked(request, reader))
        finally:
            reader.end()

    def close(self) -> None:
        """Lets go of all stores."""
        self._readers.close()

    def _reader(self, request: Request) -> TaskReader:
        stage = f"{GLOBAL if request.task is None else ''}{request.stage}"
        stores = self._stores.get(stage, {})
        if request.store not in stores:
            raise StoreQueryError(f"Stage {stage} has no store {request.store!r}.")
        return self._readers.reader(request.stage, request.task, stores)

    def _asked(self, request: Request, reader: TaskReader) -> Any:
        wanted = request.state
        intents = dict(wanted.intents) if isinstance(wanted, OfBatch) else {}
        if isinstance(wanted, OfBatch):
            state = reader.begin(wanted.batch, intents.get)
        else:
            state = reader.begin_newest()
            if wanted.nonce is not None and state.version.nonce != wanted.nonce:
                raise unavailable("the global table has been read further")
        question = request.question
        match question:
            case Size():
                return state.size(request.store)
            case Version():
                return state.version.nonce
            case Changes():
                assert isinstance(wanted, OfBatch)
                return state.changes(request.store, wanted.batch, intents.get)
            case Get():
                reading = _entries_of(state, request.store)
                return [reading.get(key) for key in question.keys]
            case Scan():
                reading = _entries_of(state, request.store)
                scan = reading.scan_back if question.reverse else reading.scan
                return _part(scan(question.start, question.stop), question.limit)
            case ScanTime():
                found = _entries_of(state, request.store).scan_time(question.start_ms, question.stop_ms)
                return _part(islice(found, question.skip, None), question.limit)


def _entries_of(state: TaskState, store: str) -> ReversibleReader:
    reader = state.backend.reader(store)
    assert isinstance(reader, ReversibleReader)
    return reader


def _part(found: Iterator[tuple[bytes, bytes]], limit: int) -> Part:
    entries: Entries = []
    size = 0
    for key, value in found:
        if len(entries) >= min(limit, MAX_ENTRIES) or size >= MAX_BYTES:
            return Part(entries, False)
        entries.append((key, value))
        size += len(key) + len(value)
    return Part(entries, True)


def _decoded(body: bytes) -> Request:
    try:
        request = msgspec.msgpack.decode(body, type=Request)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreQueryError(f"This is no request to a store: {error}.") from error
    if request.format != FORMAT:
        raise StoreQueryError(f"The request has format {request.format}; this server reads format {FORMAT}.")
    return request


def application(server: StoreServer, token: str, name: str, *, until: int | None = None) -> Starlette:
    """The server as an ASGI application.

    Args:
        server: answers.
        token: what requests are signed with.
        name: of the server.
        until: a pidfd: the process ends when that one does.
    """

    async def read(request: HttpRequest) -> Response:
        body = await request.body()
        if not hmac.compare_digest(signature(token, body), request.headers.get(SIGNATURE, "")):
            return Response("the signature is another one", 401)
        try:
            return Response(server.answer(body), media_type="application/msgpack")
        except StoreQueryError as error:
            return Response(error.message, 400)
        except DeltaworksError as error:
            return Response(error.message, 503)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if until is not None:
            asyncio.get_running_loop().add_reader(until, os._exit, 0)
        yield
        server.close()

    return Starlette(routes=[Route(f"/{name}{PATH}", read, methods=["POST"])], lifespan=lifespan)


def main() -> None:
    """Serves until the process whose workers fill the stores has ended."""
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    app = application(StoreServer(Path(start.folder), start.stores), start.token, start.name, until=start.host_process)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run([socket.socket(fileno=start.listener)])


if __name__ == "__main__":
    main()
