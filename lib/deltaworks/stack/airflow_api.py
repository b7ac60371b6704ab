"""The part of Airflow's REST API that the demo, the tests and the fault checks need, without importing Airflow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from deltaworks import clock, listeners
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack.airflow import credentials

_TIMEOUT_S = 20.0
_POLL_S = 0.3
_T = TypeVar("_T")


class Dag(msgspec.Struct, frozen=True):
    """A DAG in the list of DAGs."""

    dag_id: str
    is_paused: bool
    is_stale: bool
    tags: list[dict[str, Any]]


class ImportFailure(msgspec.Struct, frozen=True):
    """A DAG file that cannot be imported."""

    filename: str
    bundle_name: str | None
    stack_trace: str


class DagRun(msgspec.Struct, frozen=True):
    """One run of a DAG."""

    dag_id: str
    dag_run_id: str
    state: str
    run_type: str
    conf: dict[str, Any] | None = None
    note: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("success", "failed")


class TaskInstance(msgspec.Struct, frozen=True):
    """One task of a run."""

    task_id: str
    state: str | None
    try_number: int
    map_index: int = -1
    start_date: str | None = None


class AirflowApi:
    """A client with a session; made by `of`.

    Every method raises `StackError`, with Airflow's message, if Airflow does not answer or refuses.
    """

    def __init__(self, address: str, user: str, password: str) -> None:
        self.address = address
        self._user, self._password = user, password
        self._client = httpx.Client(base_url=address, timeout=_TIMEOUT_S, trust_env=False)
        self._token: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A client of the stack's Airflow, logged in as its administrator.

        Raises:
            ConfigurationError: Airflow has never been started in this home.
            StackError: another project's Airflow answers on its port; it does not get our password.
        """
        if not settings.airflow.is_dir():
            raise ConfigurationError(f"Airflow was never started in {settings.home}.", hint="deltaworks up")
        listeners.require_none_of_another(settings, settings.airflow_port)
        login = credentials(settings)
        return cls(login.url, login.user, login.password)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def token(self) -> str:
        """A new token for the caller's own requests (`Authorization: Bearer ...`)."""
        answer = self._send("POST", "/auth/token", {"username": self._user, "password": self._password})
        return str(answer["access_token"])

    def health(self) -> dict[str, Any]:
        """Status and last heartbeat per component; needs no login. A fresh status may be a predecessor's."""
        return self._send("GET", "/api/v2/monitor/health")

    def dags(self) -> list[Dag]:
        """The DAGs whose files exist."""
        return msgspec.convert(self._get("/api/v2/dags?limit=1000")["dags"], list[Dag])

    def import_errors(self) -> list[ImportFailure]:
        """The DAG files that cannot be imported."""
        return msgspec.convert(self._get("/api/v2/importErrors?limit=1000")["import_errors"], list[ImportFailure])

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> str:
        """Starts a run and returns its id; `conf` holds the form's fields."""
        body = {"logical_date": None, "conf": dict(conf or {}), **({"dag_run_id": run_id} if run_id else {})}
        return str(self._authorized("POST", f"/api/v2/dags/{_part(dag_id)}/dagRuns", body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> DagRun:
        return msgspec.convert(self._get(_run(dag_id, run_id)), DagRun)

    def runs(self, dag_id: str) -> list[DagRun]:
        """The latest 100 runs, newest first."""
        path = f"/api/v2/dags/{_part(dag_id)}/dagRuns?order_by=-run_after&limit=100"
        return msgspec.convert(self._get(path)["dag_runs"], list[DagRun])

    def patch_run(self, dag_id: str, run_id: str, state: Literal["success", "failed"]) -> None:
        """Marks a run and its active tasks."""
        self._authorized("PATCH", _run(dag_id, run_id), {"state": state})

    def task(self, dag_id: str, run_id: str, task_id: str) -> TaskInstance:
        return msgspec.convert(self._get(_task(dag_id, run_id, task_id)), TaskInstance)

    def tasks(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """All tasks of a run, including each mapped task."""
        return msgspec.convert(self._get(f"{_run(dag_id, run_id)}/taskInstances")["task_instances"], list[TaskInstance])

    def patch_task(
        self, dag_id: str, run_id: str, task_id: str, state: Literal["success", "failed", "skipped"]
    ) -> None:
        """Marks one task."""
        self._authorized("PATCH", _task(dag_id, run_id, task_id), {"new_state": state})

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clears only these tasks, so that they run again."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self._authorized("POST", f"/api/v2/dags/{_part(dag_id)}/clearTaskInstances", body)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """The XCom value of a task; a string with JSON is decoded, any other string is the value itself."""
        value = self._get(f"{_task(dag_id, run_id, task_id)}/xcomEntries/{_part(key)}")["value"]
        with suppress(TypeError, ValueError):
            return json.loads(value)
        return value

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """The messages of a task's log, including those of its trigger and of the exception that ended it."""
        content = self._get(f"{_task(dag_id, run_id, task_id)}/logs/{try_number}?full_content=true")["content"]
        return "\n".join(text for line in content for text in _log_line(line))

    def wait(self, what: str, fact: Callable[[], _T | None], *, timeout_s: float = 60.0) -> _T:
        """Polls until the answer is neither None nor False; also waits for an Airflow that is down.

        Raises:
            StackError: the timeout passed; says what was awaited.
        """
        deadline = clock.ticks_s() + timeout_s
        last = "not yet true"
        while clock.ticks_s() < deadline:
            try:
                answer = fact()
            except StackError as error:
                last = error.message
            else:
                if answer is not None and answer is not False:
                    return answer
            time.sleep(_POLL_S)
        raise StackError(f"Airflow: {what}: not within {timeout_s:.0f} s ({last}).", hint=f"look at {self.address}")

    def _get(self, path: str) -> dict[str, Any]:
        return self._authorized("GET", path)

    def _authorized(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends with a token, and retries once with a new one: the old one may have expired."""
        for _ in range(2):
            if self._token is None:
                self._token = self.token()
            try:
                return self._send(method, path, body, {"Authorization": f"Bearer {self._token}"})
            except _Unauthorized:
                self._token = None
        raise StackError(f"Airflow refuses the token that it has just issued: {method} {path}.")

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            response = self._client.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise StackError(
                f"Airflow at {self.address} does not answer: {type(error).__name__}: {error}.",
                hint="is it up? deltaworks status",
            ) from error
        if response.status_code == 401 and headers:
            raise _Unauthorized
        if response.is_error:
            raise StackError(f"Airflow answers {response.status_code} to {method} {path}: {_detail(response)}")
        return dict(response.json()) if response.content else {}


class _Unauthorized(Exception):
    """The token is not valid, or no longer valid."""


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"


def _task(dag_id: str, run_id: str, task_id: str) -> str:
    return f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}"


def _part(name: str) -> str:
    """A part of a path, escaped."""
    return quote(name, safe="")


def _log_line(line: dict[str, Any] | str) -> Iterator[str]:
    if isinstance(line, str):
        yield line
        return
    yield str(line["event"])
    for error in line.get("error_detail") or ():
        yield f"{error['exc_type']}: {error['exc_value']}"


def _detail(response: httpx.Response) -> str:
    """The error message in an answer, without the page around it."""
    try:
        detail = response.json().get("detail", response.text)
    except (ValueError, AttributeError):
        detail = response.text
    return str(detail)[:1000]
