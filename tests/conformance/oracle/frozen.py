"""Keeps variations with what Kafka Streams does in them, so that they are checked where there is no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.conformance.data import Case

_LEAST_OUTPUTS = 4
_TRIES = 60
"""Per case that is wanted: some families end in an error more often than not."""


def telling(cases: Iterable[Case], per_family: int, families: int, asked: Callable[[Case], Case]) -> Iterator[Case]:
    """Of each family a number of cases that give results, with `expected`.

    Args:
        cases: variations.
        per_family: how many to keep of each.
        families: how many there are.
        asked: adds what Kafka Streams does.
    """
    kept: Counter[str] = Counter()
    for number, case in enumerate(cases):
        if number == _TRIES * per_family * families or kept.total() == per_family * families:
            return
        if kept[case["family"]] == per_family:
            continue
        case = asked(case)
        if len(case["expected"].get("outputs", ())) >= _LEAST_OUTPUTS:
            kept[case["family"]] += 1
            yield case
