"""Records of topics name their schema; what stores and exchanges hold does not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import Avro, Bytes, DeadLetters, Json, Pipeline, StreamsBuilder
from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError, DeltaworksError, SchemasUnavailableError
from deltaworks.kafka.schemas_of_settings import SchemasOfSettings
from deltaworks.object_path import access_of, connect
from deltaworks.serdes.packed import Packed
from deltaworks.serdes.schemas import InMemory, NoRegistry, Schemas, bound
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes import ExchangeSink, Source
from tests.support.schemas import Away


class UserId(msgspec.Struct, frozen=True):
    id: int


class Order(msgspec.Struct, frozen=True):
    user: UserId
    amount: int


class User(msgspec.Struct, frozen=True):
    name: str


class Bought(msgspec.Struct, frozen=True):
    name: str
    amount: int


KEY = Avro(UserId, registry=True)
ORDER = Avro(Order, registry=True)
USER = Avro(User, registry=True)
BOUGHT = Avro(Bought, registry=True)


def topology(builder: StreamsBuilder) -> None:
    """A table, an exchange that meets it, a foreign-key join, and a store of an aggregate."""
    users = builder.table("users", key=KEY, value=USER, store="users")
    orders = builder.stream("orders", key=str, value=ORDER)
    by_user = orders.select_key(lambda _, order: order.user, key=KEY).repartition(name="by-user")
    by_user.join(users, lambda order, user: Bought(user.name, order.amount), value=BOUGHT).to("bought")
    largest = by_user.group_by_key().reduce(max_of, store="largest")
    largest.to_delta("largest", key=None)
    rows = builder.table("rows", key=str, value=ORDER, store="rows")
    joined = rows.join(
        users,
        lambda order, user: Bought(user.name, order.amount),
        foreign_key=lambda _, order: order.user,
        value=BOUGHT,
        name="of-user",
    )
    joined.to_stream().to("joined")


def max_of(one: Order, other: Order) -> Order:
    return max(one, other, key=lambda order: order.amount)


def pipeline(schemas: Schemas | None, build: Callable[[StreamsBuilder], None] = topology, **options: Any) -> Pipeline:
    return Pipeline(name="shop", topology=build, schemas=schemas, **options)


def test_topics_have_schemas_and_stores_have_values() -> None:
    schemas = InMemory()
    plan = pipeline(schemas).plan()

    driver = TopologyTestDriver(plan)
    driver.create_input_topic("users").pipe_input(UserId(7), User("Ada"))
    orders = driver.create_input_topic("orders")
    orders.pipe_input("o-1", Order(UserId(7), 3))
    orders.pipe_input("o-2", Order(UserId(7), 2))
    driver.create_input_topic("rows").pipe_input("r-1", Order(UserId(7), 5))

    bought = driver.create_output_topic("bought").read_values_to_list()
    assert bought == [Bought("Ada", 3), Bought("Ada", 2)]
    assert driver.create_output_topic("joined").read_values_to_list() == [Bought("Ada", 5)]
    assert driver.key_value_store("largest", key=UserId, value=Order).get(UserId(7)) == Order(UserId(7), 3)
    stores = {store.name: store for store in plan.stores}
    assert isinstance(stores["largest"].value, Packed) and isinstance(stores["users"].value, Packed)
    inner = [
        each for each in plan.nodes if isinstance(each, ExchangeSink) or (isinstance(each, Source) and each.exchange)
    ]
    assert not [each for each in inner if isinstance(each.value, Avro)]
    [exchange] = [each for each in inner if isinstance(each, ExchangeSink) and each.exchange == "by-user-repartition"]
    source = plan.sources_of("users")[0]
    assert (
        exchange.key.serialize(UserId(7))
        == source.key.serialize(UserId(7))
        == stores["largest"].key.serialize(UserId(7))
    )


def test_subjects_are_those_of_topics_or_of_kafka_streams_internal_ones() -> None:
    schemas = InMemory()
    test_plan = pipeline(schemas).plan()
    for node in test_plan.nodes:
        for value in (getattr(node, "key", None), getattr(node, "value", None), getattr(node, "other_key", None)):
            if isinstance(value, Avro):
                value.serialize(example_of(value.type))

    assert schemas.subjects() == [
        "bought-key", "bought-value", "joined-value", "orders-value", "rows-value", "users-key", "users-value",
    ]  # fmt: skip


def example_of(kind: Any) -> Any:
    user = UserId(1)
    return {UserId: user, Order: Order(user, 1), User: User("u"), Bought: Bought("u", 1)}[kind]


@pytest.mark.parametrize(("schemas", "error"), [(Away(), SchemasUnavailableError), (NoRegistry(), ConfigurationError)])
def test_a_registry_that_is_away_or_unknown_makes_no_record_a_dead_letter(
    schemas: Schemas, error: type[DeltaworksError]
) -> None:
    def copied(builder: StreamsBuilder) -> None:
        builder.stream("orders", key=str, value=ORDER).to("copies")

    def written(builder: StreamsBuilder) -> None:
        builder.stream("orders", key=str, value=Json(Order)).map_values(lambda order: order, value=ORDER).to("copies")

    letters = DeadLetters(topic="dead")
    for build, data in (
        (copied, bytes.fromhex("0000000001") + b"\2\2"),
        (written, Json(Order).serialize(example_of(Order))),
    ):
        driver = TopologyTestDriver(pipeline(schemas, build, on_error="continue", dead_letters=letters))
        with pytest.raises(error):
            driver.create_input_topic("orders", value=Bytes()).pipe_input("o", data)
    known = InMemory()
    data = bound(ORDER, known, "orders", is_key=False).serialize(example_of(Order))
    driver = TopologyTestDriver(pipeline(known, copied, on_error="continue", dead_letters=letters))
    driver.create_input_topic("orders", value=Bytes()).pipe_input("o", data[:-1])
    assert len(driver.create_output_topic("dead", key=Bytes(), value=Bytes()).read_values_to_list()) == 1


def test_a_pipeline_of_a_project_knows_the_registry_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "registered.py").write_text(
        "from deltaworks import Avro, Pipeline\n"
        "def topology(builder):\n"
        "    builder.stream('numbers', key=str, value=Avro(int, registry=True)).to('copies')\n"
        "pipeline = Pipeline(name='registered', topology=topology)\n"
    )
    (tmp_path / "deltaworks.toml").write_text(
        '[schema_registry]\nurl = "mock://of-a-project"\nusername = "u"\npassword = { env = "SECRET" }\n'
    )
    variables = {"DELTAWORKS_PROJECT": str(tmp_path), "SECRET": "s", "DELTAWORKS_HOME": str(tmp_path / "home")}
    settings = Settings.from_environment(variables)
    settings = replace(settings, values=settings.values.holding(variables))

    found = jobs.load(settings, "registered")

    assert "mock" not in repr(found) and isinstance(found.schemas, SchemasOfSettings)
    value = found.plan().sources_of("numbers")[0].value
    data = value.serialize(7)
    alone = SchemasOfSettings({}, found.schemas.folder)  # what was written can be read without the registry
    assert bound(Avro(int, registry=True), alone, "numbers", is_key=False).deserialize(data) == 7
    assert data[:1] == b"\0" and value.deserialize(data) == 7
    again = pickle.loads(pickle.dumps(found.schemas))
    assert again.by_id(int.from_bytes(data[1:5], "big")).text == '"long"'
    with pytest.raises(ConfigurationError, match="no schema registry"):
        alone.by_id(99)


def test_where_schemas_are_kept_says_nothing_of_another_machine(tmp_path: Path) -> None:
    """An executor has places of its own for what belongs to a store."""
    access: Any = "how it is reached"
    here = connect("s3://bucket-of-schemas/lake", access, tmp_path / "driver")
    sent = pickle.dumps(SchemasOfSettings({}, here / "schemas"))
    connect(str(here), access, tmp_path / "executor")

    found = pickle.loads(sent)

    assert found.folder == here / "schemas"
    assert access_of(here)[1] == tmp_path / "executor"
