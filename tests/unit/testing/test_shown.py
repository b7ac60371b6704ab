"""What topics, stores, tables and the driver show in a REPL and in a notebook: limited, escaped, changing nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import deltaworks
from deltaworks import JoinWindows, Materialized, Plan, SessionWindows, StreamsBuilder, TimeWindows
from deltaworks.lakehouse.columns import ArrowColumn
from deltaworks.testing import AppendTable, TopologyTestDriver
from deltaworks.testing.shown import LIMIT, entries, html_table, items

SECOND = timedelta(seconds=1)


class Order(msgspec.Struct, frozen=True):
    amount: int
    note: str = ""


def plan() -> Plan:
    builder = StreamsBuilder("shop")
    orders = builder.stream("orders", key=str, value=Order)
    orders.to("copies")
    orders.to_delta("orders")
    orders.to_table(store=Materialized("last", history=SECOND)).to_delta("last")
    grouped = orders.group_by_key()
    grouped.count(store="counts")
    windows = TimeWindows(size=SECOND, grace=timedelta(0))
    grouped.windowed_by(windows).count(store="seconds").to_delta("seconds")
    grouped.windowed_by(SessionWindows(gap=SECOND, grace=timedelta(0))).count(store="visits")
    near = JoinWindows(difference=SECOND, grace=timedelta(0))
    orders.join(orders, lambda one, _: one, near, store="pairs")
    return builder.build()


def driver(*orders: tuple[str, Order]) -> TopologyTestDriver:
    shop = TopologyTestDriver(plan())
    shop.create_input_topic("orders").pipe_key_value_list(orders)
    return shop


ANN, BOB = ("ann", Order(5)), ("bob", Order(7, "<b>&"))


def test_the_driver_shows_its_topology_counters_and_clock() -> None:
    shop = TopologyTestDriver(plan(), initial_wall_clock=datetime(2026, 1, 31, tzinfo=UTC))
    shop.create_input_topic("orders").pipe_key_value_list([ANN, (None, Order(1))])

    text = repr(shop)

    assert text.startswith(
        "TopologyTestDriver of Plan 'shop': 1 stage; reads orders; writes topic copies, table orders"
    )
    assert text.endswith("; 2 records in, 6 dropped, 0 late; wall clock at 2026-01-31 00:00:00+00:00")


def test_topics_show_their_types_and_how_much_there_is_to_read() -> None:
    shop = driver()
    orders = shop.create_input_topic("orders", start=datetime(2026, 1, 31, tzinfo=UTC), advance=SECOND)
    copies = shop.create_output_topic("copies")

    assert repr(orders) == "TestInputTopic[str, Order] 'orders', clock at 2026-01-31 00:00:00+00:00"
    orders.pipe_key_value_list([ANN, BOB])
    assert repr(orders) == "TestInputTopic[str, Order] 'orders', clock at 2026-01-31 00:00:02+00:00"
    copies.read_record()
    assert repr(copies) == "TestOutputTopic[str, Order] 'copies': 1 records to read, 1 read"


def test_a_notebook_shows_the_unread_records_of_a_topic_without_reading_them() -> None:
    copies = driver(ANN, BOB).create_output_topic("copies")
    copies.read_record()

    shown: Any = copies
    assert shown._repr_html_() == (
        "<p>TestOutputTopic[str, Order] &#x27;copies&#x27;: 1 records to read, 1 read</p>"
        "<table><thead><tr><th>key</th><th>value</th><th>time</th></tr></thead><tbody>"
        "<tr><td>bob</td><td>Order(amount=7, note=&#x27;&lt;b&gt;&amp;&#x27;)</td>"
        "<td>1970-01-01 00:00:00+00:00</td></tr></tbody></table>"
    )
    assert copies.queue_size == 1


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("counts", "TestKeyValueStore[str, int] 'counts': {'ann': 1, 'bob': 1}"),
        ("seconds", "TestWindowStore[str, int] 'seconds': {[ann@0/1000]: 1, [bob@0/1000]: 1}"),
        ("visits", "TestSessionStore[str, int] 'visits': {[ann@0/0]: 1, [bob@0/0]: 1}"),
        ("last", "TestVersionedStore[str, Order] 'last': {'ann': Order(amount=5, note=''), 'bob': Order(amount=7, n"),
        ("pairs-this-join-store", "TestJoinStore[str, Order] 'pairs-this-join-store': {'ann at 0': Order(amount=5, no"),
    ],
)
def test_a_store_shows_its_entries(store: str, text: str) -> None:
    shop = driver(ANN, BOB)

    assert repr(shop.store(store)).startswith(text)
    assert shop.store(store)._repr_html_().startswith(f"<p>{text.partition(':')[0].replace(chr(39), '&#x27;')}</p>")


def test_a_store_in_a_notebook_is_a_table_of_keys_and_values() -> None:
    assert driver(("<a>", Order(1))).store("counts")._repr_html_() == (
        "<p>TestKeyValueStore[str, int] &#x27;counts&#x27;</p>"
        "<table><thead><tr><th>key</th><th>value</th></tr></thead>"
        "<tbody><tr><td>&lt;a&gt;</td><td>1</td></tr></tbody></table>"
    )


def test_tables_show_their_rows() -> None:
    shop = driver(ANN, BOB, ("ann", Order(6)))

    assert repr(driver(ANN, BOB).table("orders")) == (
        "AppendTable 'orders', 2 rows: [Order(amount=5, note=''), Order(amount=7, note='<b>&')]"
    )
    assert repr(shop.table("last")) == (
        "KeyedTable 'last', 2 rows, 3 changes: {'ann': Order(amount=6, note=''), 'bob': Order(amount=7, note='<b>&')}"
    )
    assert repr(shop.table("seconds")) == "WindowTable 'seconds', 2 rows: {[ann@0/1000]: 2, [bob@0/1000]: 1}"
    assert repr(AppendTable()) == "AppendTable, 0 rows: []"


def test_a_table_in_a_notebook_has_the_columns_of_the_delta_table() -> None:
    shop = driver(BOB)

    assert shop.table("orders")._repr_html_().startswith("<p>AppendTable &#x27;orders&#x27;, 1 rows</p><table><thead>")
    for table in ("orders", "last", "seconds"):
        (row,) = shop.table(table).to_dicts()
        html = shop.table(table)._repr_html_()
        assert "".join(f"<th>{column}</th>" for column in row) in html
        assert "<td>bob</td>" in html
    assert "<td>&lt;b&gt;&amp;</td>" in shop.table("last")._repr_html_()


def test_an_empty_table_shows_that_it_is_empty() -> None:
    for table in ("orders", "last", "seconds"):
        assert ", 0 rows" in driver().table(table)._repr_html_()


def test_only_the_first_entries_are_taken_and_shown() -> None:
    taken: list[int] = []

    def endless() -> Any:
        for number in range(10_000):
            taken.append(number)
            yield number, f"<{number}>"

    assert entries(endless()).endswith(f"{LIMIT - 1}: '<{LIMIT - 1}>', ...}}")
    assert items(number for number, _ in endless()).endswith(f", {LIMIT - 1}, ...]")
    html = html_table("all", ("<key>", "value"), endless())
    assert html.count("<tr>") == LIMIT + 1
    assert f"<td>&lt;{LIMIT - 1}&gt;</td></tr></tbody></table><p>The first {LIMIT} rows are shown.</p>" in html
    assert "<th>&lt;key&gt;</th>" in html
    assert len(taken) == 3 * (LIMIT + 1)
    assert entries([(1, 2)]) == "{1: 2}"


def test_a_large_table_converts_only_the_rows_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = driver(*((f"key {number}", Order(number)) for number in range(LIMIT + 30)))
    converted: list[int] = []
    array = ArrowColumn.array

    def counted(self: ArrowColumn, objects: Sequence[Any]) -> Any:
        converted.append(len(objects))
        return array(self, objects)

    monkeypatch.setattr(ArrowColumn, "array", counted)

    for table in ("orders", "last", "seconds"):
        assert f"The first {LIMIT} rows are shown." in shop.table(table)._repr_html_()

    assert set(converted) == {LIMIT + 1}


def test_long_cells_are_cut() -> None:
    assert f"<td>{'x' * 97}...</td>" in html_table("", ("text",), [("x" * 101,)])
    assert f"<td>{'x' * 100}</td>" in html_table("", ("text",), [("x" * 100,)])


def test_a_repr_loads_no_arrow() -> None:
    code = """
import sys
from deltaworks import StreamsBuilder
from deltaworks.testing import TopologyTestDriver
builder = StreamsBuilder()
builder.table("in", key=str, value=str, store="rows").to_delta("rows")
driver = TopologyTestDriver(builder.build())
driver.create_input_topic("in").pipe_input("a", "b")
print(repr(driver), driver.table("rows"), driver.stores, driver.store("rows")._repr_html_())
print("pyarrow" in sys.modules)
"""
    path = str(Path(deltaworks.__file__).parents[1])
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "False", run.stderr
