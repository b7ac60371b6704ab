"""The generator alone; what Kafka Streams says to its cases needs a JDK: `make check-oracle`."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from tests.conformance.data import Case, without_expectations
from tests.conformance.oracle.reduced import reduced
from tests.conformance.oracle.variations import variations
from tests.conformance.run import run_case

_COUNT = 200


def some(seed: int, count: int = 20) -> list[Case]:
    return list(itertools.islice(variations(seed), count))


def test_the_same_seed_makes_the_same_cases() -> None:
    assert json.dumps(some(7)) == json.dumps(some(7))
    assert json.dumps(some(7)) != json.dumps(some(8))


def test_a_variation_is_of_the_family_that_is_asked_for() -> None:
    cases = itertools.islice(variations(1, ["join_foreign_key"]), 20)

    assert {case["family"] for case in cases} == {"random join_foreign_key"}


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(ValueError, match="no family is called like nonsense"):
        next(variations(1, ["nonsense"]))


def test_most_variations_run_and_give_results_and_none_is_a_defect() -> None:
    ends = Counter[str]()
    for case in some(1, _COUNT):
        result = run_case(without_expectations(case))  # raises what is neither a rejected topology nor a failed step
        ends[result["error"]["phase"] if "error" in result else "outputs" if result["outputs"] else "nothing"] += 1

    assert ends["outputs"] > 0.8 * _COUNT
    assert ends["build"] > 0
    assert ends["run"] > 0


def test_a_case_is_reduced_to_what_shows_a_difference() -> None:
    nodes = [{"id": "s", "op": "stream", "topic": "in", "value_type": "string"}]
    nodes += [{"id": f"p{n}", "op": "peek", "in": f"p{n - 1}" if n else "s", "name": "n"} for n in range(3)]
    nodes.append({"id": "t", "op": "to", "in": "p2", "topic": "out"})
    inputs = [{"topic": "in", "key": "k", "value": str(n), "timestamp": n} for n in range(17)]
    case: Case = {"name": "c", "spec": {"nodes": nodes}, "config": {"optimize": True}, "inputs": inputs}

    def shows(smaller: Case) -> bool:
        left = smaller["inputs"]
        return inputs[5] in left and inputs[11] in left and any(node["id"] == "p1" for node in smaller["spec"]["nodes"])

    small = reduced(case, shows)

    assert small["inputs"] == [inputs[5], inputs[11]]
    assert [node["id"] for node in small["spec"]["nodes"]] == ["p1"]
    assert small["config"] == {}
    assert "name" not in small["spec"]["nodes"][0]
