"""Each role tries each action over Airflow's own API, with an auth manager and SQLite; prints who was let.

Run as a process of its own (`tried`), since Airflow reads its settings when it is imported. No server is started.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from deltaworks.control.roles import SIMPLE, Action, Role
from tests.unit.airflow import dag_runs

MANAGERS = {
    "simple": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "fab": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
}
NAME, TEAM = "wordcount", "shop"
_DAGS = f"""
from deltaworks.airflow.dags import dead_letters_dag, maintenance_dag, pipeline_dags
options = {{"roles": "{TEAM}", "approval": "other person", "approvers": __APPROVERS__}}
globals().update(pipeline_dags("{NAME}", **options))
letters, maintenance = dead_letters_dag(**options), maintenance_dag(roles="{TEAM}")
"""
_REFUSED = 403


def tried(manager: str) -> dict[str, dict[str, bool]]:
    """Action -> role -> whether Airflow let it."""
    approvers = [Role.APPROVER.value, Role.ADMIN.value] if manager == "simple" else []
    return dag_runs.ended(
        "tests.unit.airflow.role_requests",
        _DAGS.replace("__APPROVERS__", repr(approvers)),
        dict[str, bool],
        AIRFLOW__CORE__AUTH_MANAGER=MANAGERS[manager],
        AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
        AIRFLOW__API__SECRET_KEY="of the tests",
        AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600",
    )


def main() -> None:
    warnings.simplefilter("ignore")
    import msgspec
    from airflow.utils.db import initdb

    initdb()
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from fastapi.testclient import TestClient

    app = create_app()
    manager = get_auth_manager()
    users = _simple_users() if "Simple" in type(manager).__name__ else _fab_users()
    _store_dags()
    results: dict[str, dict[str, bool]] = {}
    clients = {
        role: TestClient(app, headers={"Authorization": f"Bearer {manager.generate_jwt(user)}"})
        for role, user in users.items()
    }
    for role, client in clients.items():
        for what, answer in _requests(client, clients[Role.ADMIN], role).items():
            results.setdefault(what, {})[role.value] = answer.status_code != _REFUSED
            if answer.status_code >= 500 or answer.status_code in (400, 401, 404, 422):
                sys.exit(f"{role}: {what}: {answer.status_code} {answer.text}")
    print()
    print(msgspec.json.encode(results).decode())


def _requests(client: Any, admin: Any, role: Role) -> dict[str, Any]:
    """The answers to what a role tries."""
    replay, stream = f"/api/v2/dags/{NAME}__replay", f"/api/v2/dags/{NAME}__stream"

    def trigger(dag: str, who: Any = client, **conf: Any) -> Any:
        return who.post(f"{dag}/dagRuns", json={"logical_date": None, "conf": conf})

    asked = trigger(replay, admin, reason="prices").json()["dag_run_id"]
    _ask(asked)
    task = f"{replay}/dagRuns/{asked}/taskInstances/approve"
    backfill = {
        "dag_id": f"{NAME}__replay",
        "from_date": "2026-11-01T00:00:00Z",
        "to_date": "2026-11-02T00:00:00Z",
        "dag_run_conf": {"reason": "prices"},
    }
    xcom = {"key": "approved_by", "value": role.value, "map_index": -1}
    return {
        Action.SEE.value: client.get(f"{stream}/dagRuns"),
        "see tasks": client.get(f"{replay}/dagRuns/{asked}/taskInstances"),
        Action.DEPLOY.value: trigger(stream),
        Action.STOP.value: trigger(stream, action="stop"),
        Action.PLAN.value: trigger(replay, reason="prices"),
        "backfill": client.post("/api/v2/backfills/dry_run", json=backfill),
        Action.DISCARD.value: trigger(replay, action="discard", run="r"),
        "ask for a rollback": trigger(replay, action="roll back", run="r"),
        Action.COMPUTE.value: trigger(f"/api/v2/dags/{NAME}__quality"),
        Action.RESEND.value: trigger("/api/v2/dags/streams__dead_letters", pipeline=NAME),
        "look after the home": trigger("/api/v2/dags/streams__maintenance"),
        "mark `approve`": client.patch(f"{task}", json={"new_state": "success"}, params={"map_index": -1}),
        "clear `approve`": client.post(
            f"{replay}/clearTaskInstances", json={"dry_run": True, "dag_run_id": asked, "task_ids": ["approve"]}
        ),
        "write `approved_by`": client.post(f"{task}/xcomEntries", json=xcom),
        "answer": client.patch(f"{task}/-1/hitlDetails", json={"chosen_options": ["Approve"], "params_input": {}}),
        Action.MANAGE.value: client.post(
            "/api/v2/connections", json={"connection_id": f"of_{role}", "conn_type": "deltaworks"}
        ),
        "see connections": client.get("/api/v2/connections"),
        "delete a DAG": client.delete(f"/api/v2/dags/of_{role}"),
    }


def _ask(run: str) -> None:
    """As if the task `approve` of a run had asked."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from deltaworks.airflow.replay import replay_dag

    dag: Any = replay_dag(NAME, approval="always", approvers=_approvers())
    assigned = dag.get_task("approve").assigned_users or []
    with create_session() as session:
        task = session.scalars(select(TaskInstance).filter_by(run_id=run, task_id="approve")).one()
        detail = HITLDetail(ti_id=task.id, options=["Approve", "Reject"], subject="Publish?", assignees=assigned)
        session.add(detail)


def _approvers() -> list[str]:
    from airflow.configuration import conf

    return [Role.APPROVER, Role.ADMIN] if conf.get("core", "auth_manager") == MANAGERS["simple"] else []


def _store_dags() -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models import DagModel
    from airflow.utils.session import create_session

    bundles = DagBundlesManager()  # type: ignore[no-untyped-call]
    bundles.sync_bundles_to_db()
    (bundle,) = bundles.get_all_dag_bundles()
    bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, bundle.name, None)
    with create_session() as session:
        for role in Role:
            of_role: Any = {"dag_id": f"of_{role}", "bundle_name": bundle.name, "fileloc": "", "is_stale": True}
            session.add(DagModel(**of_role))  # type: ignore[no-untyped-call]


def _simple_users() -> dict[Role, Any]:
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return {role: SimpleAuthManagerUser(username=role.value, role=SIMPLE[role]) for role in Role}


def _fab_users() -> dict[Role, Any]:
    """Users with the roles that we make, and FAB's own administrator."""
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

    from deltaworks.airflow import roles

    assert roles.make(TEAM) == roles.make(TEAM) == [f"{TEAM} {role}" for role in roles.ROLES]
    users = {}
    with get_application_builder() as builder:
        for role in Role:
            given = builder.sm.find_role("Admin" if role is Role.ADMIN else roles.name_of(TEAM, role))
            users[role] = builder.sm.add_user(role.value, role.value, "", f"{role}@example.com", given, role.value)
            assert users[role]
    return users


if __name__ == "__main__":
    main()
