"""Positions of keys: equal for equal keys, the same in every process, and mostly in the order of keys."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.key_positions import order, positions, separator


def column(cells: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"key": pa.array(cells, kind)})


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ORDERED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "0", "a", "a\0", "ab", "b", "é", "\U0001f600"]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"\xff"]),
    "integer": (pa.int64(), [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]),
    "float": (pa.float64(), [-math.inf, -1.5, -1e-300, -0.0, 0.0, 1e-300, 2.0, math.inf, math.nan]),
    "boolean": (pa.bool_(), [False, True]),
    "instant": (TIMESTAMP, [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), NOON, NOON + dt.timedelta(microseconds=1)]),
    "date": (pa.date32(), [dt.date(1960, 1, 1), dt.date(2026, 1, 1)]),
}


@pytest.mark.parametrize("name", ORDERED)
def test_positions_follow_the_order_of_keys_and_null_comes_first(name: str) -> None:
    kind, cells = ORDERED[name]
    found = positions(column([*cells, None], kind))

    assert sorted(found[:-1]) == found[:-1]
    assert len(set(found[:-1])) == len(cells)
    assert min(found) == found[-1]


def test_positions_are_the_same_for_ever() -> None:
    """They are in names of files: whoever changes them needs another version of the layout."""
    key = pa.table(
        {
            "text": pa.array(["DE", None, "https://example.com/a/long/key/1"]),
            "number": pa.array([-1, 7, None], pa.int64()),
            "price": pa.array([1.5, -1.5, None]),
            "amount": pa.array([Decimal("1.10"), None, None], pa.decimal128(38, 2)),
        }
    )
    assert [each.hex() for each in positions(key.select(["number", "price"]))] == [
        "7fffffffffffffff00bff8000000000000",
        "8000000000000007004007ffffffffffff",
        "00",
    ]
    assert positions(key.select(["text", "amount"])) == [
        b"DE\x001.10",
        b"\x00",
        b"https://example.com/a/lo" + bytes.fromhex("c99a1e5e"),
    ]


def test_long_keys_are_short_and_told_apart() -> None:
    found = positions(column(["x" * 40, "x" * 41, "x" * 39 + "y"], pa.string()))

    assert len(set(found)) == 3
    assert max(map(len, found)) == 28


def test_chunks_and_slices_change_nothing() -> None:
    whole = pa.table({"a": ["x", "y", None, "z"], "b": pa.array([4, None, 2, 1], pa.int64())})
    cut = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)])

    assert positions(cut) == positions(whole)
    assert positions(cut.slice(1, 3)) == positions(whole)[1:]
    assert positions(whole.slice(0, 0)) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=40), st.none() | st.floats()), min_size=1))
def test_equal_keys_have_equal_positions_and_the_order_is_theirs(keys: list[tuple[str | None, float | None]]) -> None:
    rows = pa.table(
        {"a": pa.array([a for a, _ in keys], pa.string()), "b": pa.array([b for _, b in keys], pa.float64())}
    )
    twice = pa.concat_tables([rows, rows])
    found = positions(twice)

    assert found[: len(keys)] == found[len(keys) :]
    numbers, listed = order(twice)
    assert listed.to_pylist() == found
    assert [found[number] for number in numbers.to_pylist()] == sorted(found)


@settings(deadline=None)
@given(st.binary(max_size=6), st.binary(max_size=6))
def test_a_separator_lies_between(one: bytes, other: bytes) -> None:
    left, right = sorted((one, other))
    if left != right:
        between = separator(left, right)
        assert left < between <= right
        assert len(between) <= len(right)
        assert all(not left < between[:length] <= right for length in range(len(between)))
