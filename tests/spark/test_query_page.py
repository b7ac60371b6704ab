"""Spark's snippet on `docs/tables/query.md`, and the queries there, over the tables of a stream that runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deltaworks.batch import delta_tables
from deltaworks.settings import Settings
from deltaworks.stack.jars import read_lock
from tests.docs import query_page
from tests.docs.pages import in_project
from tests.support.running_orders import Answers, RunningOrders, as_rows, running_orders

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOrders]:
    project = tmp_path_factory.mktemp("project")
    with in_project(project), running_orders(project, [query_page.question(), *query_page.queries()]) as stream:
        yield stream


@pytest.fixture(scope="module")
def spark(stream: RunningOrders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with Delta's jars, in a JVM of its own; the snippet takes it instead of starting one."""
    settings = Settings.from_environment()
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    with delta_tables.opened(settings, "query-page", tmp_path_factory.mktemp("scratch")) as session:
        gateway: Any = session.sparkContext._gateway
        yield session
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway, SparkContext._jvm = earlier


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_reads_one_batch_in_all_tables(stream: RunningOrders, spark: SparkSession) -> None:
    snippet = query_page.programs("py")["pyspark"]

    def ask() -> Answers:
        found = {query_page.question(): query_page.answer_of(snippet)}
        for query in query_page.queries():  # the views are those of the snippet
            found[query] = as_rows([tuple(row.values()) for row in spark.sql(query).toArrow().to_pylist()])
        return found

    stream.agree(ask, times=2)


def test_the_snippet_names_the_jars_and_settings_that_we_test_with() -> None:
    code = query_page.programs("py")["pyspark"].code
    modules = [str(jar.module) for jar in read_lock(ROOT / "infra", "spark").jars]
    settings = dict(re.findall(r'config\("([^"]+)", "([^"]+)"\)', code))

    assert settings.pop("spark.jars.packages") in modules
    assert settings.items() <= delta_tables.DELTA.items()
