"""What is found before a deployment, with a real broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import checkpoint, cluster, jobs
from deltaworks.control.actions import preflight
from deltaworks.control.clusters.standalone import Standalone
from deltaworks.control.model import DeployOptions
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    KafkaTopicError,
    StackError,
    TopologyError,
)
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.stack.ports import free_ports
from tests.support.live_stack import LiveStack

PIPELINE = """
from deltaworks import Pipeline, String, Topic

def topology(builder):
    words = builder.stream("{topic}", key=String(), value=String())
    words.group_by_key().count(store="{store}").to_delta("counts")
    words.to("{output}")

pipeline = Pipeline(name="{name}", topology=topology, topics=({declared}))
"""


def project(kafka: LiveStack, folder: Path, name: str, **fields: str) -> Settings:
    known = {"topic": f"{name}-in", "output": f"{name}-out", "store": "counts", "name": name}
    declared = f'Topic("{name}-in", 2), Topic("{name}-out", 1)'
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "jobs" / f"{name}.py").write_text(PIPELINE.format(**{**known, "declared": declared, **fields}))
    return replace(kafka.settings, project=folder, home=folder / "home")


def check(settings: Settings, name: str, **options: float) -> list[str]:
    said: list[str] = []
    preflight(settings, name, DeployOptions(**options), said.append)  # type: ignore[arg-type]
    return said


def test_missing_topics_are_created_and_a_fitting_checkpoint_is_fine(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_a")

    assert check(settings, "preflight_a") == [
        "created preflight_a-in, preflight_a-out",
        "2 tasks; starts with a new checkpoint",
    ]
    assert admin.partition_counts(kafka.bootstrap)["preflight_a-in"] == 2
    plan = jobs.load(settings, "preflight_a").plan()
    kept = PipelinePaths.of(settings, "preflight_a").current.plan
    checkpoint.open_plan(kept, "preflight_a", plan.fingerprint(), {"preflight_a-in": 2}, (2,), 2)

    assert check(settings, "preflight_a") == ["all topics exist", "2 tasks; goes on with its checkpoint"]


def test_a_checkpoint_of_another_plan_is_found_and_left_as_it_is(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_b", store="renamed")
    plan = jobs.load(settings, "preflight_b").plan()
    kept = PipelinePaths.of(settings, "preflight_b").current.plan
    before = {**plan.fingerprint(), "stores": {"counts": next(iter(plan.fingerprint()["stores"].values()))}}
    checkpoint.open_plan(kept, "preflight_b", before, {"preflight_b-in": 2}, (2,), 2)
    bytes_before = kept.read_bytes()

    with pytest.raises(IncompatibleCheckpointError, match=r"store 'counts' .* is gone"):
        check(settings, "preflight_b")

    assert kept.read_bytes() == bytes_before


def test_a_missing_topic_that_is_only_read_is_created_and_named(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_c", declared="")

    assert check(settings, "preflight_c") == [
        "created preflight_c-in, preflight_c-out",
        "check the spelling of preflight_c-in if it should have existed: the pipeline reads it",
        "4 tasks; starts with a new checkpoint",
    ]


def test_a_topic_that_is_only_read_and_is_gone_is_not_created_again(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_g", declared="")
    plan = jobs.load(settings, "preflight_g").plan()
    kept = PipelinePaths.of(settings, "preflight_g").current.plan
    checkpoint.open_plan(kept, "preflight_g", plan.fingerprint(), {"preflight_g-in": 4}, (4,), 2)

    with pytest.raises(KafkaTopicError, match="topics that do not exist any more: preflight_g-in"):
        check(settings, "preflight_g")

    assert "preflight_g-in" not in admin.partition_counts(kafka.bootstrap)


def test_a_topology_that_cannot_be_built_is_found(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_d", declared='Topic("x"), Topic("x")')

    with pytest.raises(TopologyError, match="declared twice"):
        check(settings, "preflight_d")


def test_a_broker_that_is_away_is_said_before_anything_else(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_e")
    (port,) = free_ports(1)

    with pytest.raises(StackError, match="Kafka does not answer") as raised:
        check(replace(settings, bootstrap=f"127.0.0.1:{port}"), "preflight_e")

    assert raised.value.hint == "deltaworks up"


def test_a_cluster_that_is_away_is_said_before_anything_changes(
    kafka: LiveStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(kafka, tmp_path, "preflight_g")
    master = f"spark://127.0.0.1:{free_ports(1)[0]}"
    found = Standalone(master=master, python="python3", secret=None, cores=1)
    monkeypatch.setattr(cluster, "of", lambda settings, name: found)

    with pytest.raises(StackError, match=f"The Spark cluster {master} does not answer"):
        check(settings, "preflight_g")
    assert "preflight_g-in" not in admin.partition_counts(kafka.bootstrap)


def test_an_option_that_cannot_be_used_is_refused(kafka: LiveStack, tmp_path: Path) -> None:
    settings = project(kafka, tmp_path, "preflight_f")

    with pytest.raises(ConfigurationError, match="interval is negative"):
        check(settings, "preflight_f", trigger_interval_s=-1.0)
