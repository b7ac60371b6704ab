"""A report of the orders of each day: an example of a DAG by somebody who knows the tables, not the streams.

The table `enriched_orders` tells when a day of it has closed, or when a replay has published it. The report is a CSV
file per day, which is written again if the day changes.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from deltaworks.airflow.dags import table_asset
from deltaworks.airflow.events import table_events

FOLDER = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "reports"
QUERY = """
    SELECT item, count(DISTINCT order_id) AS orders, sum(amount) AS revenue
    FROM orders WHERE timestamp >= $day AND timestamp < $day + INTERVAL 1 DAY
    GROUP BY item ORDER BY revenue DESC
"""


@task
def report(triggering_asset_events: Any = None) -> list[str]:
    """Writes a file per day, from the tables as they were at the event; returns the files."""
    import duckdb  # when it runs, not when Airflow parses this file

    from deltaworks import tables

    files = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for event in table_events(triggering_asset_events):
        orders = tables.open("orders", at=event.at)["enriched_orders"].rows
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("orders", orders)
            for day in event.days or []:
                file = FOLDER / f"orders-{day}.csv"
                connection.sql(QUERY, params={"day": day}).write_csv(str(file))
                files.append(str(file))
    return files


with DAG(
    dag_id="orders_report",
    description="Orders and revenue per item, for each day that has closed.",
    schedule=[table_asset("enriched_orders")],
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "analysts", "retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["reports"],
    doc_md=__doc__,
):
    report()
