"""Errors say what, where and what to do, and survive the way from a worker to the driver."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from deltaworks import errors
from deltaworks.errors import DeltaworksError, Problem, RecordPosition, StackError, StreamsError, TopologyError

POSITION = RecordPosition("join-user", "orders", 1, 42, 1_000, "jobs/orders.py:12")

EXAMPLES = [
    DeltaworksError("it broke", hint="mend it"),
    StackError("kafka does not come up", hint="free the port", log=["a", "b"]),
    StreamsError("the function raised ValueError", position=POSITION),
    TopologyError(
        "orders", [Problem("a store has no name", "jobs/orders.py:3", "name it"), Problem("nothing is read")]
    ),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_travel(error: DeltaworksError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_the_text_is_for_people() -> None:
    assert [str(error).splitlines() for error in EXAMPLES] == [
        ["it broke", "  Hint: mend it"],
        ["kafka does not come up", "  | a", "  | b", "  Hint: free the port"],
        [
            "the function raised ValueError",
            "  at orders-1 offset 42 (timestamp 1000), operator join-user from jobs/orders.py:12",
        ],
        [
            "2 problems in topology 'orders'",
            "  a store has no name",
            "    at jobs/orders.py:3",
            "    Hint: name it",
            "  nothing is read",
        ],
    ]


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, DeltaworksError) and value is not DeltaworksError
    ]
    drawn: list[str] = []
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").split("```")[1].strip().splitlines():
        name = next(word for word in line.split() if word[0].isalpha())
        depth = line.index(name) // 4
        path[depth:] = [name]
        drawn.append(name)
        if depth:
            parents[name] = path[depth - 1]

    assert sorted(drawn) == sorted(["DeltaworksError", *(kind.__name__ for kind in classes)])
    assert parents == {kind.__name__: kind.__bases__[0].__name__ for kind in classes}
