"""Spans in OpenTelemetry's form, over OTLP and HTTP. The only module that imports OpenTelemetry."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests.exceptions import InvalidHeader, RequestException
from requests.utils import get_environ_proxies

from deltaworks.settings import Settings
from deltaworks.traces.deliveries import Deliveries
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.layout import Attribute, Kind, Span, batch_span
from deltaworks.traces.options import TraceOptions
from deltaworks.traces.tracer import SamplingTracer

_SPANS_PER_REQUEST = 5_000
_KINDS: Mapping[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
    "producer": SpanKind.PRODUCER,
}
_SCOPE = InstrumentationScope("deltaworks")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_THEIR_LOGS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.util.re",  # quotes headers of variables that it cannot read
)


def trace_id(pipeline: str, query_id: str, batch_id: int) -> int:
    """The trace of a batch, the same for each attempt at it, whichever driver makes it.

    Args:
        pipeline: its name.
        query_id: the checkpoint.
        batch_id: the batch.
    """
    text = f"{pipeline}/{query_id}/{batch_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def is_sampled(trace: int, ratio: float) -> bool:
    """Whether a trace is among a share of all, as `TraceIdRatioBased` of OpenTelemetry decides."""
    return trace & 0xFFFF_FFFF_FFFF_FFFF < round(ratio * 2**64)


@contextmanager
def traced(
    settings: Settings,
    pipeline: str,
    generation: int,
    options: TraceOptions,
    *,
    interval_s: float | None = None,
    close_s: float = 5.0,
) -> Iterator[SamplingTracer]:
    """A tracer whose traces are sent while the block runs.

    Args:
        settings: of the home.
        pipeline: the name of the pipeline.
        generation: of the driver.
        options: where traces go, and which.
        interval_s: the trigger interval of the pipeline.
        close_s: how long the end waits for those that are not sent yet.
    """
    exporter = Exporter(settings, pipeline, generation, options, interval_s=interval_s)
    deliveries = Deliveries(exporter.send, options.host, close_s=close_s, at_end=exporter.let_log, hide=exporter.hide)

    def sampled(batch: BatchFigures) -> bool:
        return is_sampled(trace_id(pipeline, batch.query_id, batch.batch_id), options.sample_ratio)

    tracer = SamplingTracer(sampled, deliveries.put, lambda: deliveries.dropped)
    try:
        yield tracer
    finally:
        tracer.close()
        deliveries.close()
        exporter.close()


class Exporter:
    """Sends traces; the library's log lines about failures become the answer of `send`.

    Args:
        settings: of the home.
        pipeline: the name of the pipeline.
        generation: of the driver.
        options: where traces go.
        interval_s: the trigger interval of the pipeline.
    """

    def __init__(
        self,
        settings: Settings,
        pipeline: str,
        generation: int,
        options: TraceOptions,
        *,
        interval_s: float | None = None,
    ) -> None:
        self._pipeline, self._options = pipeline, options
        self._attributes: dict[str, Attribute] = (
            {} if interval_s is None else {"deltaworks.trigger_seconds": interval_s}
        )
        self._resource = Resource(_about(settings, pipeline, generation))
        self._ids = RandomIdGenerator()
        self._last_words = _LastWords()
        for name in _THEIR_LOGS:
            logging.getLogger(name).addFilter(self._last_words)
        around = settings.surroundings()
        try:
            self._session = _Session(options.endpoint)
            self._exporter = OTLPSpanExporter(
                endpoint=options.endpoint,
                headers=options.headers,
                timeout=options.timeout_s,
                certificate_file=options.ca_file or around.get("REQUESTS_CA_BUNDLE") or around.get("SSL_CERT_FILE"),
                compression=Compression.Gzip,
                session=self._session,
            )
        except BaseException:
            self.let_log()
            raise

    def send(self, batch: BatchFigures) -> str | None:
        """Sends the trace of a batch; returns what is wrong, or None."""
        trace = trace_id(self._pipeline, batch.query_id, batch.batch_id)
        spans = list(self._spans(batch_span(batch, self._attributes), trace, None))
        for begin in range(0, len(spans), _SPANS_PER_REQUEST):
            if self._exporter.export(spans[begin : begin + _SPANS_PER_REQUEST]) is not SpanExportResult.SUCCESS:
                return self._last_words.said or "it was refused"
        return None

    def hide(self, text: str) -> str:
        """A text for the log, without the secrets of the options and of proxies."""
        return self._options.hide(text, *self._session.proxies.values())

    def close(self) -> None:
        """Ends a request that is being tried again, and the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def let_log(self) -> None:
        """Lets the library log again."""
        for name in _THEIR_LOGS:
            logging.getLogger(name).removeFilter(self._last_words)

    def _spans(self, span: Span, trace: int, parent: SpanContext | None) -> Iterator[ReadableSpan]:
        context = SpanContext(trace, self._ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED)
        attributes = span.attributes if span.error is None else {**span.attributes, "error.type": span.error}
        yield ReadableSpan(
            span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=_KINDS[span.kind],
            status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
            start_time=span.begin_ns,
            end_time=span.end_ns,
            instrumentation_scope=_SCOPE,
        )
        for child in span.children:
            yield from self._spans(child, trace, context)


class _Session(requests.Session):
    """A session that takes nothing but proxies from its surroundings: no login of `.netrc`, and no bundle instead of
    the one that it is told.

    Args:
        endpoint: whom it will talk to.
    """

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.trust_env = False
        self.proxies.update(get_environ_proxies(endpoint))
        self.hooks["response"].append(_require_no_redirect)

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        try:
            return super().prepare_request(request)
        except InvalidHeader:  # it quotes the header, which may be one of a variable of OpenTelemetry
            raise InvalidHeader("a header cannot be sent") from None


def _require_no_redirect(response: requests.Response, *_: object, **__: object) -> None:
    """The library takes a redirect for a success, though nobody has got anything."""
    if 300 <= response.status_code < 400:
        response.close()  # nobody else has it
        raise RequestException(f"the answer, {response.status_code}, leads to another address")


class _LastWords(logging.Filter):
    """Keeps the last line of a logger from the log; a `Deliveries` says it when something has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.said = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.said = record.getMessage()
        return False


def _about(settings: Settings, pipeline: str, generation: int) -> dict[str, str | int]:
    """What all traces of a driver say of it."""
    host, pid = socket.gethostname(), os.getpid()
    found: dict[str, str | int] = {
        "service.name": pipeline,
        "service.namespace": "deltaworks",
        "service.instance.id": f"{pipeline}-{generation}@{host}:{pid}",
        "host.name": host,
        "process.pid": pid,
        "deltaworks.generation": generation,
        "deltaworks.home": str(settings.home),
    }
    if settings.values.environment is not None:
        found["deployment.environment.name"] = settings.values.environment
    if settings.code is not None:
        found["service.version"] = settings.code.name
    return found
