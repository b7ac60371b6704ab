"""Why a driver says that its query has ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.control import fence, topics
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import SilentReporter
from deltaworks.errors import FencedError, QueryError, TransientError
from deltaworks.runtime import messages
from deltaworks.runtime.messages import BatchHeader, Row
from deltaworks.settings import Settings
from deltaworks.spark import failures
from deltaworks.spark.streaming import StreamDriver
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.layout import batch_span
from deltaworks.traces.tracer import SamplingTracer
from tests.unit.spark.memory_bucket import MemoryBucket
from tests.unit.traces.batches import SPARK, begun, figures, results

CONCURRENT = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 0."


def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).to("out")


class Away(MemoryBucket):
    """A store that stops answering."""

    is_away = False

    def read(self, key: str) -> bytes | None:
        if self.is_away:
            raise TransientError("the store does not answer")
        return super().read(key)


@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize(("newest", "kind"), [(1, QueryError), (2, FencedError)])
def test_a_driver_whose_successor_spark_finds_first_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int, kind: type[Exception], in_store: bool
) -> None:
    store = Away()
    settings, nobody = replace(Settings.from_environment({}), home=tmp_path), Any
    pipeline = Pipeline(name="orders", topology=topology)
    paths = PipelinePaths.of(settings, pipeline.name)
    if in_store:
        lasting = store.root("lake/orders", tmp_path / "here")
        paths = replace(paths, lasting=lasting)
        monkeypatch.setattr(fence, "_advance_in_store", lambda path, n, _: path.write_text(f"{n}\n"))
    driver = StreamDriver(pipeline, settings, paths, nobody, 1, SilentReporter(), nobody)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        fence.advance(paths.fence, newest, pipeline.name)
        raise failures.as_error(StreamingQueryException(CONCURRENT))

    monkeypatch.setattr(topics, "prepare", fail)

    with pytest.raises(kind):
        driver.run(until_caught_up=True)


def test_a_driver_that_cannot_ask_whether_it_was_replaced_says_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Away()
    settings, nobody = replace(Settings.from_environment({}), home=tmp_path), Any
    pipeline = Pipeline(name="orders", topology=topology)
    paths = replace(PipelinePaths.of(settings, pipeline.name), lasting=store.root("lake/orders", tmp_path / "here"))
    driver = StreamDriver(pipeline, settings, paths, nobody, 1, SilentReporter(), nobody)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        store.is_away = True
        raise failures.as_error(StreamingQueryException(CONCURRENT))

    monkeypatch.setattr(topics, "prepare", fail)

    with pytest.raises(QueryError):
        driver.run(until_caught_up=True)


def traced_driver(folder: Path, traced: list[BatchFigures]) -> StreamDriver:
    settings, nobody = replace(Settings.from_environment({}), home=folder), Any
    pipeline = Pipeline(name="orders", topology=topology)
    paths = PipelinePaths.of(settings, pipeline.name)
    fence.advance(paths.fence, 1, pipeline.name)
    tracer = SamplingTracer(lambda _: True, traced.append, lambda: 3)
    return StreamDriver(pipeline, settings, paths, nobody, 1, SilentReporter(), nobody, tracer)  # type: ignore[arg-type]


class Frame:
    """What Spark hands to a driver."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def collect(self) -> Sequence[Row]:
        return self._rows


def test_a_batch_has_a_trace_with_all_that_the_driver_measures(tmp_path: Path) -> None:
    traced: list[BatchFigures] = []
    driver, given = traced_driver(tmp_path, traced), figures(tasks=3, exchanged=2)
    driver._current.sizes.parent.mkdir(parents=True, exist_ok=True)
    driver._first_batch = 40
    driver._intents = SimpleNamespace(require=lambda _: given.intent, require_same=lambda *_: None)  # type: ignore[assignment]
    header = BatchHeader(id=41, clock_ms=0, intent="", known=0)
    rows = [Row(0, r.stage, r.task, messages.RESULT, msgspec.msgpack.encode(r), b"") for r in results(3, 2)]
    rows.append(Row(0, 0, 0, messages.BATCH, b"", msgspec.msgpack.encode(header)))
    committer = SimpleNamespace(
        commit=lambda *_, **__: given.commits,
        refresh_snapshots=lambda: given.refreshed,
        publish_cut=lambda: None,
        stale_snapshots=[],
        tables={},
    )
    opened: Any = SimpleNamespace(
        committer=committer, checkpoint=SimpleNamespace(first_batch=40), watch=SimpleNamespace(check=lambda: None)
    )
    durable: Any = SimpleNamespace(committed=lambda _: None)
    in_spark = threading.Thread(target=driver._commit_batch, args=(opened, durable, Frame(rows), 1))
    in_spark.start()
    in_spark.join()
    query: Any = SimpleNamespace(lastProgress={"batchId": 1, "durationMs": {k: v * 1_000 for k, v in SPARK.items()}})
    assert traced == [], "Spark has not told yet"
    driver._trace_spark(query)
    driver._trace_spark(query)

    [batch] = traced
    assert (batch.batch_id, batch.generation, batch.error, batch.intent) == (41, 1, None, given.intent)
    assert (
        batch.results == given.results
        and batch.files == given.files
        and batch.commits == given.commits
        and batch.refreshed == given.refreshed
    )
    moments = [batch.begun_s, batch.processed_s, batch.committed_s, batch.ended_s]
    assert None not in moments and moments == sorted(moments)  # type: ignore[type-var]
    assert batch.spark_phases == SPARK
    spans = list(batch_span(batch).all())
    assert len(spans) == 1 + 5 + 3 + 2 + (3 + 2) * 7
    told = [spans[0].attributes["messaging.batch.message_count"], driver._health._beat.records_total]
    assert [*told, driver._health._rate._records] == [300, 300, 300], "exchanged records are not read again"
    assert driver._health._beat.traces_dropped == 3


@pytest.mark.parametrize(("newest", "kind"), [(1, "QueryError"), (2, "FencedError")])
def test_a_batch_that_an_error_ends_has_a_trace_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int, kind: str
) -> None:
    traced: list[BatchFigures] = []
    driver, batch = traced_driver(tmp_path, traced), begun()

    def fail(*_: object, **__: object) -> None:
        driver._figures = batch
        fence.advance(driver._paths.fence, newest, "orders")
        raise failures.as_error(StreamingQueryException(CONCURRENT))

    monkeypatch.setattr(topics, "prepare", fail)
    with pytest.raises((QueryError, FencedError)):
        driver.run(until_caught_up=True)

    assert traced == [batch]
    assert batch.error == f"deltaworks.errors.{kind}" and batch.ended_ns > 0
    assert batch_span(batch).error == batch.error


def test_an_error_between_batches_has_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[BatchFigures] = []

    def fail(*_: object, **__: object) -> None:
        raise QueryError("no")

    monkeypatch.setattr(topics, "prepare", fail)
    with pytest.raises(QueryError):
        traced_driver(tmp_path, traced).run(until_caught_up=True)

    assert traced == []
