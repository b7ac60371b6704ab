"""A name node in a thread of the test: as much of WebHDFS as a sink of files needs, with its redirects and its rename.

Files are in memory. `create_beside` makes a file just before the next rename, as another writer would. Behind
`fails_after`, which names an operation, nothing is answered but an error; `hangs` answers nothing at all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"


@dataclass
class FakeHdfs:
    """What it has."""

    files: dict[str, bytes] = field(default_factory=dict)
    create_beside: dict[str, bytes] = field(default_factory=dict)
    fails_after: str = ""
    hangs: bool = False
    port: int = 0
    fails: bool = False

    def rename(self, source: str, target: str) -> bool:
        """False: there is such a file, and nothing was done."""
        self.files.update(self.create_beside)
        self.create_beside = {}
        if target in self.files:
            return False
        self.files[target] = self.files.pop(source)
        return True


@contextmanager
def fake_hdfs() -> Iterator[FakeHdfs]:
    """A server on a free port."""
    state = FakeHdfs()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            parts = urlsplit(self.path)
            path, query = unquote(parts.path.removeprefix(PREFIX)), {k: v[0] for k, v in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if state.hangs:
                time.sleep(5.0)
            if state.fails:
                return self._answer(503, b"")
            state.fails = query["op"] == state.fails_after
            match query["op"], self.command:
                case "MKDIRS", "PUT":
                    self._answer(200, {"boolean": True})
                case ("CREATE", "PUT") | ("APPEND", "POST") | ("OPEN", "GET") if "datanode" not in query:
                    self._answer(307, {}, location=f"http://127.0.0.1:{state.port}{self.path}&datanode=true")
                case "CREATE", "PUT":
                    state.files[path] = body
                    self._answer(201, {})
                case "APPEND", "POST":
                    state.files[path] += body
                    self._answer(200, {})
                case "OPEN", "GET" if path in state.files:
                    self._answer(200, state.files[path])
                case "GETFILESTATUS", "GET" if path in state.files:
                    length = len(state.files[path])
                    self._answer(200, {"FileStatus": {"type": "FILE", "length": length, "pathSuffix": ""}})
                case "RENAME", "PUT":
                    self._answer(200, {"boolean": state.rename(path, query["destination"])})
                case "DELETE", "DELETE":
                    self._answer(200, {"boolean": state.files.pop(path, None) is not None})
                case _:
                    gone = {"exception": "FileNotFoundException", "message": f"File does not exist: {path}"}
                    self._answer(404, {"RemoteException": gone})

        do_GET = do_PUT = do_POST = do_DELETE = _do

        def _answer(self, status: int, content: Any, location: str | None = None) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
