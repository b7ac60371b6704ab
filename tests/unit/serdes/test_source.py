"""Source that is generated of schemas: it is formatted and typed, and its types fit the schemas."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from deltaworks import Avro, Protobuf
from deltaworks.serdes.avro.changes import incompatibilities
from deltaworks.serdes.avro.nodes import parsed
from deltaworks.serdes.packed import stored
from deltaworks.serdes.schemas import Reference, WriterSchema
from deltaworks.serdes.source import generate
from deltaworks.topology.columns import flat_columns
from tests.unit.serdes.test_protobuf import SCHEMA

ROOT = Path(__file__).parents[3]
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "doc": 'An order of a shop,\n with "quotes"',
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}, "doc": "Number of the order"},
        {"name": "class", "type": "string", "default": 'a "b"\\'},
        {"name": "list", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "date", "type": {"type": "int", "logicalType": "date"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "Tier", "type": {"type": "enum", "name": "Tier", "symbols": ["BASIC", "GOLD"]}, "default": "GOLD"},
        {"name": "many", "type": {"type": "enum", "name": "Many", "symbols": [f"SYMBOL_{each}" for each in range(20)]}},
        {"name": "ratio", "type": "double", "default": 1},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "doc": 'ends with "'},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "either", "type": [
            {"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]},
            {"type": "record", "name": "Cash", "fields": []},
            "null",
        ]},
        {"name": "before", "type": ["null", "shop.Order"], "default": None},
        {"name": "prices", "type": {"type": "map", "values": "float"}, "default": {}},
    ],
}  # fmt: skip


def imported(source: str, folder: Path) -> Any:
    """The module of a source."""
    path = folder / "generated.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated"] = module
    spec.loader.exec_module(module)
    return module


VALUE: dict[str, Any] = {
    "id": UUID(int=1),
    "date": dt.date(2026, 1, 1),
    "amount": Decimal("1.50"),
    "many": "SYMBOL_3",
    "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
}
RENAMED = """
syntax = "proto3";
message Many { int32 class = 1; int32 import = 2; int32 str = 3; int32 dt = 4; int32 def = 5; int32 with = 6; }
"""
NESTED = """
syntax = "proto3";
package p;
message A { int32 x = 1; B b = 2; message B { string s = 1; } }
"""
SOURCES: dict[str, Callable[[], str]] = {
    "avro": lambda: generate(ORDER),
    "protobuf": lambda: generate(SCHEMA, kind="PROTOBUF", message="shop.Everything"),
    "empty": lambda: generate({"type": "record", "name": "Empty", "fields": []}),
    "renamed": lambda: generate(RENAMED, kind="PROTOBUF"),
}


@pytest.mark.thorough
def test_sources_are_formatted_sorted_and_typed(tmp_path: Path) -> None:
    for name, make in SOURCES.items():
        (tmp_path / f"{name}.py").write_text(make())
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (
        ["ruff", "format", "--diff", *config],
        ["ruff", "check", "--select", "I,F,E", *config],
        ["mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")],
    ):
        run = subprocess.run(
            [sys.executable, "-m", *command, *map(str, sorted(tmp_path.glob("*.py")))],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_type_of_avro_fits_its_schema(tmp_path: Path) -> None:
    module = imported(SOURCES["avro"](), tmp_path)

    serde = Avro(module.Order, ORDER)
    derived = Avro(module.Order)
    order = module.Order(**VALUE, either=module.Cash(), before=None)
    value = serde.deserialize(serde.serialize(order))

    assert value == order
    assert (value.class_, value.list_, value.Tier_, value.ratio, value.raw) == ('a "b"\\', [], "GOLD", 1.0, b"\xff")
    assert incompatibilities(parsed(serde.schema), parsed(ORDER)) == []
    assert [each["name"] for each in json.loads(derived.schema)["fields"]] == [each["name"] for each in ORDER["fields"]]


def test_docs_become_docstrings() -> None:
    source = SOURCES["avro"]()

    assert '    """An order of a shop, with "quotes" """\n' in source
    assert '    id: UUID\n    """Number of the order"""\n' in source


def test_a_type_of_protobuf_fits_its_message(tmp_path: Path) -> None:
    module = imported(SOURCES["protobuf"](), tmp_path)
    serde = Protobuf(module.Everything, SCHEMA, "shop.Everything")

    value = module.Everything(text="x", line=module.Line(item="i"), by_id={1: "a"}, remark=module.Note(text="n"))

    assert serde.deserialize(serde.serialize(value)) == value
    assert serde.deserialize(b"") == module.Everything()


def test_references_are_generated_too() -> None:
    card = WriterSchema('{"type":"record","name":"Card","fields":[]}', "AVRO")
    text = '{"type":"record","name":"Order","fields":[{"name":"card","type":"Card"}]}'

    source = generate(WriterSchema(text, "AVRO", (Reference("Card", card),)))

    assert source.index("class Card(") < source.index("class Order(")


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        ('"int"', "AVRO", "the schema has no record at its top"),
        ("{}", "JSON", "types are generated of Avro and Protobuf"),
        (
            'syntax = "proto3"; import "google/protobuf/any.proto"; message A { google.protobuf.Any x = 1; }',
            "PROTOBUF",
            "field 'x': Python has no type for google.protobuf.Any",
        ),
    ],
)
def test_what_has_no_class_is_told(schema: str, kind: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        generate(schema, kind=kind)


FLAT = {**ORDER, "fields": [each for each in ORDER["fields"] if each["name"] != "before"]}


def test_a_generic_serde_makes_structs_of_a_schema() -> None:
    serde = Avro.generic(FLAT, registry=True)
    kind: Any = serde.type
    cash = msgspec.structs.fields(kind)[11].type.__args__[1]
    made = kind(**VALUE, either=cash())

    assert serde.deserialize(serde.serialize(made)) == made
    assert [each.name for each in flat_columns(kind, "value")][:4] == ["id", "class_", "list", "date"]
    assert stored(serde).deserialize(stored(serde).serialize(made)) == made


def test_classes_that_were_made_travel() -> None:
    serde = Avro.generic(FLAT)
    again = pickle.loads(pickle.dumps(serde))

    assert again == serde
    assert again.type is serde.type
    assert Avro.generic(FLAT).type is serde.type
    assert pickle.loads(pickle.dumps(stored(serde))) == stored(serde)


def test_a_generic_message_is_a_struct_too() -> None:
    serde = Protobuf.generic(
        'syntax = "proto3"; package p; message A { int32 x = 1; B b = 2; message B { string s = 1; } }'
    )
    value = serde.deserialize(bytes.fromhex("080112030a0161"))

    assert (value.x, value.b.s) == (1, "a")
    assert pickle.loads(pickle.dumps(value)) == value
    assert pickle.loads(pickle.dumps(serde)) == serde


def test_a_record_inside_itself_needs_a_class() -> None:
    with pytest.raises(TypeError, match="'Order' contains itself; write a Struct for it"):
        Avro.generic(ORDER)
