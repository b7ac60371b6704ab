"""The page with all tables of a project: from the tables that exist, else from the code."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.cli import tables_page
from deltaworks.control import jobs
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.settings import Settings

SHOP = """
from typing import Annotated
import msgspec
from deltaworks import DeadLetters, Doc, Pipeline, StreamsBuilder

class Order(msgspec.Struct):
    amount: Annotated[int, Doc("In cents | of euros, <gross>.")]
    lines: list[str]

def shop(builder: StreamsBuilder) -> None:
    builder.stream("raw", key=str, value=Order).to_delta("page_orders", key="buyer", doc="Every order")

pipeline = Pipeline(name="page_shop", topology=shop, archive=True, dead_letters=DeadLetters(table="page_letters"))
"""
SALES = """
from datetime import date
import msgspec
from deltaworks.batch import BatchJob

class Sales(msgspec.Struct):
    day: date
    orders: int

job = BatchJob(
    name="page_sales",
    pipelines=["page_shop"],
    compute=lambda day, page_orders: None,
    row=Sales,
    key=["day"],
    doc="Sold",
)
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    for name, code in {"page_shop": SHOP, "batch/page_sales": SALES}.items():
        (file := tmp_path / "jobs" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(code))
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    before, path = dict(sys.modules), list(sys.path)
    for module in [name for name in sys.modules if name.partition(".")[0] == "jobs"]:
        del sys.modules[module]
    yield Settings.from_environment()
    for module in [name for name in sys.modules if name.partition(".")[0] == "jobs"]:
        del sys.modules[module]
    sys.modules.update({name: module for name, module in before.items() if name.partition(".")[0] == "jobs"})
    sys.path[:] = path


def page(settings: Settings) -> str:
    return tables_page.page(tables_page.found(settings))


def test_without_tables_it_is_from_the_code_and_leaves_nothing_behind(settings: Settings) -> None:
    text = page(settings)

    assert re.findall(r"^##+ (.+)$", text, re.MULTILINE) == [
        *("Pipeline `page_shop`", "page_letters", "page_orders", "raw_archive"),
        *("Batch jobs", "page_sales"),
        *("Tables of deltaworks", "catalog", "quality_failures", "quality_results"),
    ]
    assert "| `amount` | `long` | In cents \\| of euros, &lt;gross>. |" in text
    assert "| `lines` | `array<string>` |  |" in text
    assert "- Key: `buyer`" in text and "Every order.\n" in text
    assert "SELECT * FROM page_orders ORDER BY timestamp DESC LIMIT 10" in text
    assert "- One row is: a day\n" in text and "Sold.\n" in text
    assert not settings.home.exists()


def test_a_table_that_exists_describes_itself(settings: Settings) -> None:
    pipeline = jobs.load(settings, "page_shop")
    committer = TableCommitter(settings.tables, "page_shop", "query", pipeline.plan().tables)
    committer.open(1)
    committer.close()
    assert page(settings) == page(settings)
    DeltaTable(settings.tables / "page_orders").alter.set_column_metadata("lines", {"comment": "What was bought."})
    write_deltalake(settings.tables / "theirs", pa.table({"a": [1]}))

    text = page(settings)

    assert "| `lines` | `array<string>` | What was bought. |" in text
    assert "## Other tables" in text and "### theirs" in text
    assert str(settings.home) not in text


def test_it_says_the_same_of_a_table_before_and_after_it_is_made(settings: Settings) -> None:
    before = page(settings)
    pipeline = jobs.load(settings, "page_shop")
    plan = pipeline.plan()
    committer = TableCommitter(
        settings.tables, "page_shop", "query", plan.tables, "page_letters", archives=pipeline.archives(plan).tables
    )
    committer.open(1)
    committer.close()

    assert page(settings) == before


def test_a_table_that_the_code_does_not_name_any_more_is_listed_as_such(settings: Settings) -> None:
    pipeline = jobs.load(settings, "page_shop")
    committer = TableCommitter(settings.tables, "page_shop", "query", pipeline.plan().tables, "page_former")
    committer.open(1)
    committer.close()

    assert "## Pipeline `page_shop`, formerly" in page(settings)
