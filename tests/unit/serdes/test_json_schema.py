"""JSON with a schema: the type and the schema agree, and records name the schema."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

from deltaworks import Json, JsonSchema, SerializationError
from deltaworks.serdes.json_schema import incompatibilities
from deltaworks.serdes.schema import breaking_changes, in_words, schema_of
from deltaworks.serdes.schemas import InMemory, bound


class Line(msgspec.Struct, frozen=True):
    item: str
    count: int = 1


class Order(msgspec.Struct, frozen=True):
    id: str
    amount: Decimal
    lines: list[Line] = []
    note: str | None = None
    before: Order | None = None


def test_a_header_names_the_schema() -> None:
    schemas = InMemory()
    serde = bound(JsonSchema(Line, registry=True, subject="record"), schemas, "t", is_key=False)

    assert serde.serialize(Line("x")) == b'\0\0\0\0\1{"item":"x","count":1}'
    assert serde.deserialize(b'\0\0\0\0\7{"item":"x"}') == Line("x")
    assert schemas.subjects() == ["Line"]
    assert json.loads(schemas.by_id(1).text)["required"] == ["item"]


def test_the_top_of_a_schema_is_the_type_itself() -> None:
    schema = json.loads(JsonSchema(Order).schema)

    assert (schema["title"], sorted(schema["$defs"])) == ("Order", ["Line", "Order"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"item":"x"}', "they do not begin with a zero"),
        (b"", "they do not begin with a zero"),
        (b'\0\0\0\0\1{"item":1}', r"Expected `str`, got `int` - at `\$.item`"),
        (b'\0\0\0\0\1{"item":', "truncated"),
    ],
)
def test_wrong_bytes_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        JsonSchema(Line, registry=True).deserialize(data)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def struct(**fields: Any) -> Any:
    return msgspec.defstruct("Order", list(fields.items()))


TEXT, NULL = {"type": "string"}, {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "type"),
    [
        (obj(x=TEXT), struct(x=str)),
        (obj(x={"type": "string", "maxLength": 5, "format": "email"}), struct(x=str)),
        (obj(x={"oneOf": [NULL, TEXT]}), struct(x=str | None)),
        (obj(x={"type": ["string", "null"]}), struct(x=str | None)),
        (obj(x={"$ref": "#/definitions/T"}) | {"definitions": {"T": TEXT}}, struct(x=str)),
        (obj(x={"allOf": [{"$ref": "#/$defs/T"}]}) | {"$defs": {"T": TEXT}}, struct(x=str)),
        (obj(x={"const": "A"}), struct(x=Literal["A", "B"])),
        (obj(x={"type": "integer"}), struct(x=float)),
        (obj(x={"type": "string", "format": "uuid"}), struct(x=UUID)),
        (obj(x=TEXT), struct(x=Decimal)),
        (obj(x={"type": "array", "items": obj(item=TEXT)}), struct(x=list[Line])),
        (obj(x=True), struct(x=Any)),
        (obj(x={"type": "string", "format": "date-time"}), struct(x=datetime)),
        (obj(x={"type": ["string", "null"], "format": "date-time"}), struct(x=str | None)),
        (obj(x={"type": "array", "items": {"enum": ["A", "B"]}}), struct(x=list[str])),
    ],
)
def test_a_type_that_holds_all_values_of_a_schema_fits(schema: Any, type: Any) -> None:
    assert JsonSchema(type, schema).schema == json.dumps(schema, separators=(",", ":"))


@pytest.mark.parametrize(
    ("schema", "type", "reason"),
    [
        (obj(x=TEXT), struct(x=int), "field 'x' was string, is integer"),
        (obj(x=TEXT), struct(y=str), "field 'y' is new and has no default"),
        (obj(x={"type": ["string", "null"]}), struct(x=str), "field 'x' was string | null, is string"),
        (obj(x={"type": "number"}), struct(x=Decimal), "field 'x' was number, is"),
        (obj(x={"enum": ["A", "C"]}), struct(x=Literal["A", "B"]), "field 'x' can no longer be 'C'"),
        (obj(x=TEXT), struct(x=UUID), "field 'x' has format 'uuid' now"),
        (obj(x={"type": "string", "format": "date-time"}), struct(x=date), "field 'x' has format 'date' now"),
        (obj(x={"enum": ["A", 1]}), struct(x=str), "field 'x' can be 1, and is string now"),
        ({"type": "object", "properties": {"x": TEXT}}, struct(x=str), "field 'x' had a default and has none now"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_by_field(schema: Any, type: Any, reason: str) -> None:
    with pytest.raises(TypeError) as told:
        JsonSchema(type, schema)
    assert reason in str(told.value)


def test_decimals_may_be_numbers() -> None:
    schema = obj(x={"type": "number"})
    serde: Any = JsonSchema(struct(x=Decimal), schema, decimals="number", validate=True)

    assert serde.serialize(serde.type(Decimal("1.50"))) == b'{"x":1.50}'
    assert str(serde.deserialize(b'{"x":1.50}').x) == "1.50"


def test_a_schema_that_says_more_than_the_type_is_enforced_if_asked() -> None:
    schema = obj(x={"type": "string", "maxLength": 2})
    serde: Any = JsonSchema(struct(x=str), schema, validate=True)

    assert serde.deserialize(serde.serialize(serde.type("ab"))).x == "ab"
    with pytest.raises(SerializationError, match=r"\$\.x breaks 'maxLength' of the schema"):
        serde.serialize(serde.type("abc"))
    with pytest.raises(SerializationError, match=r"\$\.x breaks 'maxLength' of the schema"):
        serde.deserialize(b'{"x":"abc"}')
    assert JsonSchema(struct(x=str), schema).type is not serde.type
    assert JsonSchema(serde.type, schema).deserialize(b'{"x":"abc"}').x == "abc"


def test_a_schema_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(obj(x=TEXT)))
    kind = struct(x=str)

    assert JsonSchema(kind, tmp_path / "order.json") == JsonSchema(kind, obj(x=TEXT))
    for wrong in ("{", "[]"):
        with pytest.raises(ValueError, match="a JSON Schema is"):
            JsonSchema(kind, wrong)


def test_schemas_are_compared_in_words() -> None:
    old, new = json.loads(JsonSchema(Line).schema), json.loads(JsonSchema(Order).schema)

    assert incompatibilities(old, old) == []
    assert incompatibilities(old, new) == [
        "field 'amount' is new and has no default",
        "field 'id' is new and has no default",
    ]


def test_a_store_keeps_json() -> None:
    serde = JsonSchema(Line, registry=True)

    assert serde.stored() == Json(Line)
    assert breaking_changes(schema_of(Json(Line)), schema_of(JsonSchema(Line))) == []
    assert in_words(schema_of(serde)) == "json-schema(Line) with the id of its schema"


def test_the_serde_travels() -> None:
    serde = JsonSchema(Order, registry=True, subject="record", otherwise=Json(Order))

    assert pickle.loads(pickle.dumps(serde)) == serde != JsonSchema(Order)
    assert serde.deserialize(b'{"id":"a","amount":1}') == Order("a", Decimal(1))
