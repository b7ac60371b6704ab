"""Every recorded case whose operators the DSL has, on the test driver, compared as the SPEC says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.conformance.compare import differences
from tests.conformance.data import Case, curated, random, without_expectations
from tests.conformance.missing import missing
from tests.conformance.run import run_case

_CURATED = 312
_RANDOM = 1500


def covered(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if missing(case) is None]


@pytest.mark.parametrize("case", covered(curated()), ids=lambda case: f"{case['family']}-{case['name']}")
@pytest.mark.parametrize("kept", [object, str], ids=["bytes", "objects"])
def test_curated_case_is_as_in_kafka_streams(case: Case, kept: type) -> None:
    assert differences(case, run_case(without_expectations(case), kept=kept)) == []


@pytest.mark.parametrize("kept", [object, str], ids=["bytes", "objects"])
def test_random_cases_are_as_in_kafka_streams(kept: type) -> None:
    wrong = {
        case["name"]: found
        for case in covered(random())
        if (found := differences(case, run_case(without_expectations(case), kept=kept)))
    }

    assert wrong == {}


def test_coverage_is_counted(record_property: Any, capsys: pytest.CaptureFixture[str]) -> None:
    all_curated, all_random = list(curated()), list(random())
    curated_count, random_count = len(covered(all_curated)), len(covered(all_random))
    with capsys.disabled():
        reasons = Counter(missing(case) for case in [*all_curated, *all_random])
        print(f"\nconformance: {curated_count} of {_CURATED} curated, {random_count} of {_RANDOM} random cases are run")
        print("not yet in the DSL:", ", ".join(f"{name} {n}" for name, n in reasons.most_common() if name))

    assert (len(all_curated), len(all_random)) == (_CURATED, _RANDOM)
    assert curated_count >= 109
    assert random_count >= 400
