"""Which topics a start creates; Kafka itself is replaced by a list."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, Topic
from deltaworks.control import topics
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka import admin


class Broker:
    """Topic -> its partitions."""

    def __init__(self, there: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.there = there
        monkeypatch.setattr(admin, "partition_counts", lambda _: dict(self.there))
        monkeypatch.setattr(admin, "create_topics", self.create)

    def create(self, _: str, specs: Iterable[admin.TopicSpec]) -> list[str]:
        new = {spec.name: spec.partitions for spec in specs if spec.name not in self.there}
        self.there |= new
        return list(new)


def topology(builder: StreamsBuilder) -> None:
    users = builder.global_table("users", key=str, value=str, store="users")
    orders = builder.stream("orders", key=str, value=str)
    orders.join(users, lambda order, user: order + user, selector=lambda key, _: key, value=str).to("enriched")


PIPELINE = Pipeline(name="shop", topology=topology, dead_letters=DeadLetters(topic="letters"))


def test_a_first_start_creates_what_the_topology_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"orders": 6, "enriched": 2}, monkeypatch)

    prepared = topics.prepare("", PIPELINE, PIPELINE.plan(), begun=False)

    assert broker.there == {"orders": 6, "enriched": 2, "users": 4, "letters": 4}
    assert prepared.created == ("users", "letters")
    assert prepared.empty == ("users",)
    assert (prepared.named, prepared.whole) == ({"orders": 6}, {"users": 4})


def test_a_declared_topic_is_created_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({}, monkeypatch)
    pipeline = Pipeline(name="shop", topology=topology, topics=(Topic("orders", partitions=1),))

    prepared = topics.prepare("", pipeline, pipeline.plan(), begun=False)

    assert broker.there == {"orders": 1, "users": 4, "enriched": 4}
    assert prepared.empty == ("users",)


def test_a_topic_that_is_gone_is_not_replaced_by_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"users": 4}, monkeypatch)

    with pytest.raises(KafkaTopicError, match="topics that do not exist any more: orders"):
        topics.prepare("", PIPELINE, PIPELINE.plan(), begun=True)

    assert broker.there == {"users": 4}


def test_a_declared_topic_that_is_gone_is_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"users": 4}, monkeypatch)
    pipeline = Pipeline(name="shop", topology=topology, topics=(Topic("orders"),))

    assert topics.prepare("", pipeline, pipeline.plan(), begun=True).created == ("orders", "enriched")
    assert broker.there.keys() == {"users", "orders", "enriched"}
