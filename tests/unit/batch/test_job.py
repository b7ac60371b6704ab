"""What a batch job may be, and how a file in `jobs/batch/` is found."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import Doc
from deltaworks.batch import BatchJob, jobs
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

ROOT = Path(__file__).parents[3]


class Sales(msgspec.Struct):
    day: dt.date
    country: Annotated[str, Doc("ISO code.")]
    orders: int
    note: str | None = None
    """What a clerk has written."""


class Undated(msgspec.Struct):
    country: str


class MaybeDated(msgspec.Struct):
    day: dt.date | None


def rows(day: dt.date, enriched_orders: Any, users: Any) -> Any:
    return day, enriched_orders, users


def job(**given: Any) -> BatchJob:
    usual: dict[str, Any] = {"name": "sales", "pipelines": ["orders"], "compute": rows, "row": Sales}
    return BatchJob(**{**usual, "key": ["day", "country"], "doc": "Sales", **given})


def test_it_reads_the_tables_that_its_function_names() -> None:
    day = dt.date(2026, 3, 1)

    assert job().reads == ["enriched_orders", "users"]
    assert job().rows(day, {"users": "U", "enriched_orders": "O"}) == (day, "O", "U")


def test_columns_and_their_meaning_are_those_of_the_row() -> None:
    assert [(column.name, column.is_optional) for column in job().columns] == [
        ("day", False),
        ("country", False),
        ("orders", False),
        ("note", True),
    ]
    assert job().comments == {"country": "ISO code.", "note": "What a clerk has written."}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "../sales"}, "cannot be the name of a Delta table"),
        ({"name": "quality_results"}, "cannot be the name of a Delta table"),
        ({"row": int}, "has no fields"),
        ({"row": Undated}, "has no field `day: date`"),
        ({"row": MaybeDated}, "has no field `day: date`"),
        ({"key": ["country"]}, "is not made of columns with 'day' among them"),
        ({"key": ["day", "city"]}, "columns: day, country, orders, note"),
        ({"pipelines": []}, "pipelines= is empty"),
        ({"compute": lambda orders: orders}, r"compute takes \(orders\)"),
        ({"compute": lambda day: day}, r"compute takes \(day\)"),
        ({"schedule": "nightly"}, "is no cron expression"),
        ({"schedule": "users"}, r"is no cron expression(.|\n)*\['users'\]"),
        ({"schedule": []}, "names no table(.|\n)*enriched_orders, users"),
        ({"schedule": ["user"]}, "waits for user, which it does not read(.|\n)*enriched_orders, users"),
        ({"schedule": ["0 2 * * *", "users"]}, "is a time and tables(.|\n)*either '0 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        job(**given)


@pytest.mark.parametrize(
    ("schedule", "cron", "waits_for"),
    [
        ("0 2 * * *", "0 2 * * *", []),
        ("tables", None, ["enriched_orders", "users"]),
        (["users"], None, ["users"]),
        (None, None, []),
    ],
)
def test_it_runs_by_time_or_when_days_of_tables_close(schedule: Any, cron: str | None, waits_for: list[str]) -> None:
    made = job(schedule=schedule)

    assert (made.cron, made.waits_for) == (cron, waits_for)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "jobs" / "batch").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})


def write(project: Settings, name: str, text: str) -> None:
    (project.jobs / "batch" / f"{name}.py").write_text(text)


def test_files_that_define_no_job_are_no_jobs(project: Settings) -> None:
    write(project, "sales", "job = ...")
    write(project, "shared", "jobs = ...")

    assert jobs.names(project) == ["sales"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job = 1", "defines no job"),
        ("from tests.unit.batch.test_job import job\njob = job(name='other')", "defines a job named 'other'"),
        ("\njob = 1 / 0", r"jobs/batch/sales.py fails when it is imported: .*division(.|\n)*sales.py:2"),
        ("import nothing_of_that_name\njob = 1", "No module named 'nothing_of_that_name'"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(project: Settings, text: str, message: str) -> None:
    write(project, "sales", text)

    with pytest.raises(ConfigurationError, match=message):
        jobs.load(project, "sales")


def test_an_unknown_job_is_told_which_there_are(project: Settings) -> None:
    write(project, "sales", "job = ...")

    with pytest.raises(ConfigurationError, match=r"There is no batch job 'sale'(.|\n)*: sales"):
        jobs.load(project, "sale")


PIPELINE = """
from deltaworks import DeadLetters, Pipeline, StreamsBuilder


def topology(builder: StreamsBuilder) -> None:
    builder.table("users", key=str, value=str, store="users").to_delta("users")
    builder.stream("orders", key=str, value=str).to_delta("enriched_orders")


pipeline = Pipeline(name="orders", topology=topology, dead_letters=DeadLetters(table="orders_dead"), archive=True)
"""
JOB = """
from tests.unit.batch.test_job import Sales, job

def compute(day, {table}): ...

job = job(name="{name}", compute=compute)
"""


@pytest.mark.parametrize("table", ["users", "users_changelog", "enriched_orders", "orders_dead", "orders_archive"])
def test_it_may_read_every_table_of_its_pipelines(project: Settings, table: str) -> None:
    (project.jobs / "orders.py").write_text(PIPELINE)
    write(project, "sales", JOB.format(table=table, name="sales"))

    assert jobs.load(project, "sales").reads == [table]


@pytest.mark.parametrize(
    ("table", "name", "pipeline", "message"),
    [
        ("enriched_order", "sales", PIPELINE, "which orders do not have(.|\n)*did you mean 'enriched_orders'"),
        ("users", "orders_dead", PIPELINE, "has the name of a table of orders"),
        ("users", "sales", None, "reads tables of 'orders', which cannot be loaded: There is no file"),
        ("users", "sales", "\n1 / 0", "cannot be loaded: jobs/orders.py fails when it is imported"),
    ],
)
def test_tables_that_its_pipelines_do_not_write_are_refused_when_it_is_loaded(
    project: Settings, table: str, name: str, pipeline: str | None, message: str
) -> None:
    if pipeline is not None:
        (project.jobs / "orders.py").write_text(pipeline)
    write(project, name, JOB.format(table=table, name=name))

    with pytest.raises(ConfigurationError, match=message):
        jobs.load(project, name)


def test_the_example_is_found() -> None:
    found = jobs.load(Settings.from_environment({"DELTAWORKS_PROJECT": str(ROOT)}), "daily_sales")

    assert found.reads == ["enriched_orders", "inventory_customer_orders"]
    assert found.comments.keys() == {column.name for column in found.columns}
