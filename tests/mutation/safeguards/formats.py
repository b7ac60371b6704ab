"""Mutations of formats of a schema registry: what is kept of it, whose schema reads a record, who is to blame."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Hole, Mutation, Patch

_KEPT = "tests/unit/kafka/test_schema_registry.py::test_kept_schemas_are_there_while_the_registry_is_away"
_EVOLUTION = "tests/unit/serdes/test_avro_evolution.py::test_an_older_record_gets_the_defaults_of_the_type"
_AWAY = "tests/unit/topology/test_registered.py::test_a_registry_that_is_away_or_unknown_makes_no_record_a_dead_letter"
_OTHERWISE = "tests/unit/serdes/test_avro.py::test_older_records_of_another_format_are_read"


def _schemas_not_kept(patch: Patch) -> None:
    from deltaworks.kafka.kept_schemas import Kept

    patch(Kept, "by_id", lambda self, number: self._behind.by_id(number))
    patch(Kept, "id_of", lambda self, subject, schema: self._behind.id_of(subject, schema))


def _writer_ignored(patch: Patch) -> None:
    from deltaworks.serdes import wire
    from deltaworks.serdes.avro.serde import Avro

    original = Avro._read

    def read(self: Any, data: bytes, number: int | None) -> Any:
        return original(self, data if number is None else data[wire.HEADER_BYTES :], None)

    patch(Avro, "_read", read)


def _away_is_a_bad_record(patch: Patch) -> None:
    from deltaworks.errors import SchemasUnavailableError, SerializationError
    from deltaworks.serdes.in_registry import InRegistry

    original = InRegistry.deserialize

    def deserialize(self: Any, data: bytes | None) -> Any:
        try:
            return original(self, data)
        except SchemasUnavailableError as error:
            raise SerializationError(str(error)) from error

    patch(InRegistry, "deserialize", deserialize)


def _otherwise_ignored(patch: Patch) -> None:
    from deltaworks.serdes.in_registry import InRegistry

    original = InRegistry._register

    def register(self: Any, registry: bool, subject: Any, otherwise: Any) -> None:
        original(self, registry, subject, None)

    patch(InRegistry, "_register", register)


MUTATIONS = {
    "schemas of records not kept": Mutation(Hole.FORMAT, _schemas_not_kept, (_KEPT,)),
    "schema of a writer ignored": Mutation(Hole.FORMAT, _writer_ignored, (_EVOLUTION,)),
    "a registry that is away taken for a bad record": Mutation(Hole.FORMAT, _away_is_a_bad_record, (_AWAY,)),
    "records without an id refused": Mutation(Hole.FORMAT, _otherwise_ignored, (_OTHERWISE,)),
}
