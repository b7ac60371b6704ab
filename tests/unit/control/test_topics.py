"""Which topics a start creates; Kafka itself is replaced by a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deltaworks import Corrections, DeadLetters, Pipeline, StreamsBuilder, Topic
from deltaworks.control import checkpoint, corrections, jobs, lineage, preflight, topics
from deltaworks.control.model import DeployOptions
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import KafkaTopicError, LineageError
from deltaworks.kafka import admin, durability, permissions
from deltaworks.settings import Settings


class Broker:
    """Topic -> its partitions."""

    def __init__(self, there: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.there = there
        self.transaction_ms = 900_000
        monkeypatch.setattr(admin, "partition_counts", lambda _: dict(self.there))
        monkeypatch.setattr(admin, "create_topics", self.create)
        monkeypatch.setattr(admin, "differences", lambda _, specs: [f"{spec.name} differs" for spec in specs])
        monkeypatch.setattr(admin, "admin", lambda _: None)
        monkeypatch.setattr(admin, "topic_states", lambda _, names: {n: there[n] for n in names if n in there})
        monkeypatch.setattr(admin, "transaction_timeout_ms", lambda _: self.transaction_ms)
        monkeypatch.setattr(permissions, "require", self.require_allowed)
        monkeypatch.setattr(durability, "require", self.require_kept)
        self.needed: list[permissions.Permission] = []
        self.new: list[str] = []
        self.kept: tuple[list[str], list[str]] = [], []

    def require_allowed(
        self, _: str, client: object, needed: list[permissions.Permission], new: list[admin.TopicSpec]
    ) -> None:
        self.needed, self.new = needed, [topic.name for topic in new]

    def require_kept(self, _: str, client: object, existing: list[str], new: list[admin.TopicSpec]) -> None:
        self.kept = existing, [topic.name for topic in new]

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
    assert prepared.missing_names == ["users", "letters"]
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

    assert topics.prepare("", pipeline, pipeline.plan(), begun=True).missing_names == ["orders", "enriched"]
    assert broker.there.keys() == {"users", "orders", "enriched"}


def test_a_check_creates_nothing_and_knows_what_will_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"users": 4}, monkeypatch)
    orders = Topic("orders", partitions=2, replication=3, config={"retention.ms": "60000"})
    pipeline = Pipeline(name="shop", topology=topology, topics=(orders, Topic("users", compacted=True)))

    checked = topics.check("", pipeline, pipeline.plan(), begun=False)

    assert broker.there == {"users": 4}
    assert (checked.named, checked.whole) == ({"orders": 2}, {"users": 4})
    assert checked.missing == (
        admin.TopicSpec(name="orders", partitions=2, replication=3, config={"retention.ms": "60000"}),
        admin.TopicSpec(name="enriched", partitions=4, replication=-1),
    )
    assert checked.different == ("users differs",)


def counted(builder: StreamsBuilder) -> None:
    builder.stream("orders", key=str, value=str).group_by_key().count(store="counts").to_delta("counts")


COUNTED = Pipeline(name="shop", topology=counted, topics=(Topic("orders", partitions=2),))


def test_a_topic_that_grew_is_read_as_the_checkpoint_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker({"orders": 4}, monkeypatch)

    checked = topics.check("", COUNTED, COUNTED.plan(), begun=True, held={"orders": 2})

    assert (checked.named, checked.grown, checked.now) == ({"orders": 2}, {"orders": 4}, {"orders": 4})
    assert topics.grown_line(("orders", 4)).startswith(
        "topic 'orders' has 4 partitions; those that are new are not read"
    )


@pytest.mark.parametrize(("there", "held"), [(4, 4), (3, 2)])
def test_a_topic_is_read_as_it_is_if_that_is_so_in_the_checkpoint_or_nothing_can_follow_it(
    there: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the code declares does not matter then; in the second case, the checkpoint is refused."""
    Broker({"orders": there}, monkeypatch)

    checked = topics.check("", COUNTED, COUNTED.plan(), begun=True, held={"orders": held})

    assert (checked.named, checked.grown) == ({"orders": there}, {})


@pytest.mark.parametrize(("there", "held"), [(4, None), (1, {"orders": 1})])
def test_other_partitions_than_declared_are_refused(
    there: int, held: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broker({"orders": there}, monkeypatch)

    with pytest.raises(KafkaTopicError, match=f"'orders' has {there} partitions, but needs 2"):
        topics.check("", COUNTED, COUNTED.plan(), begun=held is not None, held=held)


def test_a_check_asks_for_what_the_pipeline_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"users": 4, "enriched": 4}, monkeypatch)

    topics.check("", PIPELINE, PIPELINE.plan(), begun=False)

    operations = {each.name: set(each.operations) for each in broker.needed if each.kind == "topic"}
    basic = {"DESCRIBE", "DESCRIBE_CONFIGS"}
    control = "__deltaworks-shop-control"
    assert operations == {
        "users": {"READ", *basic},
        "orders": {"READ", *basic},
        "enriched": {"WRITE", *basic},
        "letters": {"WRITE", *basic},
        control: {"READ", "WRITE", "CREATE", "ALTER", *basic},
    }
    assert {each.name for each in broker.needed if each.kind == "transactional id"} == {"shop-", f"{control}-"}
    assert set(broker.new) == {"orders", "letters", control}
    assert broker.kept == (["enriched"], ["letters", control])
    broker.there[control] = 9
    topics.check("", PIPELINE, PIPELINE.plan(), begun=False)
    assert broker.kept == (["enriched", control], ["letters"])


