"""Which role may do what: in the table, in Airflow's own auth managers, and on the page of the documentation."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deltaworks.airflow import roles
from deltaworks.airflow.dags import dead_letters_dag, maintenance_dag, pipeline_dags, replay_dag
from deltaworks.control.roles import SIMPLE, TABLE, Action, May, Role, answers, begins, markdown, users
from deltaworks.errors import ConfigurationError
from tests.unit.airflow import role_requests

ROOT = Path(__file__).parents[3]
NAME = "wordcount"
FAB = pytest.mark.skipif(
    find_spec("airflow.providers.fab") is None, reason="`make check-versions` has Airflow with FAB"
)
TRIGGERED = {
    "backfill": Action.PLAN,
    "look after the home": Action.COMPUTE,
    "ask for a rollback": Action.ROLL_BACK,
    "mark `approve`": Action.REPAIR,
    "clear `approve`": Action.REPAIR,
    "see tasks": Action.SEE,
    "see connections": Action.MANAGE,
    "write `approved_by`": Action.MANAGE,
    "delete a DAG": Action.MANAGE,
}
"""What is tried besides the actions themselves, as what it counts."""


def test_nobody_but_an_administrator_may_both_ask_and_answer() -> None:
    begun = [action for action in Action if action is not Action.SEE]
    both = {role for role in Role if begins(role, *begun) and answers(role, *begun)}

    assert both == {Role.ADMIN}
    assert {action for action in Action if TABLE[action][Role.OPERATOR] is May.ASKS} == {
        Action.PUBLISH,
        Action.ROLL_BACK,
        Action.RESEND,
        Action.FORGET,
    }
    assert {action for action in Action if begins(Role.VIEWER, action)} == {Action.SEE}


def test_the_page_has_the_table() -> None:
    assert markdown() in (ROOT / "docs" / "how-to" / "airflow.md").read_text()


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module is deprecated")
def test_a_dag_is_for_those_who_do_something_with_it() -> None:
    dags = {**pipeline_dags(NAME, roles="shop", approval="always"), "home": maintenance_dag(roles="shop")}
    dags["letters"] = dead_letters_dag(roles="shop", approval="always")
    edits = {
        dag_id: {role for role, given in dag.access_control.items() if "can_edit" in given["DAGs"]}  # type: ignore[union-attr]
        for dag_id, dag in dags.items()
    }

    operator, approver = {"shop operator"}, {"shop approver"}
    assert edits == {
        f"{NAME}__stream": operator,
        f"{NAME}__replay": operator | approver,
        f"{NAME}__quality": operator,
        "home": operator,
        "letters": operator | approver,
    }
    runs = {role for role, given in dags[f"{NAME}__replay"].access_control.items() if "can_create" in given["DAG Runs"]}  # type: ignore[union-attr]
    assert runs == operator


def test_roles_are_of_no_use_where_the_form_says_whether_anybody_is_asked() -> None:
    with pytest.raises(ConfigurationError, match="approval='form' lets them"):
        replay_dag(NAME, roles="shop")
    with pytest.raises(ConfigurationError, match="approval='never' is no rule"):
        replay_dag(NAME, approval="never")


def test_a_project_says_for_all_its_dags_who_approves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_APPROVAL", "other person")

    dag: Any = replay_dag(NAME, project=ROOT)
    assert dag.get_task("approve").approvals.rule == "other person"
    assert "const" in dag.params.get_param("approval").schema
    dag = replay_dag(NAME, project=ROOT, approval="form")
    assert "approve_roll_back" not in dag.task_ids


def test_users_of_the_setting_are_those_who_may_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_AIRFLOW_USERS", "eve:viewer, ada:operator, bob:approver")

    questions = (replay_dag(NAME, project=ROOT), dead_letters_dag(project=ROOT))
    for dag in questions:
        assigned = dag.get_task("approve").assigned_users  # type: ignore[union-attr]
        assert [user["id"] for user in assigned] == ["admin", "bob"]
    dag = replay_dag(NAME, project=ROOT, approvers=[])
    assert dag.get_task("approve").assigned_users is None  # type: ignore[union-attr]


def test_roles_are_made_with_fab_only() -> None:
    with pytest.raises(ConfigurationError, match="has roles of its own"):
        roles.make("shop")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ada", "no name with a role"),
        ("ada:user", "no name with a role"),
        ("a b:viewer", "no name with a role"),
        ("ada:viewer,ada:operator", "twice"),
        ("admin:viewer", "the administrator"),
    ],
)
def test_users_that_cannot_be_read_are_an_error(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        users(text)


def test_users_have_roles() -> None:
    assert users(" ada:operator, bob:approver ") == {
        "admin": Role.ADMIN,
        "ada": Role.OPERATOR,
        "bob": Role.APPROVER,
    }


REQUESTS: dict[Action, tuple[Any, str]] = {
    Action.SEE: ("GET", "RUN"),
    Action.DEPLOY: ("POST", "RUN"),
    Action.STOP: ("POST", "RUN"),
    Action.PLAN: ("POST", "RUN"),
    Action.DISCARD: ("POST", "RUN"),
    Action.COMPUTE: ("POST", "RUN"),
    Action.RESEND: ("POST", "RUN"),
    Action.CONNECT: ("POST", "RUN"),
    Action.FORGET: ("POST", "RUN"),
    Action.REPAIR: ("PUT", "TASK_INSTANCE"),
}
"""What Airflow's API asks its auth manager for."""


@pytest.mark.parametrize("role", Role)
def test_the_simple_auth_manager_lets_each_role_do_what_the_table_says_but_for_approvers(role: Role) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's API imports a test client
        from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
        from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    manager = SimpleAuthManager()  # type: ignore[no-untyped-call]
    user = SimpleAuthManagerUser(username=role.value, role=SIMPLE[role])

    let = {
        action
        for action, (method, entity) in REQUESTS.items()
        if manager.is_authorized_dag(method=method, access_entity=DagAccessEntity[entity], user=user)
    }
    expected = {action for action in REQUESTS if begins(role, action)}
    assert let == (set(REQUESTS) if role is Role.APPROVER else expected), "its `user` may trigger everything"
    assert manager.is_authorized_connection(method="POST", user=user) is begins(role, Action.MANAGE)
    approvers = {"approver", "admin"}
    assert manager.is_authorized_hitl_task(assigned_users=approvers, user=user) is answers(role, *Action)


@FAB
def test_fab_lets_each_role_do_what_the_table_says_over_the_api() -> None:
    tried = role_requests.tried("fab")

    for what, let in tried.items():
        for role in Role:
            action = TRIGGERED.get(what, next((each for each in Action if each.value == what), None))
            expected = answers(role, *Action) if action is None else begins(role, action)
            assert let[role] is expected, f"{role}: {what}"


@FAB
def test_the_simple_auth_manager_lets_approvers_alone_answer_over_the_api() -> None:
    tried = role_requests.tried("simple")

    assert {role for role in Role if tried["answer"][role]} == {Role.APPROVER, Role.ADMIN}
    for action in REQUESTS:
        if action.value in tried:
            assert tried[action.value] == {role.value: begins(role, action) or role is Role.APPROVER for role in Role}
    assert tried["write `approved_by`"][Role.OPERATOR], "what it cannot keep an operator from; the page says so"
