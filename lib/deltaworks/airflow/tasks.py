"""The tasks of `<name>__stream`: each calls one action of `deltaworks.control`.

The actions are imported when a task runs, not when its DAG is parsed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks import clock
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.control.model import BY_AIRFLOW, Deployment, DeployOptions
from deltaworks.errors import ConflictError, DeltaworksError, StackError, TransientError
from deltaworks.exits import NO_RESTART, code_of
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
_REPEAT_S = 10.0


def action(name: str, params: Any = None) -> str:
    """The id of the next task, as chosen in the form."""
    if params["given_up"] is not None:
        raise AirflowFailException(
            f"{name} is no longer restarted: {params['given_up']}\n"
            f"Fix the cause, then trigger {name}__stream; its failed runs have the last lines of the stream's log."
        )
    return "stop" if params["action"] == "stop" else "preflight"


def preflight(name: str, params: Any = None, access: Access = ENVIRONMENT) -> None:
    """Checks everything that can be checked before anything changes."""
    from deltaworks.control import actions
    from deltaworks.control.registry import Registry
    from deltaworks.traces.options import require_usable

    if params["attach"] is not None:
        log.info("generation %s runs: nothing to check", params["attach"])
        return
    settings = access.settings()
    healing = params["expected_generation"]
    with no_retry_where_it_cannot_help():
        try:
            options, again = _options(settings, name, params), actions.code_of(settings, _again(settings, name, params))
            if healing is None:  # a driver that died comes back without traces rather than not at all
                require_usable(settings, name)
            if again is None:
                actions.preflight(settings, name, options, reporter())
            else:
                actions.preflight_again(settings, name, again, options, reporter())
        except TransientError as error:
            if healing is None:
                raise
            raise AirflowSkipException(f"not now; streams__reconcile retries in a few minutes: {error}") from error
        except DeltaworksError as error:
            if healing is not None and code_of(error) in NO_RESTART:
                Registry.of(settings).gave_up(name, healing, str(error))  # so that this is not tried every few minutes
            raise


def deploy(name: str, params: Any = None, dag_run: Any = None, access: Access = ENVIRONMENT) -> dict[str, int]:
    """Starts a new generation; a retry of the same run finds the one that it started."""
    from deltaworks.control import actions

    if params["attach"] is not None:
        log.info("generation %s runs: nothing to deploy", params["attach"])
        return {"generation": params["attach"]}
    settings = access.settings()
    with no_retry_where_it_cannot_help():
        try:
            deployment = actions.deploy(
                settings,
                name,
                _options(settings, name, params),
                request_id=dag_run.run_id,
                requested_by=requester(dag_run),
                expected_generation=params["expected_generation"],
                runs=actions.code_of(settings, _again(settings, name, params)),
                report=reporter(),
            )
        except ConflictError as error:
            raise AirflowSkipException(f"nothing to do: {error}") from error
        except StackError as error:
            raise AirflowFailException(str(error)) from error  # a retry would fail the same way
    log.info("the log of the stream is %s", deployment.log)
    return {"generation": deployment.generation}


def stop(name: str, dag_run: Any = None, task_state_store: Any = None, access: Access = ENVIRONMENT) -> None:
    """Drains the generation that was current when this task first ran, and no later one.

    Airflow 3.2 keeps nothing for a task across its tries: there, it is none that was deployed after the run was made.
    """
    from deltaworks.control import actions
    from deltaworks.control.registry import Registry

    settings = access.settings()
    with no_retry_where_it_cannot_help():
        registry = Registry.of(settings)
        record = registry.pipeline(name)
        if record is None:
            raise AirflowSkipException(f"{name} was never deployed: nothing to stop")
        current = record.generation
        if task_state_store is None:
            if any(each.requested_at > dag_run.run_after for each in registry.deployments(name, 1)):
                raise AirflowSkipException(f"generation {current} was deployed after this run was made: not stopped")
        elif (meant := task_state_store.get("generation")) is None:
            task_state_store.set("generation", current)
        elif meant != current:
            raise AirflowSkipException(f"generation {current} has replaced {meant} since, and is not stopped")
        ended = actions.stop(settings, name, requested_by=requester(dag_run), report=reporter())
    log.info("%s, generation %s: %s", name, ended.generation, ended.state)


@contextmanager
def no_retry_where_it_cannot_help() -> Iterator[None]:
    """Fails the task without a retry on exit codes that forbid a restart of a stream."""
    try:
        yield
    except DeltaworksError as error:
        if code_of(error) in NO_RESTART:
            raise AirflowFailException(str(error)) from error
        raise


def reporter() -> Callable[[str], None]:
    """Makes a progress callback that logs new messages at once and repeated ones every few seconds."""
    said: dict[str, float] = {}

    def report(text: str) -> None:
        wording = re.sub(r"\d+", "#", text)
        if clock.ticks_s() - said.get(wording, float("-inf")) >= _REPEAT_S:
            said[wording] = clock.ticks_s()
            log.info("%s", text)

    return report


def requester(dag_run: Any) -> str:
    return f"{BY_AIRFLOW}{dag_run.triggering_user_name or dag_run.run_type}"


def _options(settings: Settings, name: str, params: Any) -> DeployOptions:
    """The options of the form; for a restart, those of the last deployment."""
    if (last := _again(settings, name, params)) is not None:
        return last.options
    return DeployOptions(
        launcher=params["launcher"],
        trigger_interval_s=params["trigger_interval_s"],
        start_offsets=params["start_offsets"],
    )


def _again(settings: Settings, name: str, params: Any) -> Deployment | None:
    """The last deployment, whose options and code a restart repeats; None if this is not a restart."""
    from deltaworks.control.registry import Registry

    if params["action"] != "restart":
        return None
    return next(iter(Registry.of(settings).deployments(name, limit=1)), None)


def day_of_key(key: str) -> date:
    """The day that a partition key names; Airflow 3.2 starts runs with any key."""
    try:
        return date.fromisoformat(key)
    except ValueError:
        raise AirflowFailException(f"The partition key {key!r} is not a day, such as 2026-11-22.") from None
