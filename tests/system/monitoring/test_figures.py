"""Figures agree only if several say each, as a number: what nobody shows is not right."""

from __future__ import annotations

import pytest

from tests.system.monitoring.breakages import BREAKAGES, is_missed
from tests.system.monitoring.figures import agree, by_figure


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({"page": {"batch": 7.0}, "status": {"batch": 7.0}}, True),
        ({"page": {"batch": 7.0}, "status": {"batch": 8.0}}, False),
        ({"page": {"batch": 7.0}, "status": {}}, False),
        ({"page": {"batch": 7.0}, "status": {"batch": float("nan")}}, False),
        ({who: {"batch": float("nan")} for who in ("page", "status")}, False),
    ],
)
def test_a_figure_is_right_if_all_say_it(said: dict[str, dict[str, float]], right: bool) -> None:
    assert agree(by_figure(said)["batch"]) is right


def test_a_breakage_is_missed_by_what_it_breaks() -> None:
    told = "DeadLetters of watched is not told"

    assert is_missed("dead letters not counted", ["LateRecords of watched is not told", told])
    for other in ([], ["watched has caught up"], ["LateRecords of watched is not told"]):
        assert not any(is_missed(name, other) for name in BREAKAGES)
