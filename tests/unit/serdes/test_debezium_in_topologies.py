from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import (
    DeadLetters,
    Debezium,
    DebeziumChanges,
    DebeziumKey,
    DecimalDigits,
    ErrorPolicy,
    Json,
    Materialized,
    Pipeline,
    RowChange,
    Secret,
    StreamsBuilder,
    TopologyError,
)
from deltaworks.explain.masking import Mask
from deltaworks.explain.tracing import InputRecord
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.topics import TestInputTopic
from deltaworks.topology.persons import Person
from tests.unit.serdes.test_debezium import POSTGRES, envelope, packed, row


class Customer(msgspec.Struct, frozen=True):
    id: int
    name: str


class Order(msgspec.Struct, frozen=True):
    id: int
    customer_id: int


KEY = DebeziumKey(int, field="id")


def key(id: int) -> bytes:
    return packed({"id": id})


def rows(*, caching: bool = False, store: bool = True) -> tuple[TopologyTestDriver, TestInputTopic[int, Customer]]:
    """A table, and its updates in the topic `updates`."""
    builder = StreamsBuilder(explicit_names="stores" if store else "none")
    kept = Materialized("customers", caching=caching) if store else ""
    table = builder.table("cdc.customers", key=KEY, value=Debezium(Customer), store=kept)
    table.to_stream().to("updates")
    driver = TopologyTestDriver(builder.build())
    return driver, driver.create_input_topic("cdc.customers")


def updates(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return driver.create_output_topic("updates").read_key_values_to_list()


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    "deletion", [envelope("d", None, {"id": 7, "name": None}), row("true", "d", id=7, name=None), None]
)
def test_a_deletion_and_the_null_after_it_are_one(caching: bool, store: bool, deletion: bytes | None) -> None:
    driver, topic = rows(caching=caching, store=store)

    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    topic.pipe_raw(key(7), deletion)
    topic.pipe_raw(key(7), None)

    assert updates(driver) == [(7, Customer(7, "Ann")), (7, None)]


def test_a_row_that_comes_back_is_deleted_again() -> None:
    driver, topic = rows()

    for _ in range(2):
        topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
        topic.pipe_raw(key(7), envelope("d", None, {"id": 7, "name": "Ann"}))
        topic.pipe_raw(key(7), None)

    assert updates(driver) == [(7, Customer(7, "Ann")), (7, None)] * 2


def test_a_changed_key_is_a_deletion_and_another_row() -> None:
    """As Debezium sends it: d with `__debezium.newkey`, a null, c with `__debezium.oldkey`."""
    driver, topic = rows()
    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))

    old, new = (("__debezium.newkey", key(8)),), (("__debezium.oldkey", key(7)),)
    topic.pipe_raw(key(7), envelope("d", None, {"id": 7, "name": "Ann"}), headers=old)
    topic.pipe_raw(key(7), None)
    topic.pipe_raw(key(8), envelope("c", {"id": 8, "name": "Ann"}), headers=new)

    assert updates(driver)[1:] == [(7, None), (8, Customer(8, "Ann"))]
    assert dict(driver.store("customers").all()) == {8: Customer(8, "Ann")}


def test_a_snapshot_that_is_taken_again_changes_nothing_that_is_known() -> None:
    driver, topic = rows()

    for op in ("c", "r"):
        topic.pipe_raw(key(7), envelope(op, {"id": 7, "name": "Ann"}))

    assert dict(driver.store("customers").all()) == {7: Customer(7, "Ann")}


def test_a_truncated_table_is_a_dead_letter_and_keeps_its_rows() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table("cdc.customers", key=KEY, value=Debezium(Customer), store="customers").to_delta(
            "customers", key="customer"
        )

    pipeline = Pipeline(
        name="kept", topology=topology, on_error="continue", dead_letters=DeadLetters(topic="dead", keep_bytes=True)
    )
    driver = TopologyTestDriver(pipeline)
    topic = driver.create_input_topic("cdc.customers")

    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    topic.pipe_raw(None, envelope("t"))
    topic.pipe_raw(key(7), envelope("u", {"id": "7", "name": "Ann"}))

    assert dict(driver.table("customers").rows) == {7: Customer(7, "Ann")}
    assert [("truncated" in letter.message, "$.id" in letter.message) for letter in driver.dead_letters] == [
        (True, False),
        (False, True),
    ]


