"""Which sinks a publication corrects, and why it does not correct others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks import KTable, Pipeline, StreamsBuilder, TimeWindows, TopologyError
from deltaworks.topology.published_sinks import at_publish, cell_names
from deltaworks.topology.row_objects import RowObjects

SEARCH: dict[str, Any] = {"url": "http://search.example.com:9200"}
DATABASE: dict[str, Any] = {"url": "postgresql://db.example.com/shop"}


class Total(msgspec.Struct, frozen=True):
    customer: str
    amount: int


class Unclear(msgspec.Struct, frozen=True):
    note: str | msgspec.UnsetType | None = msgspec.UNSET


def outcome(
    build: Callable[[KTable[str, Total]], object], value: Any = Total
) -> dict[str, tuple[str | None, str | None]]:
    """Sink -> the table with its rows, and why it is not corrected."""

    def topology(builder: StreamsBuilder) -> None:
        build(builder.table("in", key=str, value=value, store="t"))

    nodes = Pipeline(name="p", topology=topology).plan().nodes
    return {each.node.name: (None if each.table is None else each.table.table, each.why) for each in at_publish(nodes)}


def test_a_table_that_is_a_delta_table_too_corrects_its_sinks() -> None:
    def build(totals: KTable[str, Total]) -> None:
        totals.to_search("totals", **SEARCH)
        totals.to_delta("rows", key="who")
        totals.to_jdbc("totals", **DATABASE)
        windows = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))
        hours = totals.to_stream().group_by_key().windowed_by(windows).count(store="hours")
        hours.to_delta("hours")
        hours.to_search("hours-{date}", on_publish="correct", **SEARCH)

    assert outcome(build) == {
        "search-totals": ("rows", None),
        "jdbc-totals": ("rows", None),
        "search-hours-{date}": ("hours", None),
    }


@pytest.mark.parametrize(
    ("build", "sink", "table", "why"),
    [
        (lambda t: t.to_search("i", **SEARCH), "search-i", None, "no to_delta(...) writes the rows of the same table"),
        (
            lambda t: (t.to_delta("d"), t.filter(lambda _, total: total.amount > 0).to_search("i", **SEARCH)),
            "search-i",
            None,
            "no to_delta(...) writes the rows of the same table",
        ),
        (
            lambda t: (t.to_delta("d"), t.to_search("i", on_publish="stale", **SEARCH)),
            "search-i",
            "d",
            "its author says on_publish='stale'",
        ),
        (
            lambda t: (t.to_delta("d"), t.to_jdbc("i", mode="append", **DATABASE)),
            "jdbc-i",
            "d",
            "its rows have no key that says which of them is wrong",
        ),
        (lambda t: (t.to_delta("d"), t.to_files("/data", name="f")), "f", "d", "files are never changed"),
        (
            lambda t: (t.to_stream().to_delta("d"), t.to_stream().to_search("i", **SEARCH)),
            "search-i",
            None,
            "it gets a stream, and only a table knows the newest value of a key",
        ),
    ],
)
def test_others_are_stale(build: Any, sink: str, table: str | None, why: str) -> None:
    assert outcome(build) == {sink: (table, why)}


def test_null_that_may_be_two_values_makes_an_index_stale_but_no_database() -> None:
    def build(notes: Any) -> None:
        notes.to_delta("d")
        notes.to_search("i", **SEARCH)
        notes.to_jdbc("i", **DATABASE)

    assert outcome(build, Unclear) == {
        "search-i": ("d", "null in column 'note' of table 'd' may be None or UNSET"),
        "jdbc-i": ("d", None),
    }


@pytest.mark.parametrize(("of_table", "of_sink"), [(None, ("a", "b")), (("a", "b"), None)])
def test_a_key_of_several_columns_and_one_of_a_single_one_are_not_the_same(of_table: Any, of_sink: Any) -> None:
    def topology(builder: StreamsBuilder) -> None:
        totals = builder.table("in", key=tuple[str, int], value=Total, store="t")
        totals.to_delta("d", key=of_table)
        totals.to_jdbc("i", key=of_sink, **DATABASE)
        totals.to_search("i", **SEARCH)

    found = {each.node.name: each.why for each in at_publish(Pipeline(name="p", topology=topology).plan().nodes)}
    assert found == {"jdbc-i": "its key has other columns than that of table 'd'", "search-i": None}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda t: t.to_search("i", on_publish="correct", **SEARCH),
            "'search-i' has on_publish='correct', but no to_delta",
        ),
        (
            lambda t: (t.to_delta("d"), t.to_jdbc("i", mode="append", on_publish="correct", **DATABASE)),
            "'jdbc-i' has on_publish='correct', but its rows have no key",
        ),
        (lambda t: t.to_search("i", on_publish="perhaps", **SEARCH), "on_publish= of to_search.* is 'perhaps'"),
    ],
)
def test_what_the_author_wants_and_cannot_have_is_refused(build: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        outcome(build)


def test_columns_are_found_whatever_they_are_called() -> None:
    def topology(builder: StreamsBuilder) -> None:
        totals = builder.table("in", key=str, value=Total, store="t")
        totals.to_delta("rows", key="customer")
        totals.to_jdbc("totals", key="id", **DATABASE)

    (sink,) = at_publish(Pipeline(name="p", topology=topology).plan().nodes)
    assert sink.table is not None
    rows: Any = sink.node.sink
    assert cell_names(rows.rows, sink.table) == {"id": "customer", "customer": "customer", "amount": "amount"}
    objects = RowObjects(sink.table)
    assert objects.value({"customer": "ann", "amount": 3}) == Total("ann", 3)
