"""The server as an ASGI application. One process, one thread: a question takes microseconds, a page milliseconds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from deltaworks import clock
from deltaworks.errors import (
    ConfigurationError,
    DeltaworksError,
    IncompatibleCheckpointError,
    NoSuchStoreError,
    StoreQueryError,
    StoreUnavailableError,
)
from deltaworks.queries import Changes, KeyValues, VersionedValues
from deltaworks.query_server.access import (
    Access,
    ForbiddenError,
    TooManyRequestsError,
    UnknownClientError,
    require,
)
from deltaworks.query_server.changes import changes
from deltaworks.query_server.following import Followers
from deltaworks.query_server.metrics import Metrics
from deltaworks.query_server.openapi import CHANGES, PIPELINES, STORE, STORE_CHANGES, STORES, Trouble, document
from deltaworks.query_server.parameters import read
from deltaworks.query_server.routes import MAX_KEYS, QUESTIONS, Question, json_of
from deltaworks.query_server.store_changes import Batches, OneKey, events, place_of
from deltaworks.query_server.streams import Streams

Endpoint = Callable[[Request], Awaitable[Response]]

MAX_FOLLOWERS = 1_000
"""Requests that follow a key or a store at once."""
_BODY_BYTES = MAX_KEYS * 4_096
_STATUS: tuple[tuple[type[DeltaworksError], int], ...] = (
    (UnknownClientError, 401),
    (ForbiddenError, 403),
    (NoSuchStoreError, 404),
    (StoreQueryError, 400),
    (ConfigurationError, 409),
    (IncompatibleCheckpointError, 409),
    (TooManyRequestsError, 429),
    (StoreUnavailableError, 503),
)
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}


def application(streams: Streams, access: Access) -> Starlette:
    """The application.

    Args:
        streams: the streams that are read; closed with the application.
        access: who may read what.
    """
    followers = Followers()
    metrics = Metrics(lambda: followers.number)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await followers.close()
        streams.close()

    def asking(question: Question) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            view = await _view(streams, access, request)
            question.require_kind(view)
            given = read(question.parameters, request.query_params)
            text = (await _body(request)) if question.takes_keys else request.path_params.get("key", "")
            name = request.path_params["pipeline"]
            return _json(await streams.answer(name, lambda: question.ask(view, text, given)))

        return endpoint

    def measured(question: str, endpoint: Endpoint) -> Endpoint:
        async def measuring(request: Request) -> Response:
            begun_s, status = clock.ticks_s(), 500
            try:
                response = await endpoint(request)
                status = response.status_code
            except DeltaworksError as error:
                status = _status(error)
                raise
            finally:
                metrics.answered(question, request.path_params, status, clock.ticks_s() - begun_s)
            return response

        return measuring

    async def follow(request: Request) -> Response:
        view = await _view(streams, access, request)
        if not isinstance(view, KeyValues | VersionedValues):
            return await follow_rows(view, request, OneKey(view.key_of_text(request.path_params["key"])))
        read((), request.query_params)
        require_room()
        key, name = view.key_of_text(request.path_params["key"]), request.path_params["pipeline"]
        ask = partial(streams.once, name, lambda: view.get(key))
        await streams.answer(name, lambda: view.get(key))  # what is wrong is said before the first event
        stream, last_id = await streams.stream(name), request.headers.get("last-event-id")
        return _events(changes(followers, name, stream.last_batch, ask, last_id))

    async def follow_store(request: Request) -> Response:
        view = await _view(streams, access, request)
        if isinstance(view, VersionedValues):
            raise StoreQueryError(
                f"The store {view.name!r} is versioned: it cannot be followed.", hint="follow its keys, /changes/KEY"
            )
        return await follow_rows(view, request, None)

    async def follow_rows(view: Any, request: Request, only: OneKey | None) -> Response:
        read((), request.query_params)
        require_room()
        last_id = request.headers.get("last-event-id")
        place = None if last_id is None else place_of(last_id)
        name = request.path_params["pipeline"]
        await streams.answer(name, view.changes)  # what is wrong is said before the first event

        def changed(batch: int | None) -> Awaitable[Changes[Any]]:
            return streams.once(name, lambda: view.changes(min_batch=batch))

        batches = followers.watched((name, view.name), lambda: Batches(changed))
        return _events(events(batches, place, only))

    def require_room() -> None:
        if followers.number >= MAX_FOLLOWERS:
            raise StoreUnavailableError(f"{MAX_FOLLOWERS} requests follow keys and stores already.")

    async def pipelines(request: Request) -> Response:
        client = access.client(request.headers.get("authorization"))
        read((), request.query_params)
        return _json([name for name in streams.names() if client.may_see(name)])

    async def stores(request: Request) -> Response:
        client, name = access.client(request.headers.get("authorization")), request.path_params["pipeline"]
        read((), request.query_params)
        if not client.may_see(name):
            require(client, name, "*")
        found = (await streams.stream(name)).all_metadata()
        return _json([each for each in found if client.may_read(name, each.store)])

    async def health(_: Request) -> Response:
        return _json({"status": "ok", "followers": followers.number})

    async def exposed(request: Request) -> Response:
        client = access.client(request.headers.get("authorization"))
        require(client, "*", "*")
        content, content_type = metrics.exposed(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type})

    async def openapi(_: Request) -> Response:
        return _json(document(version("deltaworks")))

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", exposed),
            Route("/openapi.json", openapi),
            Route(PIPELINES, measured("pipelines", pipelines)),
            Route(STORES, measured("stores", stores)),
            Route(CHANGES, measured("changes of a key", follow)),
            Route(STORE_CHANGES, measured("changes", follow_store)),
            *(
                Route(
                    f"{STORE}{question.path}",
                    measured(question.name, asking(question)),
                    methods=["POST" if question.takes_keys else "GET"],
                )
                for question in QUESTIONS
            ),
        ],
        exception_handlers={DeltaworksError: _failed, HTTPException: _no_route},
        lifespan=lifespan,
    )


async def _view(streams: Streams, access: Access, request: Request) -> Any:
    """The store of a request, whose sender may read it."""
    client = access.client(request.headers.get("authorization"))
    name, store = request.path_params["pipeline"], request.path_params["store"]
    require(client, name, store)
    return (await streams.stream(name)).store(store)


async def _body(request: Request) -> str:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > _BODY_BYTES:
            raise StoreQueryError(
                f"The request has more than {_BODY_BYTES:,} bytes.", hint=f"send up to {MAX_KEYS} keys"
            )
    return found.decode("utf-8", "replace")


def _events(found: AsyncGenerator[bytes, None]) -> Response:
    return StreamingResponse(found, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _json(answer: Any) -> Response:
    return Response(json_of(answer), media_type="application/json")


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, DeltaworksError)
    return _trouble(_status(error), error.message, error.hint)


def _status(error: DeltaworksError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _trouble(error.status_code, error.detail, "GET /openapi.json says what can be asked")


def _trouble(status: int, error: str, hint: str | None) -> Response:
    body = msgspec.json.encode(Trouble(error=error, hint=hint))
    return Response(body, status, headers=_HEADERS.get(status), media_type="application/json")
