from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import DebeziumKey, SerializationError
from deltaworks.serdes.schema import breaking_changes, schema_of

SCHEMA = (
    '{"type":"struct","fields":[{"type":"int32","optional":false,"default":0,"field":"id"}],'
    '"optional":false,"name":"shop.public.customers.Key"}'
)
WITH_SCHEMA = b'{"schema":' + SCHEMA.encode() + b',"payload":{"id":7}}'


class Line(msgspec.Struct, frozen=True):
    order_id: int
    number: int


@dataclass(frozen=True)
class Part:
    country: Literal["de", "fr"]
    uid: UUID


def test_a_single_column_is_the_key() -> None:
    key = DebeziumKey(int, field="id")

    assert (key.deserialize(b'{"id":7}'), key.serialize(7)) == (7, b'{"id":7}')
    assert DebeziumKey(str, field="code").deserialize('{"code":"Ä/\\"b\\n"}'.encode()) == 'Ä/"b\n'


def test_several_columns_are_a_struct() -> None:
    assert DebeziumKey(Line).deserialize(b'{"order_id":1,"number":2}') == Line(1, 2)
    uid = UUID("0191e9c7-7b1c-7c3e-8f2a-3d2b1a0c9d8e")
    assert DebeziumKey(Part).serialize(Part("de", uid)) == b'{"country":"de","uid":"%s"}' % str(uid).encode()


def test_a_key_with_a_schema_gets_the_bytes_that_it_had() -> None:
    key = DebeziumKey(int, field="id", schema=DebeziumKey.schema_in(WITH_SCHEMA))

    assert key.schema == SCHEMA
    assert key.deserialize(WITH_SCHEMA) == 7
    assert key.serialize(7) == WITH_SCHEMA
    assert DebeziumKey.schema_in(b'{"id":7}') is None
    assert DebeziumKey.schema_in(b'{"schema":"x"}') is None


@pytest.mark.parametrize(
    ("key", "data", "reason"),
    [
        (DebeziumKey(int, field="id"), WITH_SCHEMA, "it begins with a schema: say it with schema="),
        (DebeziumKey(int, field="id", schema=SCHEMA), b'{"id":7}', "it has no schema"),
        (
            DebeziumKey(int, field="id", schema=SCHEMA.replace("int32", "int64")),
            WITH_SCHEMA,
            "another schema; has the primary key",
        ),
        (DebeziumKey(int, field="id"), b'{"id":7,"tenant":1}', "other columns"),
        (DebeziumKey(Line), b'{"number":2,"order_id":1}', "another order"),
        (DebeziumKey(int, field="id"), b'{"id": 7}', "spelled otherwise"),
        (DebeziumKey(int, field="id"), b'{"id":"7"}', r"Expected `int`, got `str` - at `\$.id`"),
        (DebeziumKey(int, field="id"), b'{"key":7}', "missing required field `id`"),
        (DebeziumKey(int, field="id"), b"7", "Expected `object`"),
        (DebeziumKey(int, field="id"), b"\xff", "key of Debezium"),
    ],
)
def test_a_key_that_would_get_other_bytes_is_refused(key: DebeziumKey[object], data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        key.deserialize(data)


def test_a_value_that_is_no_key_is_not_written() -> None:
    with pytest.raises(SerializationError, match="cannot be written as debezium-key"):
        DebeziumKey(int, field="id").serialize("7")  # type: ignore[arg-type]


def test_types_whose_json_is_not_that_of_debezium_are_refused() -> None:
    for kind in (date, Decimal, float, bytes, int | None, list[int]):
        with pytest.raises(TypeError, match="column 'id' of a key is"):
            DebeziumKey(kind, field="id")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"DebeziumKey\(int, field='id'\)"):
        DebeziumKey(int)


def test_keys_travel_and_compare() -> None:
    for key in (DebeziumKey(int, field="id"), DebeziumKey(Line), DebeziumKey(int, field="id", schema=SCHEMA)):
        assert pickle.loads(pickle.dumps(key)) == key
    assert DebeziumKey(int, field="id") != DebeziumKey(int, field="no")
    assert DebeziumKey(int, field="id").name == "debezium-key(id: int)"
    assert repr(DebeziumKey(int, field="id")) == "DebeziumKey(int, field='id')"


def test_a_store_whose_keys_get_other_bytes_is_not_continued() -> None:
    one, same, other, with_schema = (
        schema_of(DebeziumKey(int, field="id")),
        schema_of(DebeziumKey(int, field="id")),
        schema_of(DebeziumKey(int, field="no")),
        schema_of(DebeziumKey(int, field="id", schema=SCHEMA)),
    )

    assert breaking_changes(one, same) == []
    assert breaking_changes(one, other)
    assert breaking_changes(one, with_schema)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_number_comes_back(number: int) -> None:
    key = DebeziumKey(int, field="id", schema=SCHEMA)

    assert key.deserialize(key.serialize(number)) == number
