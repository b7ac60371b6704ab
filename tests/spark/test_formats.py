"""Avro in, Protobuf out, with a registry that is away: what was met before is enough, and nothing is guessed."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks import Json, exits
from deltaworks.control import heartbeat, jobs
from deltaworks.kafka import admin
from deltaworks.kafka.kept_schemas import Kept
from deltaworks.serdes.schemas import InMemory, bound
from deltaworks.settings import Settings
from tests.spark import shop
from tests.spark.shop import LARGEST, ORDERS, Order
from tests.support.live_stack import LiveStack

pytestmark = pytest.mark.timeout(600)
USERS = ("ada", "bob", "eve")


@pytest.fixture
def settings(kafka: LiveStack, tmp_path: Path) -> Settings:
    (tmp_path / "project" / "jobs").mkdir(parents=True)
    shutil.copy(shop.__file__, tmp_path / "project" / "jobs" / "shop.py")
    package, *others = kafka.settings.python_path
    project = tmp_path / "project"
    return replace(
        kafka.settings, home=tmp_path / "home", project=project, python_path=(package, project, *others), cores=2
    )


def orders(count: int) -> list[Order]:
    rng, begin = random.Random(count), datetime(2026, 3, 1, tzinfo=UTC)
    return [
        Order(rng.choice(USERS), Decimal(rng.randrange(10_000)) / 100, begin + timedelta(milliseconds=number))
        for number in range(count)
    ]


def run(kafka: LiveStack, settings: Settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "run", "shop", "--until-caught-up"],
        env=kafka.environment() | settings.process_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_formats_of_a_registry_that_is_away(kafka: LiveStack, settings: Settings) -> None:
    known = Kept(jobs.schemas_of(settings, "shop").folder, InMemory())
    read: Any = bound(ORDERS, known, "orders-in-avro", is_key=False)
    written: Any = bound(LARGEST, known, "largest", is_key=False)
    sent = orders(400)
    written.serialize(sent[0])  # the schemas of both topics were met before
    admin.create_topics(kafka.bootstrap, admin.topic_specs(shop.pipeline.topics))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number, order in enumerate(sent):
        data = Json(Order).serialize(order) if number % 3 == 0 else read.serialize(order)
        producer.produce("orders-in-avro", data, b"o-%d" % number, timestamp=number)
    producer.flush()

    done = run(kafka, settings)

    assert done.returncode == exits.OK, done.stderr[-3000:]
    expected = {user: max((o for o in sent if o.user == user), key=lambda order: order.amount) for user in USERS}
    found = {(message.key() or b"").decode(): written.deserialize(message.value()) for message in kafka.read("largest")}
    assert {user: order.amount for user, order in found.items()} == {u: o.amount for u, o in expected.items()}
    rows = DeltaTable(settings.tables / "largest").to_pyarrow_table().to_pylist()
    assert {row["user_id"]: row["amount"] for row in rows} == {u: o.amount for u, o in expected.items()}
    assert not DeltaTable(settings.tables / "unreadable").to_pyarrow_table().num_rows

    producer.produce("orders-in-avro", b"\0\0\0\0\x63\2\2", b"foreign")
    producer.produce("orders-in-avro", read.serialize(sent[0])[:-1], b"cut off")
    producer.flush()
    refused = run(kafka, settings)

    assert refused.returncode != exits.OK
    assert "a record names schema 99, and there is no schema registry." in refused.stderr + refused.stdout
    assert not DeltaTable(settings.tables / "unreadable").to_pyarrow_table().num_rows
    beat = heartbeat.read(settings.pipeline("shop") / "heartbeat.json")
    assert beat is not None and beat.state == "failed" and beat.dead_letters == 0
