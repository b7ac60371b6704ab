"""Each safeguard has a test that turns red without it: breakages are planted one by one.

The tests of a breakage run in a process of their own, with the breakage in it from before they are collected. That they
are green without it, the suite shows; `python -m tests.faults.breakages --green` does, too.
"""

from __future__ import annotations

import pytest

from tests.faults.breakages import BREAKAGES, Hole, Stall
from tests.faults.breakages.__main__ import run


@pytest.mark.parametrize("name", BREAKAGES)
def test_without_the_safeguard_its_tests_turn_red(name: str) -> None:
    tests = BREAKAGES[name].tests
    done = run(tests, breakage=name)

    assert done.exit_code == pytest.ExitCode.TESTS_FAILED, done.output
    assert [test for test in tests if done.reason(test) is None] == [], done.output


def test_every_hole_and_every_stall_has_a_breakage() -> None:
    shown = {breakage.of for breakage in BREAKAGES.values()}

    assert {*Hole, *Stall} <= shown
    assert sum(isinstance(breakage.of, Hole) for breakage in BREAKAGES.values()) >= 14
    assert all(breakage.tests for breakage in BREAKAGES.values())
