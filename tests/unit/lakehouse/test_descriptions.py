"""Descriptions and comments of tables: from the pipeline, brought up to date by a start, beside those of others."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import Doc
from deltaworks.errors import TableError
from deltaworks.lakehouse import descriptions, versions
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import schemas
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

User = Annotated[str, Doc("Who paid.")]
TOTALS = DeltaSink(
    name="totals-sink",
    table="totals",
    kind=TableKind.WINDOWED,
    key=User,
    value=Annotated[Decimal, Doc("Sum in euros.")],
    key_name="user_id",
    value_name="total",
    doc="Payments per user and hour",
)


class Payment(msgspec.Struct, frozen=True):
    amount: Decimal
    """Amount in euros."""


def start(root: Path, sink: DeltaSink = TOTALS, generation: int = 1) -> DeltaLog:
    """What a driver does at its start."""
    committer = TableCommitter(root, "shop", "0b7f6a0e-query", [sink])
    committer.open(generation)
    committer.close()
    return committer.tables[sink.table].log


def comments(root: Path, table: str = "totals") -> dict[str, Any]:
    """As another reader sees them."""
    fields = json.loads(DeltaTable(root / table).schema().to_json())["fields"]
    return {field["name"]: field["metadata"].get("comment") for field in fields}


def test_a_new_table_has_a_description_and_comments_in_its_first_version(tmp_path: Path) -> None:
    start(tmp_path)

    first = DeltaTable(tmp_path / "totals", version=0)
    assert first.metadata().description == "Payments per user and hour"
    assert comments(tmp_path)["user_id"] == "Who paid."
    assert comments(tmp_path)["total"] == "Sum in euros."
    assert all(comments(tmp_path).values())


@pytest.mark.parametrize(
    ("kind", "table", "note", "example"),
    [
        (TableKind.APPEND, "totals", "Each is final", "ORDER BY timestamp DESC"),
        (TableKind.CHANGELOG, "totals_changelog", "op is 'upsert' or 'delete'", "op, count(*)"),
        (TableKind.CHANGELOG, "totals", "None is final", "ORDER BY user_id"),
        (TableKind.WINDOWED, "totals", "until is_final is true", "WHERE is_final"),
    ],
)
def test_the_properties_of_a_table_say_what_a_reader_of_any_engine_has_to_know(
    tmp_path: Path, kind: TableKind, table: str, note: str, example: str
) -> None:
    start(tmp_path, replace(TOTALS, kind=kind))

    properties = DeltaTable(tmp_path / table).metadata().configuration
    assert properties["deltaworks.pipeline"] == "shop"
    assert note in properties["deltaworks.note"]
    assert properties["deltaworks.example"].startswith("SELECT") and example in properties["deltaworks.example"]
    assert "batch" in properties["deltaworks.as-of"]


def test_a_start_that_says_the_same_commits_nothing_of_it(tmp_path: Path) -> None:
    before = start(tmp_path).version

    assert start(tmp_path, generation=2).version == before + 1  # the fence


def test_a_start_brings_other_words_into_the_table_and_changes_nothing_else(tmp_path: Path) -> None:
    before = start(tmp_path)

    other = replace(TOTALS, doc="Payments", key=Annotated[str, Doc("The payer.")])
    after = start(tmp_path, other, generation=2)

    assert DeltaTable(tmp_path / "totals").metadata().description == "Payments"
    assert comments(tmp_path)["user_id"] == "The payer."
    assert comments(tmp_path)["total"] == "Sum in euros."
    kept = ("id", "partitionColumns", "createdTime", "format")
    assert {name: after.definition[name] for name in kept} == {name: before.definition[name] for name in kept}
    assert after.properties == before.properties
    assert versions.read(after.path / "_delta_log", after.version).is_ours  # type: ignore[union-attr]
    assert start(tmp_path, other, generation=3).version == after.version + 1


def test_what_the_pipeline_no_longer_says_goes(tmp_path: Path) -> None:
    start(tmp_path)

    start(tmp_path, replace(TOTALS, doc=None, key=str), generation=2)

    assert DeltaTable(tmp_path / "totals").metadata().description is None
    assert comments(tmp_path)["user_id"] is None
    assert comments(tmp_path)["total"] == "Sum in euros."


def test_a_table_of_a_version_that_wrote_no_comments_gets_them(tmp_path: Path) -> None:
    log = start(tmp_path)
    bare = json.loads(log.schema_text)
    for field in bare["fields"]:
        field["metadata"] = {}
    properties = {name: value for name, value in log.properties.items() if name not in descriptions.PROPERTIES}
    log.commit(Commit(definition={**log.definition, "schemaString": json.dumps(bare), "configuration": properties}))

    start(tmp_path, generation=2)

    assert all(comments(tmp_path).values())
    assert DeltaTable(tmp_path / "totals").metadata().configuration.keys() >= {*descriptions.PROPERTIES}


def test_comments_of_others_stay_where_the_pipeline_says_nothing(tmp_path: Path) -> None:
    silent = replace(TOTALS, value=Decimal, doc=None)
    start(tmp_path, silent)
    DeltaTable(tmp_path / "totals").alter.set_column_metadata("total", {"comment": "theirs"})
    DeltaTable(tmp_path / "totals").alter.set_column_metadata("user_id", {"comment": "theirs"})
    DeltaTable(tmp_path / "totals").alter.set_table_description("theirs")

    start(tmp_path, silent, generation=2)
    start(tmp_path, silent, generation=3)

    assert comments(tmp_path)["total"] == "theirs"
    assert comments(tmp_path)["user_id"] == "Who paid."
    assert DeltaTable(tmp_path / "totals").metadata().description == "theirs"


def test_a_property_that_another_writer_sets_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = start(tmp_path)
    (schema,) = schemas(replace(TOTALS, doc="Payments"))
    check, late = log.check_files, [True]

    def somebody_is_faster(added: Any) -> None:
        check(added)
        if late.pop() if late else False:
            DeltaTable(log.path).alter.set_table_properties({"owner": "finance"}, raise_if_not_exists=False)

    monkeypatch.setattr(log, "check_files", somebody_is_faster)
    log.describe(schema, {})

    assert log.properties["owner"] == "finance"
    assert log.definition["description"] == "Payments"


def test_another_owner_brings_its_own_words(tmp_path: Path) -> None:
    log = start(tmp_path / "production", replace(TOTALS, doc=None, key=str))
    staged = start(tmp_path / "staging")
    properties = {descriptions.NOTE: "old", descriptions.AS_OF: "old", descriptions.EXAMPLE: "old"}
    DeltaTable(log.path).alter.set_table_properties(properties, raise_if_not_exists=False)
    log.catch_up()

    definition = log.owned_by("a replay", like=staged)

    (schema,) = schemas(TOTALS)
    assert definition["description"] == "Payments per user and hour"
    assert descriptions.described(definition, schema, {}) == definition


@pytest.mark.parametrize("nonsense", ["", "ours", "3", '{"a": 1}'])
def test_a_start_survives_a_property_that_somebody_has_changed(tmp_path: Path, nonsense: str) -> None:
    start(tmp_path)
    properties = {descriptions.PROPERTY: nonsense}
    DeltaTable(tmp_path / "totals").alter.set_table_properties(properties, raise_if_not_exists=False)

    log = start(tmp_path, generation=2)

    (schema,) = schemas(TOTALS)
    assert descriptions.properties_of(schema).items() <= log.properties.items()


def test_another_writer_of_columns_is_refused_all_the_same(tmp_path: Path) -> None:
    log = start(tmp_path)
    fields = json.loads(log.schema_text)
    fields["fields"][0]["name"] = "payer"
    info = {"timestamp": 1, "operation": "RENAME COLUMN", "engineInfo": "other"}
    actions = [
        {"commitInfo": info},
        {"metaData": {**log.definition, "schemaString": json.dumps(fields)}},
    ]
    file = log.path / "_delta_log" / versions.file_name(log.version + 1)
    file.write_text("\n".join(map(json.dumps, actions)))

    with pytest.raises(TableError, match="changes columns"):
        start(tmp_path, generation=2)


def test_a_renamed_column_is_refused_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    start(tmp_path)

    with pytest.raises(TableError) as refused:
        start(tmp_path, replace(TOTALS, key_name="payer"), generation=2)

    assert "payer: not there -> string; user_id: string -> not there" in refused.value.message
    hint = refused.value.hint or ""
    assert "give the old names again (key= and value= of to_delta" in hint
    assert "another name" in hint
    assert "deltaworks replay <pipeline> --hand-over" in hint


def test_fields_of_a_value_have_the_texts_below_them(tmp_path: Path) -> None:
    start(
        tmp_path, DeltaSink(name="n", table="payments", kind=TableKind.APPEND, key=User, value=Payment, key_name="by")
    )

    assert comments(tmp_path, "payments")["amount"] == "Amount in euros."
