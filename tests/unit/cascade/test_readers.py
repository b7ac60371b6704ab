"""What a project says about who reads what, and what a replay means for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks.cascade import project
from deltaworks.cascade.readers import OUTSIDE, Readers, readers
from deltaworks.replay.model import Narrowed, ReplayRequest, ReplayState, begin_of
from deltaworks.settings import Settings
from tests.unit.airflow.replays import plan_of

SHOP = """
from deltaworks import Pipeline, StreamsBuilder

def topology(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders", key=str, value=str)
    orders.to_delta("sales")
    orders.to("sold")
    orders.group_by_key().count(store="counts").to_delta("totals")

pipeline = Pipeline(name="shop", topology=topology)
"""
SHIPPING = """
from deltaworks import Pipeline, StreamsBuilder, Topic

def topology(builder: StreamsBuilder) -> None:
    builder.stream("sold", key=str, value=str).to_delta("parcels")

pipeline = Pipeline(name="shipping", topology=topology)
"""
BATCH = """
from datetime import date
from typing import NamedTuple
from deltaworks.batch import BatchJob

class Row(NamedTuple):
    day: date

job = BatchJob(
    name="NAME", pipelines=["PIPELINE"], compute=lambda day, TABLE: TABLE, row=Row, key=["day"], doc="Rows",
    schedule=SCHEDULE,
)
"""
DAG = '''"""Writes a report of sales."""
QUERY = "SELECT count(*) FROM sales JOIN wholesales"
'''


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for folder in ("jobs/batch", "jobs/quality", "dags"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)
    write(tmp_path, "jobs/shop.py", SHOP)
    write(tmp_path, "jobs/shipping.py", SHIPPING)
    write(tmp_path, "jobs/broken.py", "pipeline = 1 / 0\n")
    write(tmp_path, "jobs/quality/shop.py", 'TABLE = "sales"\n')
    write(tmp_path, "dags/report.py", DAG)
    write(tmp_path, "dags/half.py", "def (:\n")
    for name, of, table, schedule in (
        ("daily", "shop", "sales", '"tables"'),
        ("weekly", "shop", "totals", '"0 2 * * SUN"'),
        ("sent", "shipping", "parcels", "None"),
    ):
        text = BATCH.replace("NAME", name).replace("PIPELINE", of).replace("TABLE", table)
        write(tmp_path, f"jobs/batch/{name}.py", text.replace("SCHEDULE", schedule))
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path), "DELTAWORKS_HOME": str(tmp_path / "home")})


def write(root: Path, file: str, text: str) -> None:
    (root / file).write_text(text)


def found(settings: Settings, *tables: str, state: ReplayState | None = None, **request: Any) -> Readers:
    asked = ReplayRequest(pipeline="shop", requested_by="ada", **request)
    return readers(settings, msgspec.structs.replace(plan_of(asked, "r"), tables=tables), state)


DAYS: Any = {"from_ms": begin_of("2026-11-22"), "to_ms": begin_of("2026-11-24")}
BETWEEN = "days 2026-11-22 to 2026-11-24 (exclusive)"


def test_a_plan_says_who_reads_it_in_order_and_what_is_unknown(settings: Settings) -> None:
    broken = "jobs/broken.py fails when it is imported: ZeroDivisionError: division by zero."
    assert found(settings, "sales", **DAYS).lines == [
        "pipeline shipping reads topic sold: a replay sends no results to Kafka, so nothing changes for it",
        "batch job sent reads tables of the pipelines before it: nothing changes for it",
        f"batch job daily reads sales: Airflow computes it again once it is published, {BETWEEN}",
        f"unknown: jobs/broken.py cannot be loaded, so what it reads is unknown: {broken}",
        "unknown: dags/report.py names sales",
        OUTSIDE,
    ]


def test_a_job_by_time_has_to_be_run_again_by_hand_or_with_the_replay(settings: Settings) -> None:
    by_hand = found(settings, "totals", "totals_changelog", hand_over=True)
    assert by_hand.batch_jobs == ["weekly"]
    assert any(
        "not computed again by itself: --cascade, or deltaworks batch weekly, all of its days" in each
        for each in by_hand.lines
    )
    again = found(settings, "totals", "totals_changelog", hand_over=True, cascade=True)
    assert "batch job weekly reads totals: computed again with this replay, all of its days" in again.lines


def test_who_reads_the_corrections_changes_with_them_unless_it_is_a_hand_over(settings: Settings) -> None:
    shop = SHOP.replace("import Pipeline", "import Corrections, Pipeline")
    write(settings.project, "jobs/shop.py", shop.replace("=topology)", '=topology, corrections=Corrections("fixed"))'))
    write(settings.project, "jobs/shipping.py", SHIPPING.replace('"sold"', '"fixed"'))
    changes = "it changes as the corrections arrive that the replay sends"
    assert found(settings, "sales", **DAYS).lines[:2] == [
        f"pipeline shipping reads topic fixed: {changes}",
        f"batch job sent reads tables of the pipelines before it: {changes}",
    ]
    assert found(settings, "sales", hand_over=True).lines[0].endswith("nothing changes for it")


def test_what_is_known_later_counts(settings: Settings) -> None:
    """The tables and days that differ, where only these are published."""
    chosen = Narrowed(tables=("totals",), from_ms=begin_of("2026-11-23"), to_ms=begin_of("2026-11-24"))
    narrowed = found(settings, "sales", "totals", state=ReplayState(narrowed=chosen), **DAYS)
    assert narrowed.batch_jobs == ["weekly"]
    assert narrowed.days == "days 2026-11-23 to 2026-11-24 (exclusive)"


def test_names_are_looked_for_as_words_and_not_in_what_only_documents(settings: Settings) -> None:
    known = project.read(settings).jobs
    assert project.naming(settings, ["sales", "parcels"], known) == [("dags/report.py", "sales")]
    assert project.naming(settings, ["report", "sale"], known) == project.naming(settings, [], known) == []
