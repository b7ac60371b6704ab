"""Every recorded case on the test driver, compared as the SPEC says."""

from __future__ import annotations

import pytest

from tests.conformance.compare import differences
from tests.conformance.data import Case, curated, random, without_expectations
from tests.conformance.run import run_case

_CURATED = 312
_RANDOM = 1500


@pytest.mark.parametrize("case", list(curated()), ids=lambda case: f"{case['family']}-{case['name']}")
@pytest.mark.parametrize("kept", [object, str], ids=["bytes", "objects"])
def test_curated_case_is_as_in_kafka_streams(case: Case, kept: type) -> None:
    assert differences(case, run_case(without_expectations(case), kept=kept)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kept", [object, str], ids=["bytes", "objects"])
def test_random_cases_are_as_in_kafka_streams(kept: type) -> None:
    wrong = {
        case["name"]: found
        for case in random()
        if (found := differences(case, run_case(without_expectations(case), kept=kept)))
    }

    assert wrong == {}


def test_no_case_is_left_out() -> None:
    assert (len(list(curated())), len(list(random()))) == (_CURATED, _RANDOM)
