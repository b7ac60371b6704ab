"""The DAG files on the page about Airflow are run as they are, with this project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from deltaworks.airflow.events import CheckEvent, TableEvent
from deltaworks.airflow.options import PipelineOptions

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "airflow.md").read_text()
BATCH_PAGE = (ROOT / "docs" / "tables" / "batch.md").read_text()
SHARED = {f"streams__{name}" for name in ("reconcile", "days", "dead_letters", "maintenance")}
DAG_FILES = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("number", "dags"),
    [
        (0, {"report"}),
        (1, {*SHARED, "orders__stream", "clicks__stream"}),
        (2, {"orders__stream", "clicks__quality"}),
        (4, {"monthly_report"}),
    ],
)
def test_a_dag_file_on_the_page_makes_dags(number: int, dags: set[str]) -> None:
    module: dict[str, Any] = {}

    text = DAG_FILES[number].replace('"/srv/shop"', repr(str(ROOT))).replace('"payments"', '"clicks"')
    exec(text.replace("):\n    ...", ") as dag:\n    ..."), module)

    assert dags <= {value.dag_id for value in module.values() if isinstance(value, DAG)}
    assert len(DAG_FILES) == 5


def test_the_dag_on_the_page_of_batch_jobs_waits_for_a_table() -> None:
    module: dict[str, Any] = {}
    found = re.findall(r"^```py\n(.*?)^```$", BATCH_PAGE, re.MULTILINE | re.DOTALL)

    exec(found[-1].replace('table_asset("enriched_orders")]):', 'table_asset("enriched_orders")]) as dag:'), module)

    assert [asset.uri for asset in module["dag"].schedule] == ["x-deltaworks://tables/enriched_orders"]
    assert [task.task_id for task in module["dag"].tasks] == ["report"]


def test_the_page_names_every_field_of_an_event() -> None:
    fields = {*TableEvent.__struct_fields__, *CheckEvent.__struct_fields__}

    assert [name for name in fields if f"`{name}`" not in BATCH_PAGE] == []


def test_the_page_has_every_option() -> None:
    assert [name for name in PipelineOptions.__annotations__ if f"`{name}`" not in PAGE] == []