def test_a_pipeline_with_corrections_needs_their_topic_and_that_of_their_markers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tables(builder: StreamsBuilder) -> None:
        builder.stream("orders", key=str, value=str).to_delta("amounts")

    broker = Broker({"orders": 4}, monkeypatch)
    pipeline = Pipeline(name="shop", topology=tables, corrections=Corrections("changes"))

    assert topics.prepare("", pipeline, pipeline.plan(), begun=False).missing_names == ["changes"]

    markers = "__deltaworks-shop-corrections"
    operations = {each.name: set(each.operations) for each in broker.needed if each.kind == "topic"}
    assert operations["changes"] == {"WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert operations[markers] == {"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert set(broker.new) == {"changes", markers, "__deltaworks-shop-control"}
    assert set(broker.kept[1]) == set(broker.new)


def test_a_publication_creates_what_its_corrections_need(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({}, monkeypatch)
    monkeypatch.setattr(admin, "partition_counts_of", lambda _: dict(broker.there))
    pipeline = Pipeline(name="shop", topology=topology, corrections=Corrections("changes"))

    corrections.prepare("", replace(pipeline, corrections=None))
    assert broker.there == {}
    corrections.prepare("", pipeline)
    assert broker.there == {"changes": 4, "__deltaworks-shop-corrections": 1}

    broker.there["changes"] = 9
    corrections.prepare("", pipeline)
    assert broker.there["changes"] == 9, "a topic that is there, and not declared, may have any partitions"


@pytest.mark.parametrize(
    ("replicas", "least", "problem"),
    [
        (1, 1, None),
        (3, 2, None),
        (3, 3, None),
        (3, 1, "1 of 3 replicas: a written record may be lost"),
        (2, 1, "1 of 2 replicas: a written record may be lost"),
        (2, 3, "=3, but 2 replicas: nothing could be written"),
        (1, 2, "=2, but 1 replicas: nothing could be written"),
    ],
)
def test_what_is_wrong_with_the_replicas_of_a_topic(replicas: int, least: int, problem: str | None) -> None:
    found = durability.TopicDurability(name="t", replicas=replicas, min_insync=least).problem

    assert found is problem is None or (problem is not None and problem in str(found))


def test_a_topic_with_other_partitions_is_refused_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"users": 3}, monkeypatch)
    pipeline = Pipeline(name="shop", topology=topology, topics=(Topic("users"),))

    with pytest.raises(KafkaTopicError, match="Topic 'users' has 3 partitions, but needs 4"):
        topics.prepare("", pipeline, pipeline.plan(), begun=False)

    assert broker.there == {"users": 3}


JOB = """
from deltaworks import Pipeline, StreamsBuilder

def topology(builder: StreamsBuilder) -> None:
    builder.stream("orders", key=str, value=str).to("copies")

pipeline = Pipeline(name="shop", topology=topology)
"""


def test_a_preflight_that_fails_creates_no_topic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "shop.py").write_text(JOB)
    settings = Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)
    broker = Broker({}, monkeypatch)
    monkeypatch.setattr(preflight, "_require_kafka", lambda *_: None)
    monkeypatch.setattr(lineage, "require_ours", _of_another)
    said: list[str] = []

    with pytest.raises(LineageError):
        preflight.preflight(settings, "shop", DeployOptions(), said.append, launchers=anywhere)
    assert (broker.there, said) == ({}, [])

    monkeypatch.setattr(lineage, "require_ours", lambda *_: None)
    preflight.preflight(settings, "shop", DeployOptions(), said.append, launchers=anywhere)
    assert broker.there == {"orders": 4, "copies": 4}
    assert said[0] == "created orders, copies"
    assert not any("transaction.max.timeout.ms" in line for line in said)

    broker.transaction_ms = 20_000
    preflight.preflight(settings, "shop", DeployOptions(), said.append, launchers=anywhere)
    assert any("end a transaction after 20 s" in line for line in said)


def test_a_preflight_says_what_a_rescale_would_change_and_what_the_start_will(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "shop.py").write_text(JOB)
    settings = replace(Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path), cores=3)
    Broker({"orders": 8, "copies": 4}, monkeypatch)
    monkeypatch.setattr(preflight, "_require_kafka", lambda *_: None)
    monkeypatch.setattr(lineage, "require_ours", lambda *_: None)
    plan = jobs.load(settings, "shop").plan()
    kept = PipelinePaths.of(settings, "shop").current.plan
    checkpoint.open_plan(kept, "shop", plan.fingerprint(), {"orders": 4}, (4,), 2)
    said: list[str] = []

    preflight.preflight(settings, "shop", DeployOptions(), said.append, launchers=anywhere)

    assert "topic 'orders' has 8 partitions; those that are new are not read before a deltaworks rescale" in said
    assert said[-1] == "spreads its state over 3 cores, 2 until now, unless a batch is open"
    said.clear()
    kept.unlink()
    checkpoint.open_plan(kept, "shop", plan.fingerprint(), {"orders": 4}, (4,), 3)
    preflight.preflight(settings, "shop", DeployOptions(), said.append, launchers=anywhere)
    assert not any("spreads" in line for line in said)


def anywhere(*_: object) -> Any:
    return SimpleNamespace(check=lambda: None)


def _of_another(*_: object) -> None:
    raise LineageError("it belongs to another stream")