def test_a_truncated_table_that_is_ignored_is_no_update() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=KEY, value=Debezium(Customer, on_truncate="ignore"), store="rows")
    table.to_stream().to("updates")
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in")

    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    topic.pipe_raw(None, envelope("t"))

    assert updates(driver) == [(7, Customer(7, "Ann"))]


def test_each_change_is_a_record_with_the_time_of_the_database() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in",
        key=KEY,
        value=DebeziumChanges(Customer),
        on_null="skip",
        timestamp_extractor=DebeziumChanges.source_time,
    )
    stream.to("out")
    stream.to_delta("changes", key="customer")
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in")

    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}), timestamp_ms=1)
    topic.pipe_raw(key(7), envelope("d", None, {"id": 7, "name": "Ann"}), timestamp_ms=2)
    topic.pipe_raw(key(7), None, timestamp_ms=3)

    out = driver.create_output_topic("out").read_records_to_list()
    assert [(each.timestamp_ms, each.value and each.value.op) for each in out] == [
        (POSTGRES["ts_ms"], "c"),
        (POSTGRES["ts_ms"], "d"),
    ]
    assert [each.value.op for each in driver.table("changes").rows] == ["c", "d"]


def test_changes_with_the_time_of_the_database_become_a_table() -> None:
    builder = StreamsBuilder()
    changes = builder.stream(
        "in", key=KEY, value=DebeziumChanges(Customer), timestamp_extractor=DebeziumChanges.source_time
    )

    def after(change: RowChange[Customer] | None) -> Customer | None:
        return None if change is None else change.after

    changes.map_values(after).to_table(store="rows")
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in")

    topic.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    topic.pipe_raw(key(8), envelope("c", {"id": 8, "name": "Bob"}))
    topic.pipe_raw(key(7), envelope("d", None, {"id": 7, "name": "Ann"}))
    topic.pipe_raw(key(7), None)

    assert dict(driver.store("rows").all()) == {8: Customer(8, "Bob")}


def test_tables_of_a_database_are_joined_by_a_foreign_key() -> None:
    builder = StreamsBuilder()
    customers = builder.table("cdc.customers", key=KEY, value=Debezium(Customer), store="customers")
    orders = builder.table("cdc.orders", key=KEY, value=Debezium(Order), store="orders")

    def named(order: Order, customer: Customer) -> str:
        return f"{order.id} of {customer.name}"

    orders.join(customers, named, foreign_key=lambda _, order: order.customer_id, name="named").to_stream().to(
        "updates"
    )
    driver = TopologyTestDriver(builder.build())
    of_customers, of_orders = (driver.create_input_topic(each) for each in ("cdc.customers", "cdc.orders"))

    of_orders.pipe_raw(key(1), envelope("c", {"id": 1, "customer_id": 7}))
    of_customers.pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    of_customers.pipe_raw(key(7), row(id=7, name="Anna"))
    of_orders.pipe_raw(key(1), envelope("d", None, {"id": 1, "customer_id": None}))
    of_orders.pipe_raw(key(1), None)

    assert updates(driver) == [(1, "1 of Ann"), (1, "1 of Anna"), (1, None)]


def test_a_global_table_takes_rows() -> None:
    builder = StreamsBuilder()
    customers = builder.global_table("cdc.customers", key=KEY, value=Debezium(Customer), store="customers")
    orders = builder.stream("orders", key=int, value=Order)
    orders.join(
        customers, lambda _, customer: customer.name, selector=lambda _, order: order.customer_id, value=str
    ).to("updates")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("cdc.customers").pipe_raw(key(7), envelope("c", {"id": 7, "name": "Ann"}))
    driver.create_input_topic("orders").pipe_input(1, Order(1, 7))

    assert updates(driver) == [(1, "Ann")]


