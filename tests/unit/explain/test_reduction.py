"""Leaving out records: what is needed stays, nothing else does, and a limit ends it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from deltaworks.explain.reduction import _least


@pytest.mark.parametrize("seed", range(20))
def test_exactly_what_is_needed_is_left(seed: int) -> None:
    rng = random.Random(seed)
    items = list(range(rng.randrange(1, 200)))
    needed = set(rng.sample(items, rng.randrange(0, min(6, len(items)) + 1)))

    left, is_minimal = _least(items, lambda kept: needed <= set(kept), lambda: False)

    assert (set(left), is_minimal) == (needed, True)
    assert left == sorted(left)


def test_one_of_several_is_enough() -> None:
    left, is_minimal = _least(list(range(50)), lambda kept: any(each % 7 == 0 for each in kept), lambda: False)

    assert (len(left), is_minimal) == (1, True)


def test_a_limit_ends_it_with_a_set_that_is_enough() -> None:
    runs: list[Sequence[int]] = []

    def reproduces(kept: Sequence[int]) -> bool:
        runs.append(kept)
        return {3, 90} <= set(kept)

    left, is_minimal = _least(list(range(100)), reproduces, lambda: len(runs) == 5)

    assert not is_minimal
    assert {3, 90} <= set(left)
    assert len(runs) == 5
