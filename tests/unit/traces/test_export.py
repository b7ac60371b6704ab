"""What a receiver of OTLP gets, and what a driver notices of one that does not answer."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import SinkError
from deltaworks.settings import Settings
from deltaworks.traces.deliveries import CAPACITY
from deltaworks.traces.export import is_sampled, trace_id, traced
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.options import PATH, TraceOptions
from tests.support.otlp import Received, ReceivedSpan, otlp_receiver
from tests.unit.traces.batches import BEGUN_MS, BEGUN_S, SECRET, SPARK, begun, figures, results

TASK = ["open", "poll orders", "process orders", "commit", "commit transaction", "keep"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


def to(received: Received, **more: object) -> TraceOptions:
    return TraceOptions(**{"endpoint": received.endpoint + PATH, "timeout_s": 1, **more})  # type: ignore[arg-type]


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def children(spans: list[ReceivedSpan], parent: ReceivedSpan) -> list[ReceivedSpan]:
    return [span for span in spans if span.parent_id == parent.span_id]


def test_a_batch_arrives_as_one_trace_whose_spans_nest(settings: Settings) -> None:
    with otlp_receiver() as received:
        options = to(received, headers={"authorization": "Bearer t"})
        with traced(settings, "orders", 3, options, interval_s=0.5) as tracer:
            tracer.ended(figures(tasks=36, spark=False))
            tracer.spark_told(41, SPARK)
            spans = received.wait(1)
        assert tracer.dropped == 0
    [(path, headers, _)] = received.requests
    assert path == PATH and headers["authorization"] == "Bearer t"
    assert {span.trace_id for span in spans} == {f"{trace_id('orders', 'q', 41):032x}"}
    assert len({span.span_id for span in spans}) == len(spans) == 1 + 5 + 3 + 2 + 36 * (1 + len(TASK))
    (root,) = (span for span in spans if not span.parent_id)
    assert root.name == "batch" and root.attributes["deltaworks.batch.id"] == 41
    assert root.attributes["messaging.batch.message_count"] == 3_600
    assert root.attributes["deltaworks.trigger_seconds"] == 0.5
    parents = {span.span_id: span for span in spans}
    for span in spans:
        parent = parents.get(span.parent_id, span)
        assert parent.begin_ns <= span.begin_ns <= span.end_ns <= parent.end_ns
    assert sum(each.end_ns - each.begin_ns for each in children(spans, root)) == root.end_ns - root.begin_ns
    (tasks,) = (span for span in spans if span.name == "tasks")
    assert [span.name for span in children(spans, tasks)] == [f"task 0-{number}" for number in range(36)]
    (poll,) = (
        span
        for span in spans
        if span.attributes.get("deltaworks.offsets") == ["orders-7: 1000..1100"][:1]
        and span.attributes["messaging.operation.type"] == "receive"
    )
    assert poll.kind == 3, "client"
    assert parents[poll.parent_id].name == "task 0-7"
    assert not any(span.failed for span in spans)


def test_the_resource_says_which_driver_of_which_home_it_was(settings: Settings) -> None:
    settings = replace(
        settings, code=settings.home / "code" / "abc123", values=replace(settings.values, environment="prod")
    )
    with otlp_receiver() as received, traced(settings, "orders", 3, to(received)) as tracer:
        tracer.failed(begun_and_failed(SinkError("x")))
        (resource,) = {tuple(sorted(span.resource.items())) for span in received.wait(1)}
    about = dict(resource)
    host, pid = about.pop("host.name"), about.pop("process.pid")
    assert about == {
        "service.name": "orders",
        "service.namespace": "deltaworks",
        "service.instance.id": f"orders-3@{host}:{pid}",
        "service.version": "abc123",
        "deployment.environment.name": "prod",
        "deltaworks.generation": 3,
        "deltaworks.home": str(settings.home),
    }


def begun_and_failed(error: BaseException, batch_id: int = 41) -> BatchFigures:
    batch = begun(batch_id)
    batch.end(BEGUN_S + 0.5, (BEGUN_MS + 500) * 1_000_000, error)
    return batch


def test_a_batch_that_fails_is_in_error_and_does_not_quote_the_record(settings: Settings) -> None:
    with otlp_receiver() as received, traced(settings, "orders", 3, to(received, sample_ratio=0.0)) as tracer:
        tracer.ended(figures())
        tracer.failed(begun_and_failed(SinkError(f"no place for {SECRET}")))
        spans = received.wait(1)

    assert {span.name: span.failed for span in spans} == {"batch": True, "tasks": True}
    assert {span.attributes["error.type"] for span in spans} == {"deltaworks.errors.SinkError"}
    assert {span.message for span in spans} == {""}


def test_nothing_of_a_record_goes_out(settings: Settings) -> None:
    batch = figures()
    assert SECRET in repr(results(4)), "the statistics of a file have it"
    with otlp_receiver() as received, traced(settings, "orders", 3, to(received)) as tracer:
        tracer.ended(batch)
        tracer.failed(begun_and_failed(SinkError(SECRET), 42))
        received.wait(2)
    assert b"orders-0" in b"".join(body for _, _, body in received.requests)
    assert SECRET.encode() not in b"".join(body for _, _, body in received.requests)


def test_a_trace_of_very_many_tasks_goes_out_in_parts(settings: Settings) -> None:
    with otlp_receiver() as received, traced(settings, "orders", 3, to(received, timeout_s=60)) as tracer:
        tracer.ended(figures(tasks=800))
        tracer.close()
        spans = received.wait(2, timeout_s=120)
    assert len({span.span_id for span in spans}) == 1 + 5 + 3 + 2 + 800 * (1 + len(TASK))
    assert len({span.trace_id for span in spans}) == 1


@pytest.mark.parametrize("how", ["down", "hangs", "500", "503"])
def test_a_receiver_that_fails_costs_a_batch_nothing_and_is_told_once(
    settings: Settings, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    number = CAPACITY + 20
    with otlp_receiver() as received:
        options = to(received, timeout_s=20)
        if how == "down":
            with socket.create_server(("127.0.0.1", 0)) as taken:
                options = replace(options, endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}{PATH}")
        elif how == "hangs":
            received.hangs.set()
        else:
            received.status = int(how)
        with caplog.at_level(logging.INFO), traced(settings, "orders", 3, options, close_s=0.3) as tracer:
            begun_s = time.monotonic()
            for batch_id in range(number):
                tracer.ended(figures(batch_id))
            assert time.monotonic() - begun_s < 15, "a single request takes twenty seconds to be given up"
            until(lambda: tracer.dropped >= 1)
            until(lambda: "are not delivered" in caplog.text)
            ends = time.monotonic()
        assert time.monotonic() - ends < 15, "the end is bounded"
        assert tracer.dropped == number, "none has arrived, and each is counted"
        assert received.requests == []
    told = [record.getMessage() for record in caplog.records]
    assert sum("are not delivered" in line for line in told) == 1, told
    assert sum("before the end" in line for line in told) <= 1
    assert len(told) <= 2, told


def test_a_receiver_that_is_back_gets_what_comes_then(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as received, caplog.at_level(logging.INFO):
        received.status = 500
        with traced(settings, "orders", 3, options := to(received)) as tracer:
            tracer.failed(figures(1))
            until(lambda: tracer.dropped == 1)
            received.status = 200
            tracer.failed(figures(2))
            spans = received.wait(1)
    assert {span.attributes.get("deltaworks.batch.id") for span in spans} == {2, None}
    down, back = (record.getMessage() for record in caplog.records)
    assert down.startswith(f"traces are not delivered to {options.host}: ")
    assert "code: 500" in down and down.endswith(" The stream goes on without them.")
    assert back == f"traces are delivered to {options.host} again; those of 1 batches were dropped"


def test_a_header_that_cannot_be_sent_is_not_in_the_log(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as received, caplog.at_level(logging.DEBUG):
        options = to(received, headers={"authorization": "Bearer pass-word\nx"})
        with traced(settings, "orders", 3, options) as tracer:
            tracer.failed(figures(1))
            until(lambda: tracer.dropped == 1)
    assert "are not delivered" in caplog.text and "pass-word" not in caplog.text


def warned_of(settings: Settings, options: TraceOptions, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of a batch that does not arrive."""
    with caplog.at_level(logging.WARNING), traced(settings, "orders", 3, options) as tracer:
        tracer.failed(figures(1))
        until(lambda: tracer.dropped == 1)
        until(lambda: "are not delivered" in caplog.text)
    return caplog.text


