"""What every DAG of this project must be, and what parsing them may cost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaworks.control import jobs
from deltaworks.settings import Settings
from tests.unit.airflow.parsing import ROOT, ParsedFile, found_in
from tests.unit.airflow.since import BY_HAND

SLOW = (
    *("pyspark", "py4j", "delta", "deltalake", "pyarrow", "pandas", "duckdb", "confluent_kafka", "psycopg"),
    "great_expectations",
)

PIPELINES = jobs.names(Settings.from_environment({"DELTAWORKS_PROJECT": str(ROOT)}))
KINDS = ("stream", "replay", "quality")
DAGS = sorted(
    [
        *(f"{name}__{kind}" for name in PIPELINES for kind in KINDS),
        *("daily_sales__batch", "orders_report", "streams__days", "streams__dead_letters"),
        *("streams__maintenance", "streams__reconcile"),
    ]
)


@pytest.fixture(scope="module")
def files() -> list[ParsedFile]:
    return found_in(ROOT)


@pytest.fixture(scope="module")
def dags(files: list[ParsedFile]) -> dict[str, dict[str, Any]]:
    return {dag_id: facts for file in files for dag_id, facts in file.dags.items()}


def test_no_dag_file_has_an_error(files: list[ParsedFile]) -> None:
    assert [file.errors for file in files if file.errors] == []


def test_every_pipeline_has_its_dags_and_there_is_one_reconciler(files: list[ParsedFile]) -> None:
    assert sorted(dag_id for file in files for dag_id in file.dags) == DAGS


def test_every_file_is_parsed_quickly(files: list[ParsedFile]) -> None:
    """A file takes six loops, eight where others use the caches; an import of pandas would add nine."""
    assert {file.file: file.paces for file in files if file.paces >= 12} == {}


def test_parsing_loads_no_engine_and_no_client(files: list[ParsedFile]) -> None:
    assert [(file.file, name) for file in files for name in SLOW if name in file.modules] == []


def test_every_dag_is_documented_and_tagged(dags: dict[str, dict[str, Any]]) -> None:
    poor = [dag_id for dag_id, dag in dags.items() if not (dag["doc_md"] and dag["description"] and dag["tags"])]

    assert poor == []


def test_every_dag_of_ours_says_where_the_runbooks_are(dags: dict[str, dict[str, Any]]) -> None:
    without = [name for name, dag in dags.items() if "docs/runbooks.md#red-tasks" not in str(dag["doc_md"])]

    assert without == ["orders_report"]


def test_every_task_of_ours_is_in_the_runbooks(dags: dict[str, dict[str, Any]]) -> None:
    """A row of the table names the DAG, or the row above it does."""
    rows = (ROOT / "docs" / "runbooks.md").read_text().partition("\n## Red tasks\n")[2].splitlines()
    told: dict[str, set[str]] = {}
    ids: list[str] = []
    for cells in (row.split("|") for row in rows if row.startswith("| ") and "`" in row):
        ids = re.findall(r"`(?:orders__|NAME__)?(\w+)`", cells[1]) or ids
        for each in ids:
            told.setdefault(each, set()).update(re.findall(r"`(\w+)`", cells[2]))
    missing = [
        (dag_id, name)
        for dag_id, dag in dags.items()
        for name in dag["tasks"]
        if dag_id != "orders_report"
        and name not in told.get(dag_id if dag_id.startswith("streams__") else dag_id.rpartition("__")[2], set())
    ]

    assert missing == []


def test_every_task_has_an_owner_and_is_tried_again(dags: dict[str, dict[str, Any]]) -> None:
    tasks = {(dag_id, name): task for dag_id, dag in dags.items() for name, task in dag["tasks"].items()}

    assert {dag_id for (dag_id, _), task in tasks.items() if task["owner"] != "deltaworks"} == {"orders_report"}
    assert [name for name, task in tasks.items() if task["retries"] < 2] == []


def test_what_starts_and_stops_streams_comes_before_checks_and_replays(dags: dict[str, dict[str, Any]]) -> None:
    weights = {
        (dag_id, task_id): task["priority_weight"]
        for dag_id, dag in dags.items()
        for task_id, task in dag["tasks"].items()
    }
    streams = {at: weight for at, weight in weights.items() if at[0] == "streams__reconcile" or "__stream" in at[0]}
    assert min(streams.values()) > max(weight for at, weight in weights.items() if at not in streams)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_stream_runs_when_somebody_or_the_reconciler_says_so_and_has_no_backfill(
    dags: dict[str, dict[str, Any]], name: str
) -> None:
    dag = dags[f"{name}__stream"]

    assert (dag["scheduled"], dag["catchup"]) == (False, False)
    assert dag["run_types"] == BY_HAND
    assert dag["max_active_runs"] > 1


def test_the_reconciler_is_alone_and_does_not_catch_up(dags: dict[str, dict[str, Any]]) -> None:
    dag = dags["streams__reconcile"]

    assert (dag["scheduled"], dag["catchup"], dag["max_active_runs"]) == (True, False, 1)
    assert dag["run_types"] == ["manual", "scheduled"]


def test_closed_days_are_told_by_one_run_at_a_time(dags: dict[str, dict[str, Any]]) -> None:
    dag = dags["streams__days"]

    assert (dag["scheduled"], dag["catchup"], dag["max_active_runs"]) == (True, False, 1)
    assert (dag["run_types"], list(dag["tasks"])) == (["manual", "scheduled"], ["tell"])


def test_maintenance_is_alone_and_does_not_catch_up(dags: dict[str, dict[str, Any]]) -> None:
    dag = dags["streams__maintenance"]

    assert (dag["scheduled"], dag["catchup"], dag["max_active_runs"]) == (True, False, 1)
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {"clean": [], "catalog": []}


def test_dead_letters_are_sent_by_hand_and_after_an_approval(dags: dict[str, dict[str, Any]]) -> None:
    dag = dags["streams__dead_letters"]

    assert (dag["scheduled"], dag["run_types"]) == (False, BY_HAND)
    found = {name: task["downstream"] for name, task in dag["tasks"].items()}
    assert found == {"look": ["approve"], "approve": ["send"], "send": []}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_stream_is_deployed_then_supervised_or_it_is_stopped(dags: dict[str, dict[str, Any]], name: str) -> None:
    tasks = dags[f"{name}__stream"]["tasks"]

    assert {name: task["downstream"] for name, task in tasks.items()} == {
        "action": ["preflight", "stop"],
        "preflight": ["deploy"],
        "deploy": ["supervise"],
        "supervise": [],
        "stop": [],
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_a_replay_goes_from_plan_to_clean_and_is_approved_or_discarded_after_the_gate(
    dags: dict[str, dict[str, Any]], name: str
) -> None:
    tasks = dags[f"{name}__replay"]["tasks"]

    assert {name: task["downstream"] for name, task in tasks.items()} == {
        "action": ["plan", "remove", "roll_back"],
        "roll_back": [],
        "remove": [],
        "plan": ["run"],
        "run": ["compare"],
        "compare": ["gate"],
        "gate": ["approve", "publish"],
        "approve": ["discard", "publish"],
        "publish": ["verify"],
        "verify": ["cascade", "quality"],
        "cascade": ["clean"],
        "clean": [],
        "quality": [],
        "discard": [],
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_a_replay_has_a_form_and_runs_when_somebody_says_so(dags: dict[str, dict[str, Any]], name: str) -> None:
    dag = dags[f"{name}__replay"]

    fields = ["action", "run", "from", "to", "tables", "order", "hand_over", "cascade", "approval", "reason"]
    assert dag["params"] == fields
    assert (dag["scheduled"], dag["catchup"]) == (True, False), "only a periodic DAG can have a backfill"
    assert {*BY_HAND, "backfill"} <= set(dag["run_types"])


def test_a_form_demands_only_what_every_run_needs(dags: dict[str, dict[str, Any]]) -> None:
    demanded = {dag_id: dag["demanded"] for dag_id, dag in dags.items() if dag["demanded"]}

    replays = {f"{name}__replay": ["reason"] for name in PIPELINES}
    assert demanded == {**replays, "streams__dead_letters": ["pipeline"]}


def test_the_page_of_a_replay_says_how_to_make_a_backfill_and_how_to_roll_back(dags: dict[str, dict[str, Any]]) -> None:
    doc = dags["orders__replay"]["doc_md"]

    for word in ("`order_counts`", "deltaworks discard RUN", "deltaworks rollback RUN", "Required Actions"):
        assert word in doc
    assert "airflow backfill create --dag-id orders__replay" in doc
    assert """--dag-run-conf '{"reason": "prices were wrong", "approval": false}'""" in doc


@pytest.mark.parametrize("name", PIPELINES)
def test_tables_are_checked_by_schedule_and_on_demand_one_check_at_a_time(
    dags: dict[str, dict[str, Any]], name: str
) -> None:
    dag = dags[f"{name}__quality"]

    assert (dag["scheduled"], dag["catchup"], dag["max_active_runs"]) == (True, False, 1)
    assert dag["run_types"] == [*BY_HAND, "scheduled"]
    assert list(dag["tasks"]) == ["check"]
    for word in (f"jobs/quality/{name}.py", "every hour", "`quality_results`", f"deltaworks quality {name}"):
        assert word in dag["doc_md"]


def test_a_pipeline_without_a_suite_has_no_dag_that_checks_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs", ignore=shutil.ignore_patterns("__pycache__", "orders.py"))
    shutil.copy(ROOT / "jobs" / "orders.py", tmp_path / "jobs")

    files = found_in(tmp_path)

    found = {dag_id for file in files for dag_id in file.dags}
    assert "orders__stream" in found and "clicks__quality" in found
    assert "orders__quality" not in found


def test_the_page_of_a_stream_says_what_it_reads_and_writes_and_how_to_stop_it(dags: dict[str, dict[str, Any]]) -> None:
    doc = dags["orders__stream"]["doc_md"]

    assert doc.startswith("Orders of a shop")
    for word in (
        "`raw-orders`",
        "`enriched_orders`",
        "`orders-dead-letters`",
        "deltaworks stop orders",
        "Sub-topology",
    ):
        assert word in doc


def test_the_page_of_a_stream_names_the_topics_of_its_global_tables(dags: dict[str, dict[str, Any]]) -> None:
    assert "| Reads topics | `ads-clicks`, `ads-impressions`, `ads-campaigns` |" in dags["ads__stream"]["doc_md"]


def test_a_pipeline_with_a_syntax_error_is_one_import_error_that_names_it_and_the_others_go_on(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "jobs" / "broken.py").write_text("from deltaworks import Pipeline\n\npipeline = Pipeline(name=\n")

    files = found_in(tmp_path)

    errors = [(file.bundle, name, text) for file in files for name, text in file.errors.items()]
    assert [(bundle, name) for bundle, name, _ in errors] == [("pipelines", "jobs/broken.py")]
    assert f'File "{tmp_path}/jobs/broken.py", line 3' in errors[0][2]
    assert "'broken' has no DAG until this is fixed: jobs/broken.py, line 3" in errors[0][2]
    assert sorted(dag_id for file in files for dag_id in file.dags) == DAGS


def test_an_error_deep_in_a_library_names_the_line_of_the_author(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "deep.py").write_text(
        "import json\n\npipeline = 1\nlimits = json.loads(\n    '{')\nassert limits\n"
    )

    [file] = found_in(tmp_path)

    assert "jobs/deep.py, line 4" in file.errors["jobs/deep.py"]
