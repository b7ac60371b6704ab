"""The order in which the neighbours of a node are described."""

from __future__ import annotations

from random import Random

from deltaworks.topology.tree_set import TreeSet


def test_names_come_in_order_of_their_ranks() -> None:
    weights = {f"n{number:03}": number % 7 for number in range(100)}
    names = TreeSet(lambda name: (-weights[name], name))

    for name in Random(1).sample(sorted(weights), k=len(weights)):
        names.add(name)

    assert list(names) == sorted(weights, key=lambda name: (-weights[name], name))


def test_a_name_is_there_once() -> None:
    names = TreeSet(lambda name: (0, name))
    for name in ("b", "a", "b"):
        names.add(name)

    assert list(names) == ["a", "b"]


def test_new_name_is_compared_on_its_way_from_the_root_only() -> None:
    weights = {"b1": 2, "b2": 1, "b3": 2}
    names = TreeSet(lambda name: (-weights[name], name))
    names.add("b2")
    names.add("b3")
    weights["b2"] = 3
    names.add("b1")

    # From left to right it would have been found that b1 comes before b3.
    assert list(names) == ["b3", "b2", "b1"]
