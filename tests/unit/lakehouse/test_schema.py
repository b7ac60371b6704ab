"""The physical tables of a sink."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import Doc
from deltaworks.errors import TableError
from deltaworks.lakehouse.schema import (
    Role,
    TableSchema,
    archive_schema,
    dead_letter_schema,
    plan_schemas,
    schemas,
)
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind


class Key(msgspec.Struct, frozen=True):
    user_id: str
    shop: int


class Value(msgspec.Struct, frozen=True):
    user_id: str
    timestamp: int
    amount: float


def sink(kind: TableKind, key: object = str, value: object = int, table: str = "t") -> DeltaSink:
    return DeltaSink(name="sink", table=table, kind=kind, key=key, value=value)


def test_append_table_has_key_value_and_source() -> None:
    (table,) = schemas(sink(TableKind.APPEND))

    assert table.arrow.names == ["key", "value", "timestamp", "source_topic", "source_partition", "source_offset"]


def test_ktable_has_a_changelog_and_a_snapshot() -> None:
    changelog, snapshot = schemas(sink(TableKind.CHANGELOG))

    source = ["timestamp", "source_topic", "source_partition", "source_offset", "batch_id"]
    assert (changelog.name, changelog.role) == ("t_changelog", Role.CHANGELOG)
    assert changelog.arrow.names == ["key", "value", "op", *source]
    assert (snapshot.name, snapshot.role) == ("t", Role.SNAPSHOT)
    assert snapshot.arrow.names == ["key", "value", *source]


def test_windowed_table_is_partitioned_by_the_date_of_the_window_start() -> None:
    (table,) = schemas(sink(TableKind.WINDOWED))

    names = ["key", "window_start", "window_end", "value", "timestamp", "is_final", "window_date"]
    assert table.arrow.names == names
    assert table.partition_by == ("window_date",)
    assert table.file.names == names[:-1]


def test_fields_of_key_and_value_become_columns_and_taken_names_get_a_prefix() -> None:
    (table,) = schemas(sink(TableKind.APPEND, Key, Value))

    assert table.arrow.names[:5] == ["user_id", "shop", "value_user_id", "value_timestamp", "amount"]


def test_names_that_differ_only_in_case_are_an_error() -> None:
    value = msgspec.defstruct("Value", [("amount", int), ("value_amount", int), ("Amount", int)])

    with pytest.raises(TableError, match="two columns named 'value_Amount'"):
        schemas(sink(TableKind.APPEND, value=value))


def test_two_sinks_of_one_table_are_an_error() -> None:
    with pytest.raises(TableError, match="Two sinks write the Delta table 't_changelog'"):
        plan_schemas([sink(TableKind.CHANGELOG), sink(TableKind.APPEND, table="t_changelog")], None)


def test_dead_letters_keep_raw_bytes_and_coordinates() -> None:
    table = dead_letter_schema("dead")

    assert table.arrow.names[:6] == ["key", "value", "headers", "topic", "partition", "offset"]


def test_named_columns_are_those_of_the_table_and_its_statistics() -> None:
    changelog, snapshot = schemas(named(TableKind.CHANGELOG))

    assert changelog.arrow.names[:3] == ["user_id", "revenue", "op"]
    assert snapshot.key_names == ("user_id",)
    assert snapshot.statistics[0] == "user_id"


def test_tables_have_descriptions_and_a_changelog_says_what_it_is() -> None:
    changelog, snapshot = schemas(named(TableKind.CHANGELOG, doc="Revenue per user"))

    assert (changelog.description, snapshot.description) == ("Revenue per user (every update)", "Revenue per user")
    assert schemas(named(TableKind.APPEND))[0].description is None


def test_comments_are_in_the_arrow_schema_that_makes_the_table_and_not_in_that_of_files() -> None:
    (table,) = schemas(named(TableKind.WINDOWED, key=Annotated[str, Doc("Who.")]))

    assert table.commented.field("user_id").metadata == {b"comment": b"Who."}
    assert b"UTC date" in table.commented.field("window_date").metadata[b"comment"]
    assert table.commented.field("revenue").metadata is None
    assert all(field.metadata is None for field in table.file)


@pytest.mark.parametrize("schema", [dead_letter_schema("dead"), archive_schema("all")], ids=["dead letters", "archive"])
def test_dead_letters_and_archives_say_what_they_are(schema: TableSchema) -> None:
    assert schema.comments.keys() == {*schema.arrow.names}
    assert schema.description


def named(kind: TableKind, key: Any = str, doc: str | None = None) -> DeltaSink:
    return DeltaSink(
        name="sink", table="t", kind=kind, key=key, value=int, key_name="user_id", value_name="revenue", doc=doc
    )
