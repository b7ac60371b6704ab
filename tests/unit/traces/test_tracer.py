"""Which batches are handed on, and when."""

from __future__ import annotations

import pytest

from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.tracer import NoTracer, SamplingTracer
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
