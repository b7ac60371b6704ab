"""The batch job of `cascading` without Spark: `python -m tests.hosts.batch_by_hand daily --day 2026-03-01 ...`."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections import Counter

import pyarrow as pa
from deltalake import write_deltalake

from deltaworks.batch import jobs
from deltaworks.batch.definition import definition
from deltaworks.lakehouse import cuts
from deltaworks.settings import Settings
from deltaworks.tables import Tables


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--day", action="append", type=dt.date.fromisoformat)
    parser.add_argument("--run-id")
    asked = parser.parse_args()
    settings = Settings.from_environment()
    job = jobs.load(settings, asked.name)
    cut = cuts.latest(settings.tables, "payments")
    assert cut is not None
    rows = Tables(settings.tables, cut)["amounts"].rows.to_table().to_pylist()
    refused = sys.modules[job.compute.__module__].__dict__["REFUSED"]
    if any(row["value"] == refused for row in rows):
        raise SystemExit(f"{refused} is no amount")
    for day in asked.day:
        totals: Counter[str] = Counter()
        for row in rows:
            if row["timestamp"].date() == day:
                totals[row["key"]] += row["value"]
        found = [{"day": day, "payer": payer, "total": total} for payer, total in totals.items()]
        write_deltalake(
            settings.tables / asked.name,
            pa.Table.from_pylist(found, schema=definition(job).columns),
            mode="overwrite",
            predicate=f"day = '{day}'",
            partition_by=["day"],
        )


if __name__ == "__main__":
    main()
