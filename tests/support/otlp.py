"""A receiver of OpenTelemetry's traces: OTLP over HTTP, with Protobuf, as a collector speaks it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """A span, and what its resource says."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    begin_ns: int
    end_ns: int
    kind: int
    failed: bool
    message: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Received:
    """What a receiver has got."""

    endpoint: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Path, headers and Protobuf of each request."""
    status: int = 200
    """What it answers."""
    hangs: threading.Event = field(default_factory=threading.Event)
    """While it is set, no request gets an answer."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Of all requests that were answered with 200."""
        found = []
        for _, _, body in self.requests:
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _values(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    found += [_span(each, resource) for each in of_scope.spans]
        return found

    def wait(self, requests: int, timeout_s: float = 20.0) -> list[ReceivedSpan]:
        """The spans, once so many requests have come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.requests) >= requests, timeout_s)
        assert came, f"{len(self.requests)} of {requests} requests came"
        return self.spans

    def add(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keeps a request."""
        with self._changed:
            self.requests.append((path, headers, body))
            self._changed.notify_all()


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[Received]:
    """A receiver at 127.0.0.1 while the block runs.

    Args:
        port: where it listens; 0: any free one.
    """
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            while received.hangs.is_set():
                closing.wait(0.05)
                if closing.is_set():
                    return
            if received.status == 200:
                received.add(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(received.status)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    closing = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    received.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield received
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _span(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        begin_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        kind=span.kind,
        failed=span.status.code == 2,
        message=span.status.message,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
