"""Rows that name a person anywhere are found, and no others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltaworks.erase.rows import RowsOf
from deltaworks.lakehouse.schema import TableSchema, archive_schema, dead_letter_schema, schemas
from deltaworks.serdes import Json, Long, Serde, String
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.persons import Person

ADA = Person.of("u-17")
COUNTS = schemas(DeltaSink(name="s", table="counts", kind=TableKind.APPEND, key=int, value=int))[0]
NESTED = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def found(rows: pa.Table, person: Person = ADA, schema: TableSchema | None = None, **kwargs: Any) -> list[int]:
    mask = RowsOf(person, schema, **kwargs)(rows)
    return [] if mask is None else [at for at, theirs in enumerate(mask.to_pylist()) if theirs]


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.string(), ["u-17", "u-171", None, "by u-17"]),
        (pa.large_string(), ["u-17", "u-171", None, "by u-17"]),
        (pa.dictionary(pa.int32(), pa.string()), ["u-17", "u-171", None, "by u-17"]),
        (pa.binary(), [b"\x00u-17\xff", b"u-171", None, b"u-17"]),
        (pa.list_(pa.string()), [["a", "u-17"], ["u-171"], None, ["u-17", "u-17"]]),
        (NESTED, [{"id": 1, "tags": ["u-17"]}, {"id": 17, "tags": []}, None, {"id": 2, "tags": ["x", "u-17"]}]),
        (pa.map_(pa.string(), pa.string()), [[("k", "u-17")], [("k", "u-1")], None, [("u-17", None)]]),
        (pa.list_(NESTED), [[{"id": 1, "tags": ["u-17"]}], [], None, [None, {"id": 1, "tags": ["u-17"]}]]),
    ],
)
def test_texts_are_found_at_any_depth(kind: pa.DataType, cells: list[Any]) -> None:
    rows = pa.table({"a": [1, 2, 3, 4], "b": pa.array(cells, kind)})
    assert found(rows) == [0, 3]
    assert found(pa.concat_tables([rows, rows])) == [0, 3, 4, 7]
    assert found(rows.slice(1)) == [2], "a slice of larger arrays"
    assert found(rows.slice(1, 2)) == []


def test_numbers_count_in_keys_and_named_fields() -> None:
    rows = pa.table({"key": [17, 1, 17], "value": [1, 17, 2], "n": pa.array([{"user": 17}, {"user": 1}, None])})
    seventeen = Person.of("17")
    assert found(rows, seventeen) == []
    assert found(rows, seventeen, COUNTS) == [0, 2]
    assert found(rows, Person.of("17", ["value"])) == [1]
    assert found(rows, Person.of("17", ["user"])) == [0]
    assert found(rows, ADA, COUNTS) == []


@pytest.mark.parametrize("schema", [archive_schema("archive"), dead_letter_schema("dead")])
def test_records_are_read_with_the_serdes_of_their_topic(schema: TableSchema) -> None:
    def serdes(topic: str) -> list[tuple[Serde[Any], Serde[Any]]]:
        return [(Long(), Json(dict))] if topic == "numbers" else [(String(), Json(dict))]

    key, eleven = Long().serialize(17), Long().serialize(11)
    rows = pa.table(
        {
            "key": pa.array([key, eleven, b"17", b"x", None], pa.binary()),
            "value": pa.array([b"{}", b'{"a": 17}', b"{}", b'{"a": "\\u0031\\u0037"}', b"{broken 17"], pa.binary()),
            "topic": ["numbers", "numbers", "texts", "texts", "texts"],
        }
    )
    assert found(rows, Person.of("17"), schema, serdes=serdes) == [0, 2, 3, 4]
    assert found(rows, Person.of("17", ["a"]), schema, serdes=serdes) == [0, 1, 2, 3, 4]
    assert found(rows, Person.of("18"), schema, serdes=serdes) == []


def test_a_key_that_json_writes_in_another_way_is_found_in_records() -> None:
    rows = pa.table(
        {
            "key": pa.array([None, None], pa.binary()),
            "value": pa.array([b'{"name": "Andr\\u00e9"}', '{"name": "André"}'.encode()], pa.binary()),
            "topic": ["t", "t"],
        }
    )
    serdes = [(String(), Json(dict))]
    assert found(rows, Person.of("André"), archive_schema("archive"), serdes=lambda topic: serdes) == [0, 1]


def test_the_columns_that_name_the_person_are_counted() -> None:
    rows = RowsOf(ADA)
    rows(pa.table({"buyer": ["u-17", "u-1"], "seller": ["u-17", "u-17"], "note": ["a", "b"]}))
    assert +rows.columns == {"buyer": 1, "seller": 2}
