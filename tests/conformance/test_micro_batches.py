"""Every recorded case in random micro-batches with random restarts: the results are those of Kafka Streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.conformance import data
from tests.conformance.cuts import Arrival, Trace
from tests.conformance.data import Case, curated, generated, once_different
from tests.conformance.hosts import recorded
from tests.conformance.micro_batches import CaseInMicroBatches, differences_on


@pytest.mark.parametrize("cases", [curated, generated, once_different])
def test_a_case_is_the_same_in_micro_batches(cases: Callable[[], Iterable[Case]]) -> None:
    assert wrong(cases(), cuts=3) == {}


def test_random_cases_are_the_same_in_micro_batches() -> None:
    assert wrong(data.random(), cuts=1) == {}


def test_few_cases_cannot_be_compared() -> None:
    reasons = Counter(CaseInMicroBatches(case).not_comparable for case in [*curated(), *generated()])

    assert reasons.total() - reasons[None] == 24


def test_most_cases_have_batches_of_several_records() -> None:
    traces = [each.trace for case in curated() if not (each := CaseInMicroBatches(case)).not_comparable]

    assert sum(any(trace.may_share_a_batch(at, at + 1) for at in pairs(trace)) for trace in traces) > 240


@pytest.mark.parametrize("family", ["joins_stream_table", "joins_global", "joins_fk"])
def test_batches_that_change_the_order_are_found(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trace, "may_share_a_batch", any_records)

    assert wrong((case for case in curated() if case["family"] == family), cuts=4) != {}


def wrong(cases: Iterable[Case], *, cuts: int) -> dict[str, list[str]]:
    return {case["name"]: found for case in cases if (found := differences_on(recorded, case, cuts=cuts))}


def pairs(trace: Trace) -> range:
    return range(len(trace.steps) - 1)


def any_records(trace: Trace, first: int, last: int) -> bool:
    return all(isinstance(step, Arrival) for step in trace.steps[first : last + 1])
