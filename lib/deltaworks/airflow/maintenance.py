"""The DAG `streams__maintenance`: once a day, it removes what nobody needs any more, and describes the tables.

```
clean
catalog
```

The log of `clean` names what was removed: code archives without use, and replays that were begun and left alone. See
`deltaworks.replay.maintenance`. Files of tables are none of its business: a stream removes those that it has replaced.
`catalog` writes the Delta table of that name, which checks and batch jobs write too: see `deltaworks.catalogue.table`.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Unpack

from airflow.sdk import DAG, task

from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.home_dags import home_dag
from deltaworks.airflow.options import DagOptions, access_of

log = logging.getLogger(__name__)
DAG_ID = "streams__maintenance"
WEEK = timedelta(days=7)


def maintenance_dag(
    schedule: Any = "@daily", keep_replays: timedelta | None = WEEK, **options: Unpack[DagOptions]
) -> DAG:
    """Makes the DAG, which an Airflow has once for a home.

    Args:
        schedule: when, as `DAG(schedule=...)` takes it.
        keep_replays: how long an unfinished replay stays after its last phase; None: until somebody discards it.
        options: see `DagOptions`.
    """
    access = access_of(options)
    with home_dag(
        DAG_ID,
        "Removes unused code archives and replays that were left alone; writes the table `catalog`.",
        __doc__,
        options,
        access,
        schedule=schedule,
        limit=timedelta(hours=1),
    ) as dag:
        task(task_id="clean", execution_timeout=timedelta(minutes=30))(clean)(access=access, keep_replays=keep_replays)
        task(task_id="catalog", execution_timeout=timedelta(minutes=30))(catalog)(access=access)
    return dag


def clean(access: Access = ENVIRONMENT, keep_replays: timedelta | None = WEEK) -> dict[str, Any]:
    """What was removed, as the task's XCom."""
    import msgspec

    from deltaworks.replay.maintenance import maintain

    removed = maintain(access.settings(), keep_replays)
    log.info("corrections sent: %s", ", ".join(removed.sent) or "none waited")
    log.info("sinks corrected: %s", ", ".join(removed.corrected) or "none waited")
    log.info("removed: %s code archives, replays %s", len(removed.archives), ", ".join(removed.replays) or "none")
    result: dict[str, Any] = msgspec.to_builtins(removed)
    return result


def catalog(access: Access = ENVIRONMENT) -> int:
    """Writes the table `catalog`.

    Returns:
        The number of tables in it.
    """
    from deltaworks.catalogue.table import refresh

    written = refresh(access.settings())
    log.info("%s tables, version %s of the table", written.tables, written.version)
    return written.tables
