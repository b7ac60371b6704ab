"""A mapping that leaves something out is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coverage_table.java_api import Method
from tests.coverage_table.mapping import MappingError, Part, part_of

METHODS = [Method("kstream.KStream", "filter", 2, 0), Method("kstream.KStream", "print", 1, 0)]


def part(**entries: Any) -> Part:
    return part_of({"title": "Streams", "kstream.KStream": entries}, METHODS, "streams.toml")


def test_a_row_is_the_same_different_or_not_offered() -> None:
    (found,) = part(filter="KStream.filter", print={"ours": "KStream.print", "differs": "."}).classes
    (other,) = part(filter={"instead": "`peek`"}, print=["KStream.print", "KStream.peek"]).classes

    assert [row.status for row in found.rows] == ["same", "different"]
    assert [row.status for row in other.rows] == ["not offered", "same"]


def test_a_rule_is_for_all_methods_that_are_not_named() -> None:
    (found,) = part(filter="KStream.filter", **{"*": {"instead": "`foreach`"}}).classes

    assert [(row.method.name, row.words) for row in found.rows] == [("filter", ""), ("print", "`foreach`")]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"filter": "KStream.filter"}, "without a row for print"),
        ({"filter": "KStream.filter", "print": ""}, "an empty counterpart"),
        ({"filter": "KStream.filter", "print": []}, "an empty counterpart"),
        ({"filter": "KStream.filter", "print": {"instead": ""}}, "says nothing"),
        ({"filter": "KStream.filter", "print": {"ours": "KStream.print"}}, "says nothing"),
        ({"filter": "KStream.filter", "print": {"instead": "x", "why": "y"}}, "says nothing"),
        ({"filter": "KStream.filter", "print": "KStream.print", "shout": "KStream.shout"}, "has no method shout"),
        ({"filter": "KStream.filter", "print": "KStream.print", "*": {"instead": "x"}}, "a rule for no method"),
    ],
)
def test_what_says_nothing_or_too_much_is_refused(entries: dict[str, Any], problem: str) -> None:
    with pytest.raises(MappingError, match=problem):
        part(**entries)


def test_a_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(MappingError, match="a rule for no method"):
        part_of({"title": "Streams", "kstream.KStreams": {"*": {"instead": "x"}}}, METHODS, "streams.toml")
