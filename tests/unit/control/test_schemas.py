"""What is read and written is compared with the registry, and nothing is registered before all checks have passed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deltaworks import Avro, Json, Pipeline, Protobuf, StreamsBuilder
from deltaworks.control import schemas
from deltaworks.errors import ConfigurationError, ConflictError, SchemasUnavailableError
from deltaworks.serdes.schemas import InMemory, NoRegistry, Schemas, WriterSchema
from tests.support.schemas import Away


class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: int


class Total(msgspec.Struct, frozen=True):
    amount: int


WIDER = msgspec.defstruct("Order", [("order_id", str), ("amount", int), ("note", str, "")])
OTHER = msgspec.defstruct("Order", [("order_id", str)])
TOTAL = 'syntax = "proto3"; message Total { int64 amount = 1; } message Other { string x = 1; }'
ORDERS, TOTALS = Avro(Order, registry=True), Protobuf(Total, TOTAL, "Total", registry=True)


def topology(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders", key=str, value=ORDERS)
    orders.map_values(lambda order: Total(order.amount), value=TOTALS).to("totals")


def plan(registry: Schemas, build: Any = topology) -> Any:
    return Pipeline(name="shop", topology=build, schemas=registry).plan()


def test_what_is_written_is_registered_and_what_is_read_is_not() -> None:
    registry = InMemory()

    checked = schemas.check(plan(registry), registry)

    assert registry.subjects() == []
    assert checked.lines == ()
    assert checked.register(registry) == ["totals-value"]
    assert registry.subjects() == ["totals-value"]
    assert schemas.check(plan(registry), registry).register(registry) == [], "it is there"
    assert len(registry.versions("totals-value")) == 1


def test_a_newer_version_that_fits_flows_on() -> None:
    registry = InMemory()
    registry.id_of("orders-value", Avro(Order).writer_schema)
    registry.id_of("orders-value", Avro(WIDER).writer_schema)

    assert schemas.check(plan(registry), registry).lines == ()


def test_the_newest_version_that_does_not_fit_is_refused_by_field_and_an_older_one_is_told() -> None:
    registry = InMemory()
    registry.id_of("orders-value", Avro(OTHER).writer_schema)

    with pytest.raises(ConflictError) as refused:
        schemas.check(plan(registry), registry)
    assert refused.value.message == (
        "formats do not fit the schema registry:\n"
        "  values of topic 'orders' that were written with version 1 of 'orders-value', the newest, cannot be read as "
        "avro(Order): field 'amount' is not written, and has no default"
    )

    registry.id_of("orders-value", Avro(Order).writer_schema)
    [line] = schemas.check(plan(registry), registry).lines
    assert line == (
        "values of topic 'orders' that were written with version 1 of 'orders-value' cannot be read as avro(Order): "
        "field 'amount' is not written, and has no default"
    )


def test_a_topic_of_another_format_is_refused() -> None:
    registry = InMemory()
    registry.id_of("orders-value", WriterSchema(TOTAL, "PROTOBUF"))

    with pytest.raises(ConflictError, match="it is PROTOBUF and not Avro"):
        schemas.check(plan(registry), registry)


class Strict(InMemory):
    """A registry that takes nothing new under a subject."""

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        return "it is not FULL compatible with the versions that are there" if self.versions(subject) else None


def test_what_the_registry_would_not_take_is_refused_by_field_before_anything_is_registered() -> None:
    registry = Strict()
    narrower = 'syntax = "proto3"; message Total { string amount = 1; }'
    registry.id_of("totals-value", WriterSchema(narrower, "PROTOBUF"))

    with pytest.raises(ConflictError) as refused:
        schemas.check(plan(registry), registry)
    assert refused.value.message == (
        "formats do not fit the schema registry:\n"
        "  values of topic 'totals' cannot be registered as protobuf(Total) under 'totals-value': it is not FULL "
        "compatible with the versions that are there: field 1, 'amount' is written as string, and read as int64"
    )
    assert len(registry.versions("totals-value")) == 1


def test_keys_and_formats_inside_others_are_compared_too() -> None:
    def built(builder: StreamsBuilder) -> None:
        orders = builder.stream("orders", key=Avro(Total, registry=True), value=list[int])
        orders.select_key(lambda _, value: Order("o", len(value)), key=ORDERS).group_by_key().count(store="n")

    registry = InMemory()

    checked = schemas.check(plan(registry, built), registry)

    assert checked.register(registry) == ["shop-n-changelog-key", "shop-n-repartition-key"]
    registry.id_of("orders-key", Avro(OTHER).writer_schema)
    with pytest.raises(ConflictError, match="keys of topic 'orders' that were written with version 1"):
        schemas.check(plan(registry, built), registry)


def test_without_a_registry_what_needs_one_is_refused_and_what_is_only_read_waits_for_one_that_is_away() -> None:
    def copied(builder: StreamsBuilder) -> None:
        builder.stream("orders", key=str, value=ORDERS).map_values(str, value=Json(str)).to("texts")

    with pytest.raises(ConfigurationError, match="there is no schema registry"):
        schemas.check(plan(NoRegistry()), NoRegistry())
    with pytest.raises(SchemasUnavailableError):
        schemas.check(plan(Away()), Away())
    [line] = schemas.check(plan(Away(), copied), Away()).lines
    assert line.startswith("the versions of 'orders-value' were not compared: the registry does not answer")


def test_a_schema_that_is_known_is_written_while_the_registry_is_away() -> None:
    class Known(Away):
        """It has kept what is written."""

        def refusal(self, subject: str, schema: WriterSchema) -> None:  # type: ignore[override]
            return None

        def id_of(self, subject: str, schema: WriterSchema) -> int:  # type: ignore[override]
            return 1

    checked = schemas.check(plan(Known()), Known())

    assert checked.register(Known()) == ["totals-value"]
