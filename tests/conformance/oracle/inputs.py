"""Random inputs for the topics of a case: few keys, times close together, now and then something rare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.conformance.oracle.commands import command

Input = dict[str, Any]

_TEXTS = ["", "a", "b", "xyz", "a1", "b2", "a b", "c a", "1", None]
_KEYS = ["a", "b", "c", "d"]
_STEPS_MS = [0, 0, 1, 2, 3, 5, 8, 12]
_LEAPS_MS = [20, 40, 60]
_CLOCK_STEPS_MS = [1, 3, 7, 10, 25, 40]


@dataclass(frozen=True)
class Feed:
    """What the inputs of a case may be."""

    topics: Mapping[str, str]
    """Topic to the type of its values."""
    trees: Sequence[Any] = ()
    """JSON values to choose from."""
    raw_values: Sequence[str] = ()
    """Texts that may not fit the type of a topic."""
    advances_clock: bool = False
    store_type: str | None = None
    """Of the store that the records are commands for, if they are."""


def inputs(feed: Feed, chance: Random) -> list[Input]:
    """Between 8 and 48 steps."""
    keys = _KEYS[: chance.randint(1, len(_KEYS))]
    headers = 0.3 if chance.random() < 0.3 else 0.0
    now_ms = chance.choice([0, 0, 5, 50])
    steps: list[Input] = []
    for _ in range(chance.randint(8, 48)):
        if feed.advances_clock and chance.random() < 0.25:
            steps.append({"advance_wall_clock_ms": chance.choice(_CLOCK_STEPS_MS)})
            continue
        now_ms += chance.choice(_STEPS_MS if chance.random() < 0.93 else _LEAPS_MS)
        late_ms = chance.randint(1, 25) if chance.random() < 0.25 else 0
        topic = chance.choice(sorted(feed.topics))
        step: Input = {
            "topic": topic,
            "key": None if chance.random() < 0.03 else chance.choice(keys),
            "timestamp": max(0, now_ms - late_ms),
        }
        if feed.raw_values and chance.random() < 0.2:
            step["raw_value"] = chance.choice(feed.raw_values)
        else:
            step["value"] = _value(feed, topic, chance)
        if chance.random() < headers:
            step["headers"] = [
                [chance.choice("hi"), chance.choice(["1", "2", None])] for _ in range(chance.randint(1, 2))
            ]
        steps.append(step)
    return steps


def _value(feed: Feed, topic: str, chance: Random) -> Any:
    if feed.store_type is not None:
        return command(feed.store_type, chance)
    match feed.topics[topic]:
        case "string":
            return chance.choice(_TEXTS)
        case "json":
            return _tree(chance.choice(feed.trees), chance) if feed.trees else {"f": chance.randint(0, 9)}
        case numeric:
            number = None if chance.random() < 0.12 else chance.randint(-3, 9)
            return number if numeric == "long" or number is None else number / 2


def _tree(tree: Any, chance: Random) -> Any:
    """One that the case has, with other numbers at its top."""
    if not isinstance(tree, dict):
        return tree
    return {
        field: chance.randint(0, 60) if type(value) is int and chance.random() < 0.5 else value
        for field, value in tree.items()
    }
