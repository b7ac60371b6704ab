"""Each snippet and query of `docs/tables/query.md`, again and again over the tables of a stream that runs.

`tests/spark/test_query_page.py` does the same with Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from deltaworks.cli.app import app
from deltaworks.lakehouse import catalog
from deltaworks.lakehouse.sandbox import Limits
from tests.docs import query_page
from tests.docs.pages import in_project
from tests.support.running_orders import Answers, Rows, RunningOrders, as_rows, running_orders


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOrders]:
    project = tmp_path_factory.mktemp("project")
    queries = [query_page.question(), query_page.command("--at")[-1], *query_page.queries()]
    with in_project(project), running_orders(project, queries) as stream:
        yield stream


@pytest.mark.parametrize("tool", query_page.programs("python"))
def test_each_tool_reads_one_batch_in_all_tables(stream: RunningOrders, tool: str) -> None:
    pytest.importorskip(tool, reason=f"{tool} is not installed, which the snippet for it needs")
    snippet = query_page.programs("python")[tool]

    stream.agree(lambda: {query_page.question(): query_page.answer_of(snippet)})


def sql(*arguments: str) -> Rows:
    """What `deltaworks sql` prints."""
    done = CliRunner().invoke(app, [*arguments, "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return as_rows([list(row.values()) for row in msgspec.json.decode(done.stdout)])


def test_the_command_line_reads_one_batch_in_all_tables(stream: RunningOrders) -> None:
    stream.agree(lambda: {query_page.question(): sql(*query_page.command())})


def test_the_command_line_reads_the_batch_of_a_time(stream: RunningOrders) -> None:
    words = query_page.command("--at")
    at, query = words.index("--at") + 1, words[-1]
    earlier = stream.cut
    assert earlier is not None
    stream.agree(lambda: {query: sql("sql", query)})

    words[at] = (earlier.at + timedelta(milliseconds=1)).isoformat()

    assert sql(*words) == stream.found_at(earlier, query) != sql("sql", query)


def test_the_queries_find_what_one_batch_has(stream: RunningOrders) -> None:
    def ask() -> Answers:
        with catalog.sandbox(stream.tables, Limits()) as sandbox:
            return {query: as_rows(sandbox.answer(query, None).rows) for query in query_page.queries()}

    stream.agree(ask)


def test_tables_have_no_feature_that_a_tool_may_lack(stream: RunningOrders) -> None:
    found = [DeltaTable(stream.tables / name).protocol() for name in catalog.table_names(stream.tables)]

    assert len(found) > 5
    assert {(each.min_reader_version, each.min_writer_version) for each in found} == {(1, 2)}
    assert {(each.reader_features, each.writer_features) for each in found} == {(None, None)}


def test_the_same_question_is_asked_everywhere() -> None:
    """So that it can be compared: the snippets in SQL have the words of the first command."""
    words = " ".join(query_page.question().split())
    for tool in ("duckdb", "polars"):
        assert words in " ".join(query_page.programs("python")[tool].code.split())
    assert words in " ".join(query_page.programs("py")["pyspark"].code.split())
