"""The server as an ASGI application: the JSON of `documents.py` below `/api/`, and the front end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltaworks.errors import (
    ConfigurationError,
    ControlUnavailableError,
    DeltaworksError,
    TableError,
)
from deltaworks.query_server.access import ForbiddenError, UnknownClientError
from deltaworks.ui.access import Access, Client, require
from deltaworks.ui.documents import Me, Trouble
from deltaworks.ui.history import Watch
from deltaworks.ui.reading import NoSuchStreamError, Reader

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_DIGEST = re.compile(r"-[\w-]{8}\.\w+$")
_STATUS: tuple[tuple[type[DeltaworksError], int], ...] = (
    (ForbiddenError, 403),
    (NoSuchStreamError, 404),
    (ConfigurationError, 409),
    (TableError, 409),
    (ControlUnavailableError, 503),
)
OF_STREAM = {
    "": Reader.stream,
    "/topology": Reader.topology,
    "/tables": Reader.tables,
    "/dead-letters": Reader.letters,
    "/replays": Reader.replays,
}
"""Path below that of a stream -> what it answers."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the page is, and what is beside it.

    Attributes:
        airflow: address of Airflow, or the path of it here; None: the page names commands instead.
        docs: address of the documentation.
        hosts: names by which it may be asked, so that no other page has a browser ask it; empty: any.
    """

    airflow: str | None = None
    docs: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def within_airflow(self) -> str | None:
        """The path of Airflow, if its session says who looks; None: a token does."""
        return None if self.airflow is None or self.airflow.startswith("http") else self.airflow


Who = Callable[[Request], Awaitable[Client]]
"""Says who sends a request; raises `UnknownClientError` if nobody may."""


def by_token(access: Access) -> Who:
    """Who has which token."""

    async def who(request: Request) -> Client:
        return access.client(request.headers.get("authorization"))

    return who


def application(reader: Reader, watch: Watch, who: Who, place: Place) -> Starlette:
    """The application.

    Args:
        reader: reads the home.
        watch: keeps its heartbeats, while the application runs.
        who: says who asks.
        place: where it is.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watch.start()
        yield
        watch.close()

    async def me(request: Request) -> Response:
        client = await who(request)
        return _json(Me(role=client.role, airflow=place.airflow, docs=place.docs, version=version("deltaworks")))

    def of_home(answer: Callable[[Client], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return _json(await run_in_threadpool(answer, await who(request)))

        return endpoint

    def of_stream(answer: Callable[[Reader, str, Client], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            client, name = await who(request), request.path_params["name"]
            require(client, name)
            return _json(await run_in_threadpool(answer, reader, name, client))

        return endpoint

    async def unknown(_: Request, error: Exception) -> Response:
        assert isinstance(error, UnknownClientError)
        return nobody(error.message, error.hint)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code in (401, 403):  # Airflow's own words, the latter for a session that another key has signed
            told = f"Airflow knows nobody by this session ({error.detail})."
            return nobody(told, "log in to Airflow again, then come back to this page")
        return await _no_route(request, error)

    def nobody(error: str, hint: str | None) -> Response:
        trouble = Trouble(error=error, hint=hint, airflow=place.within_airflow)
        return _told(401, trouble, {"WWW-Authenticate": "Bearer"})

    headers = Middleware(_Headers, frames=_frames(place.airflow), hosts=frozenset(place.hosts))
    return Starlette(
        routes=[
            Route("/api/me", me),
            Route("/api/streams", of_home(reader.streams)),
            Route("/api/connectors", of_home(reader.connectors)),
            *(Route(f"/api/streams/{{name}}{path}", of_stream(answer)) for path, answer in OF_STREAM.items()),
            Route("/", _page),
            Route("/assets/{file}", _asset),
        ],
        middleware=[headers, Middleware(GZipMiddleware)],
        exception_handlers={UnknownClientError: unknown, DeltaworksError: _failed, HTTPException: refused},
        lifespan=lifespan,
    )


async def _page(_: Request) -> Response:
    """The page itself has no data: anybody may load it."""
    return _file(STATIC / "index.html", "no-cache")


async def _asset(request: Request) -> Response:
    """A file beside the page; one whose name has a digest of its content is never another one."""
    file = STATIC / "assets" / request.path_params["file"]
    if file.parent != STATIC / "assets":
        raise HTTPException(404)
    return _file(file, "public, max-age=31536000, immutable" if _DIGEST.search(file.name) else "no-cache")


def _file(file: Path, cache: str) -> Response:
    if not file.is_file():
        raise HTTPException(404)
    return FileResponse(file, media_type=_TYPES.get(file.suffix), headers={"Cache-Control": cache})


def _frames(airflow: str | None) -> str:
    """Which pages may show this one within them."""
    if not airflow:
        return "'self'"
    found = urlsplit(airflow)
    if not found.netloc:
        return "'self'"
    return f"'self' {found.scheme}://{found.netloc}"


class _Headers:
    """Says to browsers that the page loads nothing from elsewhere, and who may frame it; is asked by its own names."""

    def __init__(self, app: ASGIApp, frames: str, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            f"base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
        )
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._hosts and _host(scope) not in self._hosts:
            await _trouble(400, "This server has another name.", None)(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)


def _host(scope: Scope) -> str:
    """The host that a request names, without its port."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    named = headers.get(b"host", b"").decode("latin-1")
    return named.partition("]")[0] + "]" if named.startswith("[") else named.partition(":")[0]


def _json(answer: Any) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=headers)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, DeltaworksError)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return _trouble(status, error.message, error.hint)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _trouble(error.status_code, error.detail, None)


def _trouble(status: int, error: str, hint: str | None) -> Response:
    return _told(status, Trouble(error=error, hint=hint), {})


def _told(status: int, trouble: Trouble, headers: Mapping[str, str]) -> Response:
    headers = {"Cache-Control": "no-store", **headers}
    return Response(msgspec.json.encode(trouble), status, headers=headers, media_type="application/json")
