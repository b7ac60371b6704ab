"""A stream with a batch job behind it, in a project, and replays with a cascade."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaworks.cascade import rehearsal, release
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.replay.model import Phase, ReplayPaths, ReplayPlan
from deltaworks.replay.phases import ReplayRun, Report
from deltaworks.settings import Settings
from tests.hosts import beside
from tests.hosts.beside import Beside, stand_beside
from tests.hosts.test_reprocess import FIRST_DAY, streamed, topology

ROOT = Path(__file__).parents[2]
DATES = [dt.date(1970, 1, 1) + dt.timedelta(days=FIRST_DAY + number) for number in range(1, 4)]
"""Of which the batch job has rows."""
ODD_DATE = DATES[1]
PIPELINE = """
from deltaworks import Pipeline
from tests.hosts.test_reprocess import topology

pipeline = Pipeline(name="payments", topology=topology())
"""
JOB = """
from datetime import date
from typing import NamedTuple

from deltaworks.batch import BatchJob

REFUSED = 779

class Total(NamedTuple):
    day: date
    payer: str
    total: int

def daily(day, amounts):
    from pyspark.sql import functions as F

    if amounts.where(F.col("value") == REFUSED).count():
        raise ValueError(f"{REFUSED} is no amount")
    of_day = amounts.where(F.to_date("timestamp") == F.lit(day))
    return of_day.groupBy(F.col("key").alias("payer")).agg(F.sum("value").alias("total")).withColumn("day", F.lit(day))

job = BatchJob(
    name="daily", pipelines=["payments"], compute=daily, row=Total, key=["day", "payer"], doc="Totals", schedule=None
)
"""


class Rehearsing(beside.Engines):
    """As `rehearsal.Engines`, with Spark's part of the replay in this process."""

    def judge(
        self, settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, scope: Scope, report: Report
    ) -> bool:
        rehearsal.rehearse(ReplayRun(settings, pipeline, paths, plan), report)
        return True


@dataclass
class Cascade:
    """A stream that is stopped, and a batch job behind it that has computed all days."""

    beside: Beside

    @property
    def settings(self) -> Settings:
        return self.beside.settings

    def start(self, odd: int, **request: Any) -> ReplayRun:
        """A replay with code that counts another number where the odd one was."""
        self.beside.pipeline = replace(self.beside.pipeline, topology=topology(odd=odd))
        return self.beside.start(cascade=True, **request)

    def advance(self, run: ReplayRun, until: Phase) -> None:
        with run.held():
            run.advance(until, lambda phase: lambda line: None, Rehearsing(self.beside.stream))

    def totals(self) -> dict[tuple[dt.date, str], int]:
        rows = DeltaTable(self.settings.tables / "daily").to_pyarrow_table().to_pylist()
        return {(row["day"], row["payer"]): row["total"] for row in rows}

    def expected(self) -> dict[tuple[dt.date, str], int]:
        """From the rows that production has."""
        found: dict[tuple[dt.date, str], int] = {}
        for row in self.beside.rows()["amounts"]:
            if (at := row["timestamp"].date()) in DATES:
                found[at, row["key"]] = found.get((at, row["key"]), 0) + row["value"]
        return found

    def everything(self) -> dict[str, int]:
        """Table -> its version."""
        return {
            path.parent.name: DeltaTable(path.parent).version() for path in self.settings.tables.glob("*/_delta_log")
        }


def cascading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cascade:
    """Five days of payments, of which the job has computed three."""
    project = tmp_path / "project"
    (project / "jobs" / "batch").mkdir(parents=True)
    (project / "jobs" / "payments.py").write_text(PIPELINE)
    (project / "jobs" / "batch" / "daily.py").write_text(JOB)
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    stream = streamed(tmp_path / "home")
    stream.committer.refresh_snapshots(force=True)
    stream.committer.publish_cut()
    known = Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})
    path = (*known.python_path[:1], project, ROOT)
    stream.settings = replace(known, home=stream.settings.home, python_path=path, cores=1)
    found = Cascade(stand_beside(stream, monkeypatch))
    release.compute(found.settings, "daily", DATES, "first", print, "has failed")
    assert found.totals() == found.expected()
    return found
