"""The DAG of a connector: its form, what parsing it costs and says, and what its tasks ask of Kafka Connect."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from deltaworks.airflow import connector_tasks as tasks
from deltaworks.airflow.access import Access
from deltaworks.airflow.approvals import Approvals
from deltaworks.airflow.connector import connector_dag
from deltaworks.airflow.connector_form import ACTIONS, form
from deltaworks.config import Values
from deltaworks.connect import states
from deltaworks.control.connector_book import ConnectorBook
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FakeConnect, fake_connect
from tests.unit.airflow import connectors
from tests.unit.airflow.connectors import CLASSES, LINES
from tests.unit.airflow.parsing import ROOT, ParsedFile, found_in
from tests.unit.airflow.since import BY_HAND
from tests.unit.airflow.test_dags import SLOW

RUN = SimpleNamespace(run_id="manual__1", run_type="manual", triggering_user_name="ada")
ASKS = Approvals.of("other person", ())
PASSWORD = "c0nnect-p@ss"
TRACE = "java.io.IOException: no such file, password=s3cret\n\tat x"


def params(action: str, **given: Any) -> dict[str, Any]:
    return {"action": action, "confirm": None, "allow_undefined": False, **given}


# ---- The form


def test_the_defaults_deploy_and_delete_nothing() -> None:
    defaults = {name: field.resolve() for name, field in form("lines").items()}

    assert defaults == {"action": "deploy", "confirm": None, "allow_undefined": False}


@pytest.mark.parametrize(("name", "value"), [("action", "destroy"), ("confirm", 7), ("allow_undefined", "yes")])
def test_what_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        form("lines")[name].resolve(value)


def test_every_field_has_a_title_and_a_description() -> None:
    assert [name for name, each in form("x").items() if not (each.schema.get("title") and each.description)] == []


def test_the_form_decides_the_way() -> None:
    ways = {chosen: tasks.action("lines", params(chosen, confirm="lines")) for chosen in ACTIONS}
    asked = {chosen: tasks.action("lines", params(chosen, confirm="lines"), ASKS) for chosen in ACTIONS}

    assert ways == {chosen: "plan" if chosen == "deploy" else "operate" for chosen in ACTIONS}
    assert {chosen for chosen, way in asked.items() if way == "approve"} == {"reset offsets", "delete"}


@pytest.mark.parametrize("chosen", ["reset offsets", "delete"])
@pytest.mark.parametrize("confirm", [None, "", "yes", "other"])
def test_what_cannot_be_taken_back_needs_the_name_of_the_connector(chosen: str, confirm: str | None) -> None:
    with pytest.raises(AirflowFailException, match=f"to {chosen}, write the name of the connector, lines, into"):
        tasks.action("lines", params(chosen, confirm=confirm))


# ---- Parsing


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ParsedFile]:
    project = tmp_path_factory.mktemp("project")
    folder = connectors.make(project)
    (folder / "broken.py").write_text(
        "from deltaworks.connect import FileSink\n\nconnector = FileSink(name='broken')\n"
    )
    (folder / "secret.json").write_text(json.dumps({**LINES, "name": "secret", "db.password": "s3cret"}))
    (project / "deltaworks.toml").write_text('[connect]\nurl = "http://127.0.0.1:9"\n')
    return {file.file: file for file in found_in(project)}


def test_each_connector_has_a_dag_file_and_a_dag_and_parsing_asks_no_worker(files: dict[str, ParsedFile]) -> None:
    found = {name: sorted(file.dags) for name, file in files.items() if not file.errors}

    assert found == {
        "jobs/connectors/lines.py": ["lines__connector"],
        "jobs/connectors/orders_cdc.py": ["orders_cdc__connector"],
    }
    for file in files.values():
        assert not set(SLOW) & set(file.modules), file.file
        assert file.paces < 12


def test_a_broken_connector_is_one_import_error_that_names_its_file_and_no_secret(
    files: dict[str, ParsedFile],
) -> None:
    errors = {name: text for file in files.values() for name, text in file.errors.items()}

    assert errors.keys() == {"jobs/connectors/broken.py", "jobs/connectors/secret.py"}
    assert "jobs/connectors/broken.py" in errors["jobs/connectors/broken.py"]
    assert "missing 2 required keyword-only arguments" in errors["jobs/connectors/broken.py"]
    assert "'broken' has no DAG until this is fixed" in errors["jobs/connectors/broken.py"]
    assert "jobs/connectors/secret.json" in errors["jobs/connectors/secret.py"]
    assert "s3cret" not in str(errors)


def test_its_runs_come_one_after_the_other_when_somebody_says_so(files: dict[str, ParsedFile]) -> None:
    dag = files["jobs/connectors/lines.py"].dags["lines__connector"]

    assert (dag["scheduled"], dag["catchup"], dag["max_active_runs"]) == (False, False, 1)
    assert (dag["run_types"], dag["demanded"]) == (BY_HAND, [])
    assert dag["tags"] == ["connector", "lines"]
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {
        "action": ["approve", "operate", "plan"],
        "plan": ["apply"],
        "apply": [],
        "approve": ["operate"],
        "operate": [],
    }
    assert {task["owner"] for task in dag["tasks"].values()} == {"deltaworks"}
    assert min(task["retries"] for task in dag["tasks"].values()) >= 2


def test_its_tasks_are_in_the_runbooks(files: dict[str, ParsedFile]) -> None:
    rows = (ROOT / "docs" / "runbooks.md").read_text().partition("\n## Red tasks\n")[2]
    begin = rows.index("`NAME__connector`")
    told = rows[begin : rows.index("| `streams__reconcile`")]

    assert [
        name for name in files["jobs/connectors/lines.py"].dags["lines__connector"]["tasks"] if f"`{name}`" not in told
    ] == []


def test_its_page_says_what_it_is_and_what_follows_from_a_drift(files: dict[str, ParsedFile]) -> None:
    lines = files["jobs/connectors/lines.py"].dags["lines__connector"]["doc_md"]
    cdc = files["jobs/connectors/orders_cdc.py"].dags["orders_cdc__connector"]["doc_md"]

    for word in ("`jobs/connectors/lines.json`", CLASSES["lines"], "it is told", "runbooks.md#red-tasks"):
        assert word in lines
    for word in ("`jobs/connectors/orders_cdc.py`", CLASSES["orders_cdc"], "applies the file"):
        assert word in cdc


# ---- The tasks


class World:
    """A project whose Kafka Connect is a fake one that asks for a password."""

    def __init__(self, fake: FakeConnect, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.book = fake, BookInMemory()
        self.folder = connectors.make(project)
        self.access = Access(project=str(project))
        fake.login = ("deltaworks", PASSWORD)
        table = {"url": fake.url, "username": "deltaworks", "password": PASSWORD}
        monkeypatch.setattr(Values, "table", lambda self, kind, pipeline="": table if kind == "connect" else {})
        monkeypatch.setattr(ConnectorBook, "of", lambda settings: self.book)
        monkeypatch.setattr(states, "_SETTLE_S", 0.0)
        monkeypatch.setattr(states, "_ASK_S", 0.02)

    def plan(self, **given: Any) -> dict[str, Any]:
        return tasks.plan("lines", params("deploy", **given), access=self.access)

    def apply(self) -> str:
        return tasks.apply("lines", params("deploy"), dag_run=RUN, access=self.access, wait_s=0.1)

    def operate(self, action: str, *, approvals: Approvals | None = None, approved_by: str | None = None) -> None:
        ti = SimpleNamespace(xcom_pull=lambda **_: approved_by)
        tasks.operate(
            "lines",
            params(action, confirm="lines"),
            ti=ti,
            dag_run=RUN,
            access=self.access,
            approvals=approvals or Approvals(),
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    caplog.set_level(logging.INFO)
    with fake_connect() as fake:
        yield World(fake, tmp_path, monkeypatch)


def test_a_plan_says_what_would_change_masks_secrets_and_changes_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fake.add("lines", {**LINES, "topic": "old", "old.password": "s3cret"})

    planned = world.plan()

    assert (planned["url"], planned["change"]) == (world.fake.url, "changed")
    assert planned["settings"] == [
        {"setting": "old.password", "before": "***", "after": None},
        {"setting": "topic", "before": "old", "after": "lines"},
    ]
    assert world.fake.changes == []
    assert "topic: old -> lines" in caplog.text
    assert json.loads(json.dumps(planned)) == planned
    for secret in ("s3cret", PASSWORD):
        assert secret not in caplog.text and secret not in str(planned)


def test_a_connector_that_does_not_fit_is_not_tried_again_and_nothing_changes(world: World) -> None:
    (world.folder / "lines.json").write_text(json.dumps({**LINES, "batch.sice": "7"}))

    for task in (world.plan, world.apply):
        with pytest.raises(AirflowFailException, match=r"did you mean 'batch\.size'"):
            task()
    assert (world.fake.changes, world.book.rows) == ([], {})
    assert world.plan(allow_undefined=True)["change"] == "new"


def test_a_deployment_applies_records_and_waits(world: World) -> None:
    assert world.apply() == "RUNNING"

    assert world.fake.connectors["lines"].config == LINES
    row = world.book.rows["lines"]
    assert (row.desired, row.properties, row.cluster, row.changed_by) == (
        "running",
        LINES,
        world.fake.cluster,
        "airflow ada",
    )


def test_a_deployment_that_fails_says_why_without_secrets_and_is_not_tried_again(world: World) -> None:
    world.apply()
    world.fake.fail("lines", 0, TRACE)

    with pytest.raises(AirflowFailException, match=r"was deployed and has failed: java\.io") as told:
        world.apply()
    assert "s3cret" not in str(told.value)


def test_a_deployment_whose_log_is_gone_says_what_to_do_and_promises_no_restart(world: World) -> None:
    world.apply()
    world.fake.fail("lines", 0, 'ERROR: can no longer access replication slot "shop"\n\tat org.example.Task')

    with pytest.raises(AirflowFailException, match="it needs a new snapshot: docs/how-to/change-data") as told:
        world.apply()
    assert "streams__reconcile restarts it" not in str(told.value)


def test_what_rests_keeps_resting(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.apply()
    world.operate("pause")

    assert world.apply() == "PAUSED"
    assert "'resume' lets it go on" in caplog.text


def test_pause_resume_and_stop(world: World) -> None:
    world.apply()

    for action, state in (("pause", "PAUSED"), ("stop", "STOPPED"), ("resume", "RUNNING")):
        world.operate(action)
        assert world.fake.connectors["lines"].state == state


def test_a_restart_is_of_what_has_failed_and_begins_the_pauses_anew(world: World) -> None:
    world.apply()
    world.fake.fail("lines", 0, TRACE)
    world.book.claim(world.book.records()["lines"], 5)
    world.book.gave_up("lines", "5 restarts have not helped")

    world.operate("restart failed")

    assert world.fake.changes[-1][1] == "/connectors/lines/restart?includeTasks=true&onlyFailed=true"
    assert (world.book.records()["lines"].restarts, world.book.records()["lines"].gave_up) == (0, None)


def test_offsets_are_forgotten_of_a_stopped_connector_only(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.apply()
    world.fake.connectors["lines"].offsets = [{"partition": {"filename": "/lines.txt"}, "offset": {"position": 30}}]

    with pytest.raises(AirflowFailException, match="can be reset while it is stopped"):
        world.operate("reset offsets")
    assert world.fake.connectors["lines"].offsets != []

    world.operate("stop")
    world.operate("reset offsets")
    assert world.fake.connectors["lines"].offsets == []
    assert "'position': 30" in caplog.text


def test_a_deleted_connector_is_recorded_first_and_a_retry_finds_nothing_to_do(world: World) -> None:
    world.apply()
    world.fake.next = [(500, "down")]

    with pytest.raises(ConnectUnavailableError):
        world.operate("delete")
    assert (world.book.rows["lines"].desired, "lines" in world.fake.connectors) == ("deleted", True)

    world.operate("delete")
    assert world.fake.connectors == {}
    with pytest.raises(AirflowSkipException, match="nothing to delete"):
        world.operate("delete")


@pytest.mark.parametrize("action", ["reset offsets", "delete"])
def test_what_has_to_be_approved_is_not_done_without_an_answer(world: World, action: str) -> None:
    world.apply()
    world.operate("stop")
    before = len(world.fake.changes)

    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        world.operate(action, approvals=ASKS)
    assert len(world.fake.changes) == before

    world.operate(action, approvals=ASKS, approved_by="bob")
    assert len(world.fake.changes) == before + 1


def test_a_connector_that_is_not_there_says_so(world: World) -> None:
    with pytest.raises(AirflowFailException, match="has no connector 'lines'"):
        world.operate("pause")


def test_nothing_that_is_said_has_the_password_of_the_workers(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fake.login = ("deltaworks", "another")

    with pytest.raises(AirflowFailException) as told:
        world.plan()
    assert PASSWORD not in f"{told.value}{caplog.text}"


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module is deprecated")
def test_operators_operate_and_approvers_answer(tmp_path: Path) -> None:
    connectors.make(tmp_path)
    dag: Any = connector_dag("lines", project=str(tmp_path), roles="shop", approval="other person", approvers=["bob"])

    rights = dag.access_control
    assert {role for role, given in rights.items() if "can_create" in given["DAG Runs"]} == {"shop operator"}
    assert {role for role, given in rights.items() if "can_edit" in given["DAGs"]} == {"shop operator", "shop approver"}
    assert [user["id"] for user in dag.get_task("approve").assigned_users] == ["bob"]
    with pytest.raises(ConfigurationError, match="There is no connector 'linse'"):
        connector_dag("linse", project=str(tmp_path))