@pytest.mark.parametrize("operator", ["table", "global_table"])
def test_changes_are_no_rows_of_a_table(operator: str) -> None:
    builder = StreamsBuilder()
    getattr(builder, operator)("in", key=KEY, value=DebeziumChanges(Customer), store="rows")

    with pytest.raises(TopologyError, match=r"(?s)keeps rows.*value=Debezium\(Customer\)"):
        builder.build()


def test_a_table_without_a_named_store_is_refused() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=KEY, value=Debezium(Customer)).to_stream().to("out")

    with pytest.raises(TopologyError, match="has no name for its store"):
        builder.build()


def test_a_stream_of_rows_has_a_null_for_each_deletion() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=KEY, value=Debezium(Customer)).to("updates")
    driver = TopologyTestDriver(builder.build(), errors=ErrorPolicy())
    topic = driver.create_input_topic("in")

    topic.pipe_input(7, Customer(7, "Ann"))
    topic.pipe_raw(key(7), envelope("d", None, {"id": 7, "name": "Ann"}))
    topic.pipe_raw(key(7), None)

    assert updates(driver) == [(7, Customer(7, "Ann")), (7, None), (7, None)]
    assert driver.produced["updates"][0].value == b'{"id":7,"name":"Ann"}'


def test_what_is_written_is_json_of_the_row_however_it_was_read() -> None:
    class Price(msgspec.Struct):
        amount: Annotated[Decimal, DecimalDigits(10, 2)]

    builder = StreamsBuilder()
    builder.stream("in", key=KEY, value=Debezium(Price, decimals="precise")).to("updates")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("in").pipe_raw(key(7), packed({"amount": "BNI="}))

    assert driver.produced["updates"][0].value == b'{"amount":"12.34"}'


@pytest.mark.parametrize("serde", [Debezium(Customer), DebeziumChanges(Customer)])
def test_a_person_is_found_in_all_parts_of_a_record(serde: Any) -> None:
    person = Person.of("u-17")
    named: dict[str, Any] = {"id": 7, "name": "u-17"}
    other = named | {"name": "u-18"}

    for data in (
        envelope("u", named, other),
        envelope("u", other, named),
        envelope("d", None, named),
        row(**named),
        row("true", "d", **named),
    ):
        assert person.in_raw(data, serde)
    assert not person.in_raw(envelope("u", other, other), serde)
    assert Person.of("7").in_raw(key(7), KEY, is_key=True)


def test_what_is_secret_is_in_no_part_of_a_record_that_is_shown() -> None:
    class Known(msgspec.Struct):
        id: int
        name: Annotated[str, Secret()]

    def topology(builder: StreamsBuilder) -> None:
        builder.table("in", key=KEY, value=Debezium(Known), store="rows").to_delta("known", key="known")

    pipeline = Pipeline(name="masked", topology=topology)
    mask = Mask(pipeline, pipeline.plan(), b"k")
    named: dict[str, Any] = {"id": 7, "name": "Ann Smith"}
    for data in (envelope("u", named, named), envelope("d", None, named), row(**named), row("true", "d", **named)):
        shown = mask.record(InputRecord("in", 0, 0, 0, key(7), data, (), 0, 0))
        assert b"Ann" not in (shown.value or b"")
        assert shown.key == key(7)


def test_what_stores_hold_does_not_depend_on_how_rows_were_read() -> None:
    """So a topic may go from changes to rows, or get another unit, and the stream goes on with its stores."""

    def fingerprint(value: Any) -> Any:
        builder = StreamsBuilder("same")
        builder.table("in", key=KEY, value=value, store="rows").to_delta("rows", key="known")
        return builder.build().fingerprint()

    before = fingerprint(Debezium(Customer))

    assert fingerprint(Debezium(Customer, unit="us", form="row", on_truncate="ignore")) == before
    assert fingerprint(Json(Customer)) == before
