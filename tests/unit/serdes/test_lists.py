"""Lists have the bytes of Kafka's own list serializer."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks import Integer, ListOf, Long, SerializationError, String, Uuid


def test_entries_of_fixed_size_are_packed_behind_the_positions_of_nulls() -> None:
    serde = ListOf(Integer())

    data = serde.serialize([7, None, -1])

    assert data == bytes.fromhex("00 00000001 00000001 00000003 00000007 ffffffff")
    assert serde.deserialize(data) == [7, None, -1]


def test_other_entries_have_their_length_before_them() -> None:
    serde = ListOf(String())

    data = serde.serialize(["ab", None, ""])

    assert data == bytes.fromhex("01 00000003 00000002 6162 ffffffff 00000000")
    assert serde.deserialize(data) == ["ab", None, ""]


def test_lists_of_lists_have_entries_of_any_length() -> None:
    serde = ListOf(ListOf(Long()))

    assert serde.deserialize(serde.serialize([[1, 2], [], None])) == [[1, 2], [], None]
    assert (serde.name, serde.type) == ("list(list(long))", list[list[int]])


@pytest.mark.parametrize(
    ("serde", "data", "reason"),
    [
        (ListOf(Integer()), b"", "end too early"),
        (ListOf(Integer()), bytes.fromhex("00 00000000 00000001 0000"), "end too early"),
        (ListOf(Integer()), bytes.fromhex("00 00000000 00000000 00"), "go on after the last entry"),
        (ListOf(String()), bytes.fromhex("00 00000000 00000000"), "no strategy 0"),
        (ListOf(Uuid()), bytes.fromhex("07"), "no strategy 7"),
    ],
)
def test_other_bytes_are_refused(serde: ListOf[Any], data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        serde.deserialize(data)


def test_a_text_is_no_list() -> None:
    with pytest.raises(SerializationError, match=r"type str cannot be written as list\(string\)"):
        ListOf(String()).serialize("ab")  # type: ignore[arg-type]