def test_headers_of_opentelemetry_s_variables_are_not_in_the_log(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=pass-word%0A1,pass-word")
    with otlp_receiver() as received:
        assert "a header cannot be sent" in warned_of(settings, to(received), caplog)
    assert "pass-word" not in caplog.text


def test_a_redirect_is_no_delivery(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as received:
        received.status = 302
        assert "the answer, 302, leads to another address" in warned_of(settings, to(received), caplog)


def test_a_login_for_other_programs_does_not_replace_the_header(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with otlp_receiver() as received:
        options = to(received, headers={"authorization": "Bearer t"})
        with traced(settings, "orders", 3, options) as tracer:
            tracer.failed(figures(1))
            received.wait(1)
    assert received.requests[0][1]["authorization"] == "Bearer t"


@pytest.mark.parametrize("named", ["own", None])
def test_its_own_certificates_win_over_those_for_all_programs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str | None
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/everybody")
    ca_file = named and f"/nowhere/{named}"
    options = TraceOptions(endpoint="https://127.0.0.1:1/v1/traces", timeout_s=1, ca_file=ca_file)
    assert f"/nowhere/{named or 'everybody'}" in warned_of(settings, options, caplog)


@pytest.mark.parametrize("direct", [False, True])
def test_a_proxy_of_the_surroundings_is_used_unless_they_exempt_the_receiver(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with otlp_receiver() as received:
        host = "127.0.0.1" if direct else "collector.invalid"
        endpoint = received.endpoint.replace("127.0.0.1", host) + PATH
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1" if direct else received.endpoint)
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1" if direct else "localhost")
        with traced(settings, "orders", 3, to(received, endpoint=endpoint)) as tracer:
            tracer.failed(figures(1))
            received.wait(1)
    assert received.requests[0][0] == (PATH if direct else endpoint)


def test_the_library_logs_again_once_it_is_over(settings: Settings) -> None:
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    with otlp_receiver() as received, traced(settings, "orders", 3, to(received)):
        assert logger.filters
    until(lambda: not logger.filters)


def test_the_same_batches_are_sampled_by_every_driver() -> None:
    ids = [trace_id("orders", "q", batch) for batch in range(10_000)]

    assert all(is_sampled(each, 1.0) for each in ids)
    assert not any(is_sampled(each, 0.0) for each in ids)
    tenth = {each for each in ids if is_sampled(each, 0.1)}
    assert 900 < len(tenth) < 1_100
    assert tenth < {each for each in ids if is_sampled(each, 0.2)}
    assert len(set(ids)) == len(ids)
    assert f"{trace_id('orders', 'q', 41):032x}" == "5c50be087c8be028ac102c0460421fd8", "it never changes"


def test_only_the_sampled_ones_go_out(settings: Settings) -> None:
    wanted = {batch for batch in range(40) if is_sampled(trace_id("orders", "q", batch), 0.25)}
    assert 0 < len(wanted) < 40
    with otlp_receiver() as received:
        options = to(received, sample_ratio=0.25, timeout_s=60)
        with traced(settings, "orders", 3, options, close_s=60) as tracer:
            for batch in range(40):
                tracer.ended(figures(batch, tasks=1))
        found = {span.attributes["deltaworks.batch.id"] for span in received.spans if span.name == "batch"}
    assert found == wanted
