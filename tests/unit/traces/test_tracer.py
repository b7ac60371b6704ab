"""Which batches are handed on, and when."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from deltaworks import Pipeline
from deltaworks.settings import Settings
from deltaworks.traces import export
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.tracer import NoTracer, SamplingTracer, tracing
from tests.unit.traces.batches import SPARK, begun, figures


@pytest.fixture
def handed() -> list[BatchFigures]:
    return []


@pytest.fixture
def tracer(handed: list[BatchFigures]) -> SamplingTracer:
    return SamplingTracer(lambda batch: batch.batch_id != 13, handed.append, lambda: 5)


def test_a_batch_is_handed_on_once_spark_has_told_of_it(tracer: SamplingTracer, handed: list[BatchFigures]) -> None:
    batch = figures(1, spark=False)
    tracer.ended(batch)
    waited = [tracer.waits]
    tracer.spark_told(0, SPARK)
    assert handed == [], "it told of the one before"
    waited.append(tracer.waits)
    tracer.spark_told(1, SPARK)

    assert handed == [batch] and batch.spark_phases == SPARK
    assert [*waited, tracer.waits] == [True, True, False]
    tracer.spark_told(1, SPARK)
    assert handed == [batch]


def test_a_batch_of_which_spark_has_not_told_goes_with_the_next_one(
    tracer: SamplingTracer, handed: list[BatchFigures]
) -> None:
    first, second = figures(1, spark=False), figures(2, spark=False)
    tracer.ended(first)
    tracer.ended(second)
    assert handed == [first] and tracer.waits
    tracer.close()
    assert handed == [first, second] and not second.spark_phases


def test_a_batch_that_is_not_sampled_is_handed_on_only_if_it_fails(
    tracer: SamplingTracer, handed: list[BatchFigures]
) -> None:
    before = figures(12, spark=False)
    tracer.ended(before)
    tracer.ended(figures(13))
    assert handed == [before] and not tracer.waits
    failed = begun(13)
    tracer.failed(failed)
    assert handed == [before, failed]
    assert tracer.dropped == 5


def test_without_traces_nobody_waits_for_spark() -> None:
    tracer = NoTracer()
    tracer.ended(figures())
    tracer.failed(figures())
    tracer.spark_told(41, SPARK)
    assert not tracer.waits and tracer.dropped == 0


def settings_of(folder: Path, said: str) -> Settings:
    (folder / "deltaworks.toml").write_text(f"[traces]\n{said}\n")
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(folder), "DELTAWORKS_HOME": str(folder / "home")})


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("said", "error", "problem"),
    [
        ('endpoint = { env = "NOWHERE" }', None, "refers to the variable NOWHERE, which is not set."),
        ('endpoint = "http://h"\nheaders = { command = ["false"] }', None, "headers"),
        (
            'endpoint = "http://h"',
            ModuleNotFoundError("pass-word"),
            "ModuleNotFoundError of OpenTelemetry (pip install",
        ),
        ('endpoint = "http://h"', RuntimeError("pass-word"), "RuntimeError of OpenTelemetry."),
    ],
)
def test_a_driver_goes_on_without_traces_that_cannot_be_sent_and_counts_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: str,
    error: Exception | None,
    problem: str,
) -> None:
    if error is not None:
        monkeypatch.setattr(export, "OTLPSpanExporter", lambda **_: raise_it(error))
    pipeline = Pipeline(name="orders", topology=lambda _: None)
    with caplog.at_level(logging.WARNING), tracing(settings_of(tmp_path, said), pipeline, 1) as tracer:
        tracer.ended(figures(1))
        tracer.spark_told(1, SPARK)
        tracer.failed(begun(2))

    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("there are no traces of this driver: ") and problem in line
    assert line.endswith(" The stream goes on without them.") and "pass-word" not in line
    assert tracer.dropped == 2 and not tracer.waits
    assert not logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").filters


def test_an_error_of_the_stream_is_not_one_of_its_traces(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'endpoint = "http://127.0.0.1:1"')
    with pytest.raises(ImportError, match="of the stream"), tracing(settings, Pipeline(name="o", topology=print), 1):
        raise ImportError("of the stream")
