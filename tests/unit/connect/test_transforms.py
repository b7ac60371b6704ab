"""Chains of transforms and predicates: their settings, their order, and what is refused at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deltaworks.connect import (
    Cast,
    ChangeHeaders,
    Connector,
    DebeziumMongoDb,
    DebeziumPostgres,
    DropHeaders,
    ExtractField,
    ExtractNewRecordState,
    FileSink,
    FileSource,
    Filter,
    Flatten,
    HasHeaderKey,
    HeaderFrom,
    HoistField,
    InsertField,
    InsertHeader,
    MaskField,
    OpenSearchSink,
    RecordIsTombstone,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
    TimestampRouter,
    TopicNameMatches,
    Transform,
    ValueToKey,
)
from deltaworks.connect.checks import of_aliases
from deltaworks.errors import ConfigurationError

KAFKA = "org.apache.kafka.connect.transforms."


def sink(*transforms: Transform, **arguments: Any) -> Connector:
    return Connector(name="sink", class_="org.example.Sink", transforms=transforms, **arguments)


def capture(*transforms: Transform, **arguments: Any) -> Connector:
    needed = {"hostname": "db", "user": "cdc", "password": {"env": "P"}, "dbname": "shop", "topic_prefix": "shop"}
    return DebeziumPostgres(**{"name": "cdc", **needed, "transforms": transforms, **arguments})


def chain(made: Connector) -> dict[str, str]:
    """What a connector says of transforms and predicates."""
    return {name: text for name, text in made.properties.items() if name.startswith(("transforms", "predicates"))}


@pytest.mark.parametrize(
    ("made", "class_", "settings"),
    [
        (RegexRouter("a(.*)", "b$1"), "RegexRouter", {"regex": "a(.*)", "replacement": "b$1"}),
        (
            TimestampRouter("${topic}_${timestamp}", "yyyy"),
            "TimestampRouter",
            {"topic.format": "${topic}_${timestamp}", "timestamp.format": "yyyy"},
        ),
        (
            InsertField(timestamp="at!", topic="topic", static=("from", "shop")),
            "InsertField$Value",
            {"timestamp.field": "at!", "topic.field": "topic", "static.field": "from", "static.value": "shop"},
        ),
        (
            ReplaceField(exclude=["a", "b"], renames={"c": "d"}, of="key"),
            "ReplaceField$Key",
            {"exclude": "a,b", "renames": "c:d"},
        ),
        (ReplaceField(include=["a"]), "ReplaceField$Value", {"include": "a"}),
        (MaskField("card", "iban", replacement=0), "MaskField$Value", {"fields": "card,iban", "replacement": "0"}),
        (MaskField("card"), "MaskField$Value", {"fields": "card"}),
        (Flatten(delimiter="_"), "Flatten$Value", {"delimiter": "_"}),
        (ExtractField("id", of="key"), "ExtractField$Key", {"field": "id"}),
        (ExtractField("a.b", nested=True), "ExtractField$Value", {"field": "a.b", "field.syntax.version": "V2"}),
        (ValueToKey("id", "city"), "ValueToKey", {"fields": "id,city"}),
        (HoistField("row"), "HoistField$Value", {"field": "row"}),
        (Cast({"a": "int8", "b": "string"}), "Cast$Value", {"spec": "a:int8,b:string"}),
        (Cast("int64", of="key"), "Cast$Key", {"spec": "int64"}),
        (
            SetSchemaMetadata(schema="Person", version=2),
            "SetSchemaMetadata$Value",
            {"schema.name": "Person", "schema.version": "2"},
        ),
        (
            TimestampConverter("string", field="at", format="yyyy"),
            "TimestampConverter$Value",
            {"field": "at", "target.type": "string", "format": "yyyy", "unix.precision": "milliseconds"},
        ),
        (
            HeaderFrom({"a": "x", "b": "y"}, move=True),
            "HeaderFrom$Value",
            {"fields": "a,b", "headers": "x,y", "operation": "move"},
        ),
        (InsertHeader("team", "shop"), "InsertHeader", {"header": "team", "value.literal": "shop"}),
        (DropHeaders("a", "b"), "DropHeaders", {"headers": "a,b"}),
    ],
)
def test_functions_make_classes_of_kafka(made: Transform, class_: str, settings: dict[str, str]) -> None:
    name = chain(sink(made))["transforms"]

    prefix = f"transforms.{name}"
    expected = {f"{prefix}.{setting}": value for setting, value in settings.items()}
    assert chain(sink(made)) == {"transforms": name, f"{prefix}.type": f"{KAFKA}{class_}", **expected}


def test_a_chain_has_its_order_and_predicates_are_shared() -> None:
    empty = RecordIsTombstone()
    made = sink(
        MaskField("card", predicate=empty, negate=True),
        Transform("org.example.Upper$Value", {"field": "city", "on": True}, name="upper"),
        MaskField("iban", predicate=TopicNameMatches("a.*", name="a")),
        Filter(predicate=empty),
        Filter(predicate=HasHeaderKey("gone")),
    )

    assert chain(made) == {
        "transforms": "mask_field,upper,mask_field_2,filter,filter_2",
        "transforms.mask_field.type": f"{KAFKA}MaskField$Value",
        "transforms.mask_field.fields": "card",
        "transforms.mask_field.predicate": "record_is_tombstone",
        "transforms.mask_field.negate": "true",
        "transforms.upper.type": "org.example.Upper$Value",
        "transforms.upper.field": "city",
        "transforms.upper.on": "true",
        "transforms.mask_field_2.type": f"{KAFKA}MaskField$Value",
        "transforms.mask_field_2.fields": "iban",
        "transforms.mask_field_2.predicate": "a",
        "transforms.filter.type": f"{KAFKA}Filter",
        "transforms.filter.predicate": "record_is_tombstone",
        "transforms.filter_2.type": f"{KAFKA}Filter",
        "transforms.filter_2.predicate": "has_header_key",
        "predicates": "record_is_tombstone,a,has_header_key",
        "predicates.record_is_tombstone.type": f"{KAFKA}predicates.RecordIsTombstone",
        "predicates.a.type": f"{KAFKA}predicates.TopicNameMatches",
        "predicates.a.pattern": "a.*",
        "predicates.has_header_key.type": f"{KAFKA}predicates.HasHeaderKey",
        "predicates.has_header_key.name": "gone",
    }
    assert not of_aliases("sink", made.properties)


def test_what_reads_changes_comes_before_rows_and_all_else_after_them() -> None:
    made = chain(capture(MaskField("card"), ChangeHeaders(), unwrap=True, topics="cdc.$1"))

    assert made["transforms"] == "change_headers,unwrap,route,mask_field"
    assert made["transforms.change_headers.type"] == "deltaworks.connect.ChangeHeaders"
    assert made["transforms.change_headers.prefix"] == "change."


def test_rows_may_be_made_at_another_place_of_the_chain() -> None:
    own = ExtractNewRecordState(deletions="drop", fields=[], headers=["op"])
    made = chain(capture(RegexRouter("a", "b"), own))

    assert made["transforms"] == "regex_router,extract_new_record_state"
    prefix = "transforms.extract_new_record_state"
    assert made[f"{prefix}.delete.tombstone.handling.mode"] == "drop"
    assert (made[f"{prefix}.add.headers"], f"{prefix}.add.fields" in made) == ("op", False)


def test_documents_of_mongodb_have_a_class_of_their_own() -> None:
    made = DebeziumMongoDb(name="a", connection="mongodb://h", topic_prefix="p", unwrap=True, transforms=[Flatten()])

    assert made.properties["transforms"] == "unwrap,flatten"
    assert made.properties["transforms.unwrap.type"].endswith("mongodb.transforms.ExtractNewDocumentState")


def test_config_wins_and_may_give_another_order_but_leave_nothing_out() -> None:
    config = {"transforms": "mask_field, unwrap", "transforms.mask_field.fields": "iban"}
    made = chain(capture(MaskField("card"), unwrap=True, config=config))

    assert (made["transforms"], made["transforms.mask_field.fields"]) == ("mask_field, unwrap", "iban")
    with pytest.raises(ConfigurationError, match="'transforms' in config= without 'unwrap', which it has as well"):
        capture(unwrap=True, config={"transforms": "mine", "transforms.mine.type": "x.Y"})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Filter(), "would drop every record"),
        (lambda: Transform(f"{KAFKA}Filter"), "would drop every record"),
        (lambda: MaskField("a", negate=True), "negate= without predicate="),
        (lambda: MaskField("a", predicate="empty"), "predicate= is no predicate, but 'empty'"),  # type: ignore[arg-type]
        (lambda: MaskField(), "has no fields"),
        (lambda: MaskField("a,b"), "without a comma"),
        (lambda: MaskField("a", "a"), "twice"),
        (lambda: MaskField("a", replacement=""), "empty replacement"),
        (lambda: MaskField("a", name="a.b"), "cannot have name='a.b'"),
        (lambda: MaskField("a", of="header"), "of='header'"),  # type: ignore[arg-type]
        (lambda: MaskField("a", config={"type": "x"}), "cannot have the setting 'type'"),
        (lambda: RegexRouter("a(.*)", r"b\1"), r"groups are \$1"),
        (lambda: TimestampRouter("orders"), "without a time"),
        (lambda: InsertField(), "adds no field"),
        (lambda: InsertField(topic="?"), "adds no field"),
        (lambda: InsertField(topic="a", timestamp="a!"), "two fields of one name"),
        (lambda: InsertField(static=("a",)), "a name and a text"),  # type: ignore[arg-type]
        (lambda: ReplaceField(), "does nothing"),
        (lambda: ReplaceField(include=["a"], exclude=["a"]), "includes and excludes a"),
        (lambda: ReplaceField(exclude=["a"], renames={"a": "b"}), "renames a, which it leaves out"),
        (lambda: ReplaceField(include=["a"], renames={"b": "c"}), "renames b, which it leaves out"),
        (lambda: ReplaceField(renames={"a": "c", "b": "c"}), "two fields the name c"),
        (lambda: ReplaceField(renames={"a:b": "c"}), "without a colon"),
        (lambda: Cast({"a": "decimal"}), "no type 'decimal'"),  # type: ignore[dict-item]
        (lambda: Cast("int"), "no type 'int'"),  # type: ignore[arg-type]
        (lambda: Cast({}), "has no types"),
        (lambda: SetSchemaMetadata(), "sets nothing"),
        (lambda: TimestampConverter("string", field="a"), "without format="),
        (lambda: TimestampConverter("epoch"), "knows no 'epoch'"),  # type: ignore[arg-type]
        (lambda: HeaderFrom({}), "has no fields"),
        (lambda: DropHeaders(), "has no headers"),
        (lambda: TopicNameMatches(""), "has pattern=''"),
        (lambda: Transform(""), "has no class"),
        (lambda: Transform("x.Y", {"a": ["b"]}), "'a' of type list"),  # type: ignore[dict-item]
    ],
)
def test_a_transform_that_cannot_work_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: capture(transforms=Transform("x.Y", {"a": "hunter2"})), "is no list, but of type Transform"),
        (lambda: Connector(name="a", class_="x.Y", transforms="flatten"), "is no list, but 'flatten'"),  # type: ignore[arg-type]
        (lambda: sink("flatten"), "'flatten' in transforms=, which is no transform"),  # type: ignore[arg-type]
        (lambda: sink(Flatten(name="a"), MaskField("b", name="a")), "two transforms with the name 'a'"),
        (
            lambda: sink(
                Filter(predicate=TopicNameMatches("a", name="p")), Filter(predicate=TopicNameMatches("b", name="p"))
            ),
            "two predicates with the name 'p'",
        ),
        (lambda: capture(ExtractNewRecordState(), unwrap=True), "makes rows of changes twice"),
        (lambda: sink(ExtractNewRecordState(), ChangeHeaders()), "ChangeHeaders reads changes, and comes after"),
        (lambda: capture(Flatten(name="unwrap"), unwrap=True), "two transforms with the name 'unwrap'"),
        (lambda: capture(InsertField(timestamp="at")), "its records have no timestamp"),
        (lambda: capture(InsertField(offset="o", of="key")), "its records have no offset"),
        (lambda: capture(TimestampRouter()), "TimestampRouter would fail"),
        (
            lambda: FileSource(name="a", file="/a", topic="a", transforms=[InsertField(partition="p")]),
            "its records have no partition",
        ),
        (lambda: sink(Transform("x.Y", {"password": "hunter2"})), "has the secret 'transforms.y.password' as text"),
    ],
)
def test_a_chain_that_cannot_work_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        make()
    assert "hunter2" not in str(refused.value)


def test_misspelt_options_are_told_with_what_was_meant() -> None:
    with pytest.raises(TypeError, match=r"Flatten\(\) has no argument 'predicat': did you mean 'predicate'"):
        Flatten(predicat=RecordIsTombstone())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"write \['card'\]"):
        ReplaceField(exclude="card")


def test_lines_of_a_file_have_a_time_when_they_are_read() -> None:
    made = FileSource(name="a", file="/a", topic="a", transforms=[TimestampRouter()])
    assert made.properties["transforms"] == "timestamp_router"


CONVERTERS: Sequence[tuple[str, dict[str, str]]] = [
    ("json", {"": "org.apache.kafka.connect.json.JsonConverter", ".schemas.enable": "false"}),
    ("json-with-schema", {"": "org.apache.kafka.connect.json.JsonConverter", ".schemas.enable": "true"}),
    ("string", {"": "org.apache.kafka.connect.storage.StringConverter"}),
    ("bytes", {"": "org.apache.kafka.connect.converters.ByteArrayConverter"}),
    ("io.confluent.connect.avro.AvroConverter", {"": "io.confluent.connect.avro.AvroConverter"}),
]


@pytest.mark.parametrize(("name", "settings"), CONVERTERS)
def test_converters_have_names(name: str, settings: dict[str, str]) -> None:
    made = sink(key_converter=name, value_converter=name).properties

    found = {setting: text for setting, text in made.items() if "converter" in setting}
    assert found == {f"{side}.converter{rest}": text for side in ("key", "value") for rest, text in settings.items()}


def test_lines_of_files_are_texts_unless_somebody_says_otherwise() -> None:
    assert FileSink(name="a", file="/a", topics=["t"]).properties["value.converter"].endswith(".StringConverter")
    made = FileSink(name="a", file="/a", topics=["t"], value_converter="json").properties
    assert made["value.converter"].endswith(".JsonConverter")


def test_a_converter_that_there_is_not_and_two_that_contradict_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no value_converter='jsn'.\n  Hint: did you mean 'json'"):
        sink(value_converter="jsn")
    with pytest.raises(ConfigurationError, match="plain_json= and converters"):
        capture(plain_json=True, value_converter="json")
    with pytest.raises(ConfigurationError, match="plain_json= and converters"):
        OpenSearchSink(name="s", topics=["a"], urls=["u"], plain_json=True, key_converter="bytes")
