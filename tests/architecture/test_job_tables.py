"""The tables of the jobs speak of their domain, and say what they hold."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas

JOBS = sorted(file.stem for file in (Path(__file__).parents[2] / "jobs").glob("*.py") if file.stem != "__init__")


def tables(job: str) -> list[TableSchema]:
    pipeline = importlib.import_module(f"jobs.{job}").pipeline
    plan = pipeline.plan()
    return list(plan_schemas(plan.tables, pipeline.dead_letters.table, pipeline.archives(plan).tables))


def test_all_jobs_are_here() -> None:
    assert " ".join(JOBS) == "ads clicks customers deliveries enrichment fraud inventory invoices orders wordcount"


@pytest.mark.parametrize("job", JOBS)
def test_no_table_has_a_column_called_key_or_value(job: str) -> None:
    of_results = [table for table in tables(job) if table.role not in (Role.DEAD_LETTERS, Role.ARCHIVE)]

    assert of_results
    assert {table.name: {"key", "value"} & {*table.arrow.names} for table in of_results} == {
        table.name: set() for table in of_results
    }


@pytest.mark.parametrize("job", JOBS)
def test_each_table_has_a_description_and_each_column_a_comment(job: str) -> None:
    silent = {table.name: [name for name in table.arrow.names if name not in table.comments] for table in tables(job)}

    assert silent == {table.name: [] for table in tables(job)}
    assert all(table.description for table in tables(job))
    assert all(re.search(r"\w", text) for table in tables(job) for text in table.comments.values())
