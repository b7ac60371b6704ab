"""The options of DAGs, which a team sets where it makes them, and the arguments for Airflow that follow from them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from airflow.utils.types import DagRunType

from deltaworks.airflow.access import Access
from deltaworks.airflow.approvals import Approvals
from deltaworks.airflow.roles import access_control
from deltaworks.control.roles import Action, approvers
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

    Callback: TypeAlias = Callable[[Context], Any] | BaseNotifier

DEFAULTS = {"owner": "deltaworks", "retries": 2, "retry_delay": timedelta(seconds=5)}
"""Arguments of every task; it is retried because faults around a task (a restart of the API server) soon pass."""
FIRST = {**DEFAULTS, "priority_weight": 100}
"""Priority of tasks that start and stop streams, so that they do not queue behind checks and replays."""
_GONE = {"notifiers": "notices_dag(notifiers=...) tells of approvals that wait, as of every incident"}
"""Options of earlier versions -> what to write instead."""
TRIGGERED_BY_TASK: DagRunType = getattr(DagRunType, "OPERATOR_TRIGGERED", DagRunType.MANUAL)
"""Runs that a task of another DAG starts; Airflow 3.2 counts them as manual ones."""


class DagOptions(TypedDict, total=False):
    """Options of every DAG."""

    project: str | Path
    """Folder of the project; without it, DELTAWORKS_PROJECT."""
    conn_id: str
    """A connection of the type `deltaworks` for the tasks; without it, the environment of the workers."""
    owner: str
    """Owner of the tasks."""
    tags: Collection[str]
    """Tags beside those that each DAG has."""
    on_failure_callback: Callback | list[Callback]
    """Called when a run has failed; a notifier is a callback, too."""
    on_success_callback: Callback | list[Callback]
    """Called when a run has succeeded."""
    retries: int
    """Retries of each task. What a retry cannot help fails at once."""
    retry_delay: timedelta
    """Pause before a retry."""
    pool: str
    """Pool of the tasks."""
    access_control: dict[str, dict[str, Collection[str]]]
    """Permissions of roles on the DAGs, as `DAG(access_control=...)` takes them."""
    roles: str
    """Begin of the names of the roles that `python -m deltaworks.airflow.roles` has made: they may do with the DAGs
    what `control.roles` says. Of Airflow's FAB auth manager."""
    approval: str
    """Whether a person approves what a replay publishes or rolls back: `form`, `always` or `other person`, see
    `approvals.Approvals`; without it, the setting `approval`."""
    approvers: Collection[str]
    """Ids of the users who may answer, as the auth manager knows them; without it, those of the setting
    `airflow_users` who may, or all whom the auth manager lets."""
    default_args: Mapping[str, Any]
    """Other arguments of each task, such as `queue`, `executor` or `executor_config`."""


class PipelineOptions(DagOptions, total=False):
    """Options of the DAGs of a pipeline."""

    heavy_pool: str
    """Pool of the tasks `run` and `gate` of a replay, which fill a machine; without it, `pool`."""
    asset_uri: str | None
    """URI of a table's asset, with `{table}`; `assets.URI` without it. None: no assets."""
    quality_schedule: Any
    """When tables are checked, as `DAG(schedule=...)` takes it; without it, every hour. None: when triggered."""


def access_of(options: DagOptions) -> Access:
    """Where tasks get their settings.

    Raises:
        ConfigurationError: there is no such option.
    """
    known = PipelineOptions.__annotations__.keys()
    for name in options.keys() - known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(sorted(known))}"
        hint = _GONE.get(name, hint)
        raise ConfigurationError(f"DAGs have no option {name!r}.", hint=hint)
    project = options.get("project")
    return Access(conn_id=options.get("conn_id"), project=None if project is None else str(project))


def approvals_of(options: DagOptions, settings: Settings) -> Approvals:
    """Who has to approve what a replay publishes or rolls back.

    Raises:
        ConfigurationError: there is no such rule, or roles would be of no use with it.
    """
    rule = options.get("approval", settings.approval)
    if "roles" in options and rule == "form":
        raise ConfigurationError(
            "roles= keeps those who trigger a replay from publishing it, but approval='form' lets them.",
            hint="approval='always', or 'other person'",
        )
    return Approvals.of(rule, tuple(options.get("approvers", approvers(settings.airflow_users))))


def arguments(
    options: DagOptions, *, tags: Sequence[str], tasks: Mapping[str, Any], actions: Sequence[Action] = ()
) -> dict[str, Any]:
    """Arguments of `DAG` that follow from the options.

    Args:
        options: of the team.
        tags: the tags of the DAG in any case.
        tasks: arguments of its tasks unless the options say otherwise.
        actions: what one does with the DAG, for its permissions; none: whoever operates may trigger it.
    """
    given: dict[str, Any] = {**options}
    if "roles" in options:
        given["access_control"] = {
            **access_control(options["roles"], *(actions or (Action.COMPUTE,))),
            **options.get("access_control", {}),
        }
    of_tasks = {name: given[name] for name in ("owner", "retries", "retry_delay", "pool") if name in given}
    of_dag = ("on_failure_callback", "on_success_callback", "access_control")
    return {
        "default_args": {**tasks, **of_tasks, **options.get("default_args", {})},
        "tags": [*tags, *options.get("tags", ())],
        **{name: given[name] for name in of_dag if name in given},
    }


def run_types(*kinds: DagRunType) -> Any:
    """For `DAG(allowed_run_types=...)`, which makes members of an enumeration of its own of these values."""
    return sorted({kind.value for kind in kinds})
