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
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        job(**given)


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


def test_the_example_is_found() -> None:
    found = jobs.load(Settings.from_environment({"DELTAWORKS_PROJECT": str(ROOT)}), "daily_sales")

    assert found.reads == ["enriched_orders", "inventory_customer_orders"]
    assert found.comments.keys() == {column.name for column in found.columns}
