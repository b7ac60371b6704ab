"""The registry through Confluent's client, and schemas that are kept for when it is away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    IncompatibleCheckpointError,
    SchemasUnavailableError,
    SerializationError,
)
from deltaworks.kafka.kept_schemas import Kept
from deltaworks.kafka.schema_registry import Registry
from deltaworks.serdes.schemas import InMemory, Reference, WriterSchema
from tests.support.schemas import Away

ONE = WriterSchema('{"type":"record","name":"A","fields":[]}', "AVRO")
TWO = WriterSchema('{"type":"record","name":"B","fields":[]}', "AVRO")


def test_a_schema_is_registered_once_and_found_by_its_id() -> None:
    registry = Registry("mock://found")

    number = registry.id_of("a-value", ONE)

    assert registry.id_of("a-value", ONE) == number != registry.id_of("a-value", TWO)
    assert registry.by_id(number) == ONE
    assert [(each.schema, each.version) for each in registry.versions("a-value")] == [(ONE, 1), (TWO, 2)]
    assert registry.versions("others") == []


def test_references_are_registered_first() -> None:
    registry = Registry("mock://references")
    text = '{"type":"record","name":"C","fields":[{"name":"a","type":"A"}]}'

    number = registry.id_of("c-value", WriterSchema(text, "AVRO", (Reference("A", ONE),)))

    assert registry.by_id(number).references == (Reference("A", ONE, "A", 1),)


def test_an_id_that_is_not_there_is_an_error_of_the_record() -> None:
    with pytest.raises(SerializationError, match="schema 77, which is not in mock://none"):
        Registry("mock://none").by_id(77)


def test_an_id_that_is_not_there_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, asked, now = Registry("mock://missing"), list[int](), [100.0]
    monkeypatch.setattr("deltaworks.clock.ticks_s", lambda: now[0])
    found = registry._client.get_schema

    def get_schema(number: int) -> Any:
        asked.append(number)
        return found(number)

    monkeypatch.setattr(registry._client, "get_schema", get_schema)

    for seconds in (0, 1, 8):
        now[0] += seconds
        with pytest.raises(SerializationError, match="schema 1, which is not in mock://missing"):
            registry.by_id(1)
    assert asked == [1]

    now[0] += 2
    registry.id_of("a-value", ONE)
    assert registry.by_id(1) == ONE


def test_the_first_question_is_asked_however_young_the_clock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry("mock://young")
    registry.id_of("a-value", ONE)
    monkeypatch.setattr("deltaworks.clock.ticks_s", lambda: 1.0)

    assert registry.by_id(1) == ONE


def test_a_schema_that_is_not_there_is_not_registered_against_the_will() -> None:
    with pytest.raises(ConfigurationError, match="not registered under subject 'a-value'"):
        Registry("mock://closed", register=False).id_of("a-value", ONE)


def test_a_registry_that_does_not_answer_is_an_error_that_may_pass_and_tells_no_secret() -> None:
    registry = Registry("http://me:secret@127.0.0.1:9", options={"max.retries": 0})

    with pytest.raises(
        SchemasUnavailableError, match=r"127\.0\.0\.1:9 does not answer when asked for schema 7"
    ) as told:
        registry.by_id(7)
    assert "secret" not in str(told.value)


def test_an_option_that_the_client_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)refuses its options.*no\.such"):
        Registry("http://127.0.0.1:9", options={"no.such": 1})


def test_kept_schemas_are_there_while_the_registry_is_away(tmp_path: Path) -> None:
    registry = InMemory()
    number = Kept(tmp_path, registry).id_of("a", ONE)
    assert Kept(tmp_path, registry).by_id(number) == ONE

    kept = Kept(tmp_path, Away())

    assert (kept.by_id(number), kept.id_of("a", ONE)) == (ONE, number)
    for ask in (lambda: kept.by_id(number + 1), lambda: kept.id_of("b", ONE), lambda: kept.versions("a")):
        with pytest.raises(SchemasUnavailableError):
            ask()


def test_a_kept_schema_has_its_format_and_its_references(tmp_path: Path) -> None:
    registry = InMemory()
    schema = WriterSchema("{}", "JSON", (Reference("x.json", ONE, "x", 3),))
    number = registry.id_of("a", schema)

    Kept(tmp_path, registry).by_id(number)

    assert json.loads((tmp_path / "ids" / "1.json").read_text())["format"] == 1
    assert Kept(tmp_path, Away()).by_id(number) == schema


def test_another_schema_of_the_same_id_is_a_conflict(tmp_path: Path) -> None:
    one, other = InMemory(), InMemory()
    one.id_of("a", ONE)
    other.id_of("a", TWO)
    Kept(tmp_path, one).by_id(1)

    with pytest.raises(ConflictError, match=r"schema 1 is another one in .* than in the schema registry"):
        Kept(tmp_path, other).check(1, other.by_id(1))
    Kept(tmp_path, one).check(1, ONE)


def test_two_that_ask_different_registries_at_once_are_told(tmp_path: Path) -> None:
    one, other = InMemory(), InMemory()
    one.id_of("a", ONE)
    other.id_of("a", TWO)

    class Meanwhile(InMemory):
        """Somebody else writes the file while this one is asked."""

        def by_id(self, number: int) -> WriterSchema:
            Kept(tmp_path, other).by_id(number)
            return one.by_id(number)

    with pytest.raises(ConflictError):
        Kept(tmp_path, Meanwhile()).by_id(1)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    (tmp_path / "ids" / "1.json").write_text('{"format":2,"schema":{}}')

    with pytest.raises(IncompatibleCheckpointError, match="has format 2; this deltaworks reads format 1"):
        Kept(tmp_path, Away()).by_id(1)


class Counting(InMemory):
    """Counts how often it is asked."""

    asked = 0

    def by_id(self, number: int) -> WriterSchema:
        self.asked += 1
        return super().by_id(number)


def test_a_replay_knows_what_was_not_there_and_a_stream_asks_again(tmp_path: Path) -> None:
    registry = Counting()
    kept = Kept(tmp_path, registry)
    for _ in range(2):
        with pytest.raises(SerializationError, match="schema 1, which is not in"):
            kept.by_id(1)
    assert registry.asked == 2 and [file.name for file in (tmp_path / "missing").iterdir()] == ["1.json"]

    with pytest.raises(SchemasUnavailableError):
        Kept(tmp_path, Away()).by_id(1)
    with pytest.raises(SerializationError, match="schema 1, which is not in the schema registry when the stream read"):
        Kept(tmp_path, Away(), of_history=True).by_id(1)
    with pytest.raises(SchemasUnavailableError):
        Kept(tmp_path, Away(), of_history=True).by_id(2)

    registry.id_of("a", ONE)
    assert kept.by_id(1) == ONE
    assert Kept(tmp_path, Away(), of_history=True).by_id(1) == ONE
