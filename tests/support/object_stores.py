"""A store that speaks S3, and a proxy before it that loses, delays and spoils what goes through it."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from deltaworks.object_store import ObjectStoreAccess, S3Bucket, S3Files
from deltaworks.settings import Settings
from deltaworks.stack import ports, seaweedfs
from deltaworks.stack.components import Software
from tests.support.in_memory import temporary_folder

ENDPOINT = "DELTAWORKS_TESTS_S3"
"""Variable with the endpoint, for processes that tests start."""
BUCKET = "files"
S3_TABLE = """
[s3]
endpoint = "https://s3.example.com"
region = "eu-1"
access_key = "me"
secret_key = "s3cret"
path_style = true
"""
"""How a store is reached, as `deltaworks.toml` says it."""
Fault = Literal["refused", "answer lost", "failed after all", "slow down", "cut off", "conflict"]
"""What happens to a request: it does not arrive, or has its effect and no answer, or an answer that says it failed; or
it is put off; or half of its answer comes; or it is told to come again."""


def access(endpoint: str | None = None) -> ObjectStoreAccess:
    """To the store of the tests."""
    return ObjectStoreAccess(
        endpoint=endpoint or os.environ[ENDPOINT],
        region="us-east-1",
        access_key="tests",
        secret_key="tests",
        path_style=True,
    )


def make(root: Path) -> S3Files:
    """The files of a test, whose folder is their prefix."""
    return S3Files(S3Bucket(access(), BUCKET, patience_s=20), root.as_posix())


def with_free_ports(settings: Settings) -> Settings:
    """Settings whose stack has an object store on ports that nobody has."""
    while True:
        settings = replace(settings, s3_port=ports.free_ports(1)[0])
        if all(map(ports.is_free, seaweedfs.inner_ports(settings).values())):
            return settings


@contextmanager
def moto() -> Iterator[str]:
    """A server that keeps everything in memory, with a bucket; the endpoint is in the environment, too."""
    (port,) = ports.free_ports(1)
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with _served(command, port, lambda: ports.answers(port)) as endpoint:
        access(endpoint).client().create_bucket(Bucket=BUCKET)
        yield endpoint


@contextmanager
def seaweed() -> Iterator[str]:
    """As `moto`, by a server that answers three times as fast: for tests of many requests that need no more of S3."""
    with temporary_folder("deltaworks-s3-") as home:
        settings = with_free_ports(replace(Settings.from_environment({}), home=Path(home)))
        seaweedfs.prepare(settings, lambda line: None)
        for name in ("access.key", "secret.key"):
            (settings.s3 / "secrets" / name).write_text("tests")
        software = Software(version="", settings={"bucket": BUCKET})
        command, environment = seaweedfs.command(settings, software), seaweedfs.environment(settings)
        with _served(
            command, settings.s3_port, lambda: seaweedfs.answers(settings, software), cwd=settings.s3, env=environment
        ) as endpoint:
            yield endpoint
        seaweedfs.tidy(settings)


@contextmanager
def _served(command: list[str], port: int, ready: Callable[[], bool], **where: Any) -> Iterator[str]:
    """Starts a server; nothing of it is needed any more afterwards."""
    endpoint, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where) as server:
        try:
            while not ready():
                assert server.poll() is None and time.monotonic() < end, "the server of S3 does not start"
                time.sleep(0.05)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(ENDPOINT, endpoint)
                yield endpoint
        finally:
            server.kill()


class Faults:
    """A proxy before a store.

    Args:
        endpoint: of the store.
        certificate: with which the proxy speaks TLS, with its key; None: it does not.

    Attributes:
        planned: what happens to the next requests of a method, in this order; then they pass.
        requests: the methods of all requests so far.
        between: called once, after the next request that is lost or fails after all has had its effect.
        done: what has happened so far.
        by_chance: says what happens to a request for which nothing is planned, by method and headers (in small
            letters); None: nothing.
    """

    def __init__(self, endpoint: str, certificate: Path | None = None) -> None:
        self._upstream = endpoint.removeprefix("http://")
        self.planned: dict[str, deque[Fault]] = {}
        self.requests: list[str] = []
        self.between: Callable[[], None] | None = None
        self.done: Counter[Fault] = Counter()
        self.by_chance: Callable[[str, Mapping[str, str]], Fault | None] = lambda method, headers: None
        faults = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                faults._pass(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.endpoint = self.endpoint.replace("http:", "https:")

    def plan(self, method: str, *faults: Fault) -> None:
        """Says what happens to the next requests of a method."""
        self.planned[method] = deque(faults)

    def __enter__(self) -> Faults:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, handler: BaseHTTPRequestHandler) -> None:
        method = handler.command
        self.requests.append(method)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        planned = self.planned.get(method)
        fault = (
            planned.popleft()
            if planned
            else self.by_chance(method, {name.lower(): value for name, value in handler.headers.items()})
        )
        if fault is not None:
            self.done[fault] += 1
        if fault == "refused":
            handler.close_connection = True
            return
        if fault in ("slow down", "conflict"):
            code, status = ("SlowDown", 503) if fault == "slow down" else ("ConditionalRequestConflict", 409)
            _answer(handler, status, code)
            return
        status, headers, answer = self._forward(handler, body)
        if fault in ("answer lost", "failed after all") and (between := self.between) is not None:
            self.between = None
            between()
        if fault == "answer lost":
            handler.close_connection = True
        elif fault == "failed after all":
            _answer(handler, 500, "InternalError")
        else:
            handler.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    handler.send_header(name, value)
            length = {name.lower(): value for name, value in headers}.get("content-length", str(len(answer)))
            handler.send_header("Content-Length", length if method == "HEAD" else str(len(answer)))
            handler.end_headers()
            if method != "HEAD":
                handler.wfile.write(answer[: len(answer) // 2] if fault == "cut off" else answer)
            if fault == "cut off":
                handler.close_connection = True

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "expect"}
            connection.request(handler.command, handler.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _answer(handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planted</Message></Error>".encode()
    handler.send_response_only(status)
    handler.send_header("Content-Type", "application/xml")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
