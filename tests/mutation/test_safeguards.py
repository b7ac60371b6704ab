"""Each safeguard has a test that turns red without it: mutations are applied one by one.

The tests of a mutation run in a process of their own, with the mutation in it from before they are collected. That they
are green without it, the suite shows; `python -m tests.mutation --green` does, too.
"""

from __future__ import annotations

import pytest

from tests.mutation import MUTATIONS, Breach, Hole, Stall
from tests.mutation.__main__ import run


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_without_the_safeguard_its_tests_turn_red(name: str) -> None:
    tests = MUTATIONS[name].tests
    done = run(tests, mutation=name)

    assert done.exit_code == pytest.ExitCode.TESTS_FAILED, done.output
    assert [test for test in tests if done.reason(test) is None] == [], done.output


def test_every_hole_stall_and_breach_has_a_mutation() -> None:
    shown = {mutation.of for mutation in MUTATIONS.values()}

    assert {*Hole, *Stall, *Breach} <= shown
    assert sum(isinstance(mutation.of, Hole) for mutation in MUTATIONS.values()) >= 14
    assert all(mutation.tests for mutation in MUTATIONS.values())
