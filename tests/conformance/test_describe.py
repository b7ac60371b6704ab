"""Every recorded description of a topology, to the letter."""

from __future__ import annotations

import pytest

from tests.conformance.data import Case, curated, described, random, without_expectations
from tests.conformance.run import describe_case


@pytest.mark.parametrize(
    "case",
    [case for case in curated() if described(case)],
    ids=lambda case: f"{case['family']}-{case['name']}",
)
def test_curated_case_is_described_as_by_kafka_streams(case: Case) -> None:
    assert describe_case(without_expectations(case)) == case["expected"]["describe"]


def test_random_cases_are_described_as_by_kafka_streams() -> None:
    cases = [case for case in random() if described(case)]

    assert [
        case["name"] for case in cases if describe_case(without_expectations(case)) != case["expected"]["describe"]
    ] == []
