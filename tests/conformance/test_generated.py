"""Cases that nobody wrote: variations of the recorded ones, with what Kafka Streams does in them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.compare import differences
from tests.conformance.data import Case, curated, described, generated, once_different, random, without_expectations
from tests.conformance.run import describe_case, run_case


@pytest.mark.parametrize("case", list(once_different()), ids=lambda case: case["name"])
def test_what_was_once_different_is_as_in_kafka_streams(case: Case) -> None:
    plain = without_expectations(case)

    assert differences(case, run_case(plain)) == []
    assert not described(case) or describe_case(plain) == case["expected"]["describe"]


@pytest.mark.parametrize("kept", [object, str], ids=["bytes", "objects"])
def test_generated_cases_are_as_in_kafka_streams(kept: type) -> None:
    wrong = {
        case["name"]: found
        for case in generated()
        if (found := differences(case, run_case(without_expectations(case), kept=kept)))
    }

    assert wrong == {}


def test_generated_cases_are_described_as_by_kafka_streams() -> None:
    assert [
        case["name"]
        for case in generated()
        if described(case) and describe_case(without_expectations(case)) != case["expected"]["describe"]
    ] == []


def test_there_are_generated_cases_of_every_family() -> None:
    families = {str(case["family"]).removeprefix("random ") for case in [*curated(), *random()]}
    counted = Counter(str(case["family"]).removeprefix("generated ") for case in generated())

    assert counted.keys() == families
    assert min(counted.values()) >= 12
