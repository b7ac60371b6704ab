"""What a team may say about the DAGs that it makes, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseNotifier

from deltaworks.airflow.access import Access
from deltaworks.airflow.dags import (
    DeltaworksDag,
    days_dag,
    dead_letters_dag,
    maintenance_dag,
    pipeline_dags,
    pipelines_dags,
    quality_dag,
    reconcile_dag,
    replay_dag,
    table_asset,
)
from deltaworks.errors import ConfigurationError
from tests.unit.airflow.since import BY_HAND

ROOT = Path(__file__).parents[3]
NAME = "wordcount"
KINDS = ("stream", "replay", "quality")


class Notifier(BaseNotifier):
    """Tells nobody."""

    def notify(self, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTAWORKS_PROJECT", raising=False)


def made(**options: Any) -> dict[str, DAG]:
    """All DAGs of a pipeline, and the reconciler with those options that it has."""
    dags = pipeline_dags(NAME, project=ROOT, **options)
    return {**dags, "reconcile": reconcile_dag(project=ROOT, **options)}


def tasks(dags: dict[str, DAG]) -> list[Any]:
    return [task for dag in dags.values() for task in dag.tasks]


def test_a_pipeline_has_a_stream_a_replay_and_a_check_where_they_apply(tmp_path: Path) -> None:
    assert list(pipeline_dags(NAME, project=ROOT)) == [f"{NAME}__{kind}" for kind in KINDS]

    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    dags = pipelines_dags(project=tmp_path, names=[NAME, "orders"])
    assert sorted(dags) == sorted(f"{name}__{kind}" for name in (NAME, "orders") for kind in KINDS)


def test_one_dag_of_a_pipeline_can_be_made(tmp_path: Path) -> None:
    assert [DeltaworksDag(NAME, kind, project=ROOT).dag_id for kind in ("stream", "replay", "quality")] == [
        f"{NAME}__{kind}" for kind in KINDS
    ]
    assert DeltaworksDag(NAME, project=ROOT, owner="shop").dag_id == f"{NAME}__stream"

    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / f"{NAME}.py").symlink_to(ROOT / "jobs" / f"{NAME}.py")
    with pytest.raises(ConfigurationError, match=f"has no quality DAG: there is no jobs/quality/{NAME}.py"):
        DeltaworksDag(NAME, "quality", project=tmp_path)


def test_all_pipelines_of_the_project_have_dags() -> None:
    dags = pipelines_dags(project=ROOT)

    streams = {dag_id.removesuffix("__stream") for dag_id in dags if dag_id.endswith("__stream")}
    assert {NAME, "orders", "clicks"} <= streams
    assert {dag_id: dag.dag_id for dag_id, dag in dags.items()} == {dag_id: dag_id for dag_id in dags}
    assert "streams__reconcile" not in dags


def test_a_task_that_is_about_to_run_gets_the_dags_of_its_pipeline_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", f"{NAME}__replay")

    assert list(pipelines_dags(project=ROOT)) == [f"{NAME}__{kind}" for kind in KINDS]


def test_a_project_without_pipelines_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no pipeline in") as raised:
        pipelines_dags(project=tmp_path)
    assert "project=" in str(raised.value.hint)


@pytest.mark.parametrize("make", [pipelines_dags, reconcile_dag, days_dag, dead_letters_dag, maintenance_dag])
def test_an_option_that_does_not_exist_is_an_error(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="no option 'onwer'") as raised:
        make(project=ROOT, onwer="shop")
    assert raised.value.hint == "did you mean 'owner'?"


def test_every_task_has_what_the_team_says() -> None:
    dags = made(
        owner="shop", retries=5, retry_delay=timedelta(minutes=1), pool="streams", default_args={"queue": "near"}
    )

    assert {(task.owner, task.retries, task.pool, task.queue) for task in tasks(dags)} == {
        ("shop", 5, "streams", "near")
    }
    assert {task.retry_delay for task in tasks(dags)} == {timedelta(minutes=1)}
    assert min(task.priority_weight for task in tasks({"stream": dags[f"{NAME}__stream"]})) == 100


def test_every_dag_has_what_the_team_says() -> None:
    notifier = Notifier()
    dags = made(tags=["shop"], on_failure_callback=[notifier, print], on_success_callback=print)

    assert all("shop" in dag.tags for dag in dags.values())
    assert NAME in dags[f"{NAME}__stream"].tags
    assert {tuple(dag.on_failure_callback) for dag in dags.values()} == {(notifier, print)}  # type: ignore[arg-type]
    assert {dag.on_success_callback for dag in dags.values()} == {print}


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module is deprecated")
def test_every_dag_is_for_the_roles_that_the_team_names() -> None:
    access = {"shop": {"DAGs": {"can_read", "can_edit"}}}

    assert [dag.access_control for dag in made(access_control=access).values()] == [access] * 4


def test_what_fills_a_machine_may_have_a_pool_of_its_own() -> None:
    dag = replay_dag(NAME, project=ROOT, pool="streams", heavy_pool="heavy")

    assert dag is not None
    assert {task.task_id for task in dag.tasks if task.pool == "heavy"} == {"run", "gate"}
    assert {task.pool for task in dag.tasks} == {"heavy", "streams"}


def outlets(**options: Any) -> dict[str, list[str]]:
    return {task.task_id: [asset.uri for asset in task.outlets] for task in tasks(made(**options)) if task.outlets}


def test_the_task_that_changes_tables_updates_their_assets() -> None:
    tables = ("wordcount_counts", "wordcount_counts_changelog", "wordcount_dead_letters", "wordcount_hours")
    found = outlets()

    assert list(found) == ["publish", "check"]
    assert found["check"] == ["x-deltaworks://checked/wordcount"]
    assert sorted(found["publish"]) == [f"x-deltaworks://tables/{table}" for table in tables]
    assert table_asset("wordcount_hours").uri in found["publish"]


def test_assets_may_have_the_uri_of_the_team_or_none() -> None:
    assert "s3://lake/wordcount_hours" in outlets(asset_uri="s3://lake/{table}")["publish"]
    assert outlets(asset_uri=None) == {}
    with pytest.raises(ConfigurationError, match="does not depend on the table"):
        outlets(asset_uri="s3://lake")


@pytest.mark.parametrize(
    ("schedule", "types", "when"),
    [
        (None, ["asset_triggered", *BY_HAND, "scheduled"], "| when you trigger this DAG |"),
        ("0 6 * * *", ["asset_triggered", *BY_HAND, "scheduled"], "by the schedule of this DAG"),
        ([table_asset("wordcount_hours")], ["asset_triggered", *BY_HAND, "scheduled"], "by the"),
    ],
)
def test_checks_have_the_schedule_of_the_team(schedule: Any, types: list[str], when: str) -> None:
    dag = quality_dag(NAME, project=ROOT, quality_schedule=schedule)

    assert dag is not None
    assert dag.schedule == schedule
    assert sorted(kind.value for kind in dag.allowed_run_types) == types  # type: ignore[union-attr]
    assert when in str(dag.doc_md)


def test_every_task_knows_where_its_settings_are_from() -> None:
    access = Access(conn_id="shop", project=str(ROOT))
    without = {"action", "quality", "act"}  # they need no settings

    found = {
        task.task_id: task.op_kwargs["access"] if "access" in getattr(task, "op_kwargs", {}) else task.access
        for task in tasks(made(conn_id="shop"))
        if task.task_id not in without
    }
    assert set(found.values()) == {access}
    assert {"preflight", "deploy", "stop", "supervise", "plan", "run", "approve", "publish", "check", "look"} <= set(
        found
    )


def test_a_dag_file_reads_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Access, "settings", lambda access: pytest.fail("a connection was read"))

    assert len(made(conn_id="nowhere")) == 4
