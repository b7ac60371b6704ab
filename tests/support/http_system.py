"""A system that speaks HTTP and can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answerer = Callable[[str, str, bytes], tuple[int, bytes]]
"""`(method, path with query, body) -> (status, body)`."""


class HttpSystem:
    """Answers on a port of its own; `stop` and `start` take it away and bring it back there.

    Args:
        answer: says what; it may be replaced at any time, and may block.
    """

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        """Paths, in the order in which they came."""
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        system = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                system.asked.append(self.path)
                system.headers.append(dict(self.headers.items()))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = system.answer(self.command, self.path, body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # whoever asked has given up
                    pass

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def http_system(answer: Answerer) -> Iterator[HttpSystem]:
    """A system that answers until the block ends."""
    system = HttpSystem(answer)
    system.start()
    try:
        yield system
    finally:
        system.stop()
