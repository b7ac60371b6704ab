"""A search server in a thread of the test: bulk requests with external versions, as Elasticsearch 8 answers them.

It keeps versions of deleted documents, maps each field to the type that it has first, and misbehaves as it is told. It
ends requests, but searches nothing.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DROPPED, DROPPED_AFTER = "the connection is closed", "the connection is closed when the request is done"


@dataclass
class FakeSearch:
    """What it has, and what it does next."""

    documents: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Index -> id -> document."""
    versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of deleted documents, too."""
    types: dict[tuple[str, str], type] = field(default_factory=dict)
    """Index and field -> what it holds."""
    misbehaviour: deque[int | str] = field(default_factory=deque)
    """For the requests to come: a status, `DROPPED` or `DROPPED_AFTER`."""
    busy: deque[int] = field(default_factory=deque)
    """For the items to come: statuses; 0: as usual."""
    error: dict[str, Any] | None = None
    """Each item gets it."""
    limit: int = 1 << 30
    """The largest request."""
    authorization: str | None = None
    """The header that a request needs."""
    requests: list[list[dict[str, Any]]] = field(default_factory=list)
    """The actions of each request."""
    writes: int = 0
    """Documents that were written or deleted."""
    url: str = ""

    def bulk(self, body: bytes) -> dict[str, Any]:
        """Does what a request says."""
        lines = iter(body.split(b"\n")[:-1])
        actions, items = [], []
        for line in lines:
            ((kind, place),) = json.loads(line).items()
            source = json.loads(next(lines)) if kind == "index" else None
            actions.append({kind: place})
            items.append({kind: self._item(place, source)})
        self.requests.append(actions)
        return {"took": 1, "errors": any("error" in item for each in items for item in each.values()), "items": items}

    def _item(self, place: dict[str, Any], source: dict[str, Any] | None) -> dict[str, Any]:
        index, name, version = place["_index"], place["_id"], place["version"]
        assert place["version_type"] == "external_gte"
        answer = {"_index": index, "_id": name}
        if self.busy and (status := self.busy.popleft()):
            kind = "es_rejected_execution_exception" if status == 429 else "unavailable_shards_exception"
            return {**answer, "status": status, "error": {"type": kind, "reason": "busy"}}
        if self.error is not None:
            return {**answer, **self.error}
        for column, cell in (source or {}).items():  # documents are parsed before their versions are compared
            known = self.types.setdefault((index, column), type(cell))
            if cell is not None and known is not type(cell):
                reason = f"failed to parse field [{column}] of type [long] in document with id '{name}'"
                caused = {"type": "illegal_argument_exception", "reason": f'For input string: "{cell}"'}
                error = {"type": "document_parsing_exception", "reason": reason, "caused_by": caused}
                return {**answer, "status": 400, "error": error}
        current = self.versions.get((index, name), -1)
        if version < current:
            reason = (
                f"[{name}]: version conflict, current version [{current}] is higher than the one provided [{version}]"
            )
            error = {"type": "version_conflict_engine_exception", "reason": reason}
            return {**answer, "status": 409, "error": error}
        self.versions[index, name] = version
        self.writes += 1
        there = self.documents.setdefault(index, {})
        if source is not None:
            is_new = name not in there
            there[name] = source
            return {**answer, "_version": version, "status": 201 if is_new else 200}
        found = there.pop(name, None)
        result = "not_found" if found is None else "deleted"
        return {**answer, "_version": version, "result": result, "status": 404 if found is None else 200}


@contextmanager
def fake_search(port: int = 0) -> Iterator[FakeSearch]:
    """A server on a free port."""
    state = FakeSearch()
    alone = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/_bulk" and self.headers["Content-Type"] == "application/x-ndjson"
            with alone:
                if state.authorization is not None and self.headers.get("Authorization") != state.authorization:
                    return self._answer(401, {"error": {"type": "security_exception"}, "status": 401})
                if len(body) > state.limit:
                    return self._answer(413, {"error": "too large", "status": 413})
                wrong = state.misbehaviour.popleft() if state.misbehaviour else None
                if isinstance(wrong, int):
                    return self._answer(wrong, {"error": {"type": "wrong"}, "status": wrong})
                answer = {} if wrong == DROPPED else state.bulk(body)
                if wrong is not None:
                    self.close_connection = True
                    self.connection.close()
                    return None
            return self._answer(200, answer)

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
