"""The DAG `streams__days`: every few minutes, it tells who waits for a table which of its days have closed.

```
tell
```

`deltaworks.control.closed_days` says when a day closes, and keeps a mark beside each checkpoint, so each day of a table
gives one event, however often the task is retried and whoever looks at the same time. Airflow writes the events in the
transaction in which `tell` succeeds. So a try that has claimed days and was killed has told nobody, and the next try,
or the next run if all tries have failed, tells of them. Only who clears `tell` before the next run may tell twice.

It watches the streams as `streams__reconcile` does, but is a DAG of its own: nothing about days may delay healing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Unpack

from airflow.sdk import DAG, AssetAlias, task

from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.assets import URI, table_asset
from deltaworks.airflow.events import TableEvent, cut_of
from deltaworks.airflow.home_dags import home_dag
from deltaworks.airflow.options import DagOptions, access_of
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
DAG_ID = "streams__days"
ALIAS = "deltaworks closed days"
"""The task may update any table's asset, and updates those of which it has days to tell."""
_TELL = "tell"
_AFTER = timedelta(minutes=5)


def days_dag(
    every: timedelta = timedelta(minutes=5),
    after: timedelta = _AFTER,
    asset_uri: str = URI,
    **options: Unpack[DagOptions],
) -> DAG:
    """Makes the DAG, which an Airflow has once for a home.

    Args:
        every: time between looks.
        after: how long after midnight (UTC) the records of a day may still reach their topics.
        asset_uri: URI of a table's asset, with `{table}`; the same as that of the pipelines' DAGs.
        options: see `DagOptions`.
    """
    access = access_of(options)
    table_asset("t", asset_uri)
    with home_dag(
        DAG_ID,
        "Updates the assets of tables when a day of theirs has closed.",
        __doc__,
        options,
        access,
        schedule=every,
        limit=timedelta(minutes=30),
    ) as dag:
        task(task_id=_TELL, execution_timeout=timedelta(minutes=10), outlets=[AssetAlias(ALIAS)])(tell)(
            after=after, asset_uri=asset_uri, access=access
        )
    return dag


def tell(
    ti: Any = None,
    dag_run: Any = None,
    outlet_events: Any = None,
    after: timedelta = _AFTER,
    asset_uri: str = URI,
    access: Access = ENVIRONMENT,
) -> dict[str, list[str]]:
    """Adds an event for each table with days that have closed; returns these days.

    Raises:
        DeltaworksError: the days of a pipeline cannot be told, once those of the others are.
    """
    settings, told = access.settings(), {}
    failed: list[DeltaworksError] = []
    for event in _events(settings, dag_run.run_id, _has_told(ti), after, failed):
        outlet_events[AssetAlias(ALIAS)].add(table_asset(event.table, asset_uri), extra=event.extra)
        told[event.table] = [day.isoformat() for day in event.days or ()]
        log.info("%s: %s closed", event.table, ", ".join(told[event.table]))
    if failed and not told:
        raise failed[0]
    return told


def _events(
    settings: Settings, run_id: str, has_told: Any, after: timedelta, failed: list[DeltaworksError]
) -> Iterator[TableEvent]:
    from deltaworks.control import closed_days
    from deltaworks.lakehouse import cuts

    for pipeline in cuts.pipelines(settings.tables):
        try:
            closed = closed_days.claim(settings, pipeline, run_id, has_told, delay=after)
        except DeltaworksError as error:  # nothing of one pipeline keeps the others from being told
            log.error("%s: %s", pipeline, error)
            failed.append(error)
            continue
        for each in closed:
            yield TableEvent(
                why="closed",
                table=each.table,
                days=list(each.days),
                version=each.cut.tables[each.table],
                run=run_id,
                **cut_of(each.cut),
            )


def _has_told(ti: Any) -> Any:
    """Whether a run has told of its days: None while it may still do so."""

    def has_told(run_id: str) -> bool | None:
        found = ti.get_task_states(dag_id=DAG_ID, task_ids=[_TELL], run_ids=[run_id])
        state = found.get(run_id, {}).get(_TELL)
        if state is None and run_id not in found:
            return True  # nobody knows the run any more; rather no event than two
        return {"success": True, "failed": False, "upstream_failed": False, "skipped": False}.get(str(state))

    return has_told
