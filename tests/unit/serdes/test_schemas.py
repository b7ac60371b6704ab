"""Registries in memory, and serdes that are bound to one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import Avro, Json, ListOf, Long, SerializationError, TimeWindowed, Windowed
from deltaworks.serdes import wire
from deltaworks.serdes.packed import Packed, stored
from deltaworks.serdes.schemas import InMemory, Reference, WriterSchema, bound

LONG = WriterSchema('"long"', "AVRO")


def test_the_same_schema_has_the_same_id_under_all_subjects() -> None:
    schemas = InMemory()

    assert [schemas.id_of(each, LONG) for each in ("a", "b", "a")] == [1, 1, 1]
    assert schemas.id_of("a", WriterSchema(' "string" ', "AVRO")) == 2
    assert schemas.id_of("c", WriterSchema('"string"', "AVRO")) == 2
    assert schemas.id_of("c", WriterSchema('"long"', "JSON")) == 3
    assert schemas.id_of("c", WriterSchema('"long"', "AVRO", (Reference("x", LONG),))) == 4
    assert schemas.by_id(1) == LONG
    assert [(each.id, each.version) for each in schemas.versions("a")] == [(1, 1), (2, 2)]
    assert schemas.versions("z") == []


@pytest.mark.parametrize("number", [0, 2, -1])
def test_an_id_that_is_not_there_is_named(number: int) -> None:
    schemas = InMemory()
    schemas.id_of("a", LONG)

    with pytest.raises(SerializationError, match=f"schema {number}, which is not in the registry in memory"):
        schemas.by_id(number)


def test_serdes_inside_others_are_bound() -> None:
    schemas = InMemory()
    serde = TimeWindowed(ListOf(Avro(int, registry=True)), timedelta(minutes=1))

    found = bound(serde, schemas, "t", is_key=True)
    found.serialize(Windowed([1], 0, 60_000))

    assert found == serde
    assert schemas.subjects() == ["t-key"]


def test_what_has_no_registry_stays_the_same_object() -> None:
    serde = ListOf(Long())

    assert bound(serde, InMemory(), "t", is_key=False) is serde
    assert stored(serde) is serde


def test_an_older_format_behind_a_serde_is_bound_with_it() -> None:
    schemas = InMemory()
    serde = Avro(int, registry=True, otherwise=Json(int))

    assert bound(serde, schemas, "t", is_key=False).deserialize(b"7") == 7


def test_a_store_needs_no_registry() -> None:
    assert stored(ListOf(Avro(int, registry=True))) == ListOf(Packed(int))


def test_packed_holds_every_float_and_is_deterministic() -> None:
    serde = Packed(dict[str, float])

    value = serde.deserialize(serde.serialize({"b": float("inf"), "a": float("nan")}))

    assert str(value) == "{'a': nan, 'b': inf}"
    assert serde.serialize({"a": 1.0, "b": 2.0}) == serde.serialize({"b": 2.0, "a": 1.0})
    with pytest.raises(SerializationError, match="bytes are not packed"):
        serde.deserialize(b"\xc1")


@pytest.mark.parametrize("path", [(0,), (1,), (0, 1), (300, 0, 2)])
def test_the_place_of_a_message_comes_back(path: tuple[int, ...]) -> None:
    data = b"head" + wire.indexes(path)

    assert wire.read_indexes(data, 4) == (path, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x04\x02", b"\x01", b"\x80" * 30 + b"\0"])
def test_a_place_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="path"):
        wire.read_indexes(data, 0)


def test_a_dict_whose_entries_have_no_order_is_refused_by_a_store() -> None:
    with pytest.raises(TypeError, match=r"a store cannot hold list\[dict\[int, str\]\].*give them the type str"):
        Packed(list[dict[int, str]])
