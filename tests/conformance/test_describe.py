"""Every recorded description of a topology that the DSL can build, to the letter."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks import StreamsBuilder
from tests.conformance.test_conformance import Case, covered, curated, random
from tests.conformance.topology import Interpreter

_MATERIALIZED = ("table", "to_table", "count", "reduce", "aggregate")


def described(cases: list[Case]) -> list[Case]:
    """Cases with a description in which every store has a name, as the DSL demands."""
    return [
        case
        for case in cases
        if "describe" in case["expected"]
        and all("store" in node for node in case["spec"]["nodes"] if node["op"] in _MATERIALIZED)
    ]


def description(case: Case) -> str:
    builder = StreamsBuilder()
    Interpreter(case, builder, lambda *_: None, object).build()
    return builder.build().describe()


@pytest.mark.parametrize("case", described(covered(curated())), ids=lambda case: f"{case['family']}-{case['name']}")
def test_curated_case_is_described_as_by_kafka_streams(case: dict[str, Any]) -> None:
    assert description(case) == case["expected"]["describe"]


def test_random_cases_are_described_as_by_kafka_streams() -> None:
    cases = described(covered(random()))

    assert len(cases) >= 390
    assert [case["name"] for case in cases if description(case) != case["expected"]["describe"]] == []
