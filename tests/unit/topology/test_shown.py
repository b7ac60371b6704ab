"""What a plan shows in a REPL and in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks import Plan, RecordContext, StreamsBuilder


def plan() -> Plan:
    builder = StreamsBuilder("shop")
    orders = builder.stream("orders", "returns", key=str, value=str)
    orders.to("copies")
    orders.to_delta("orders")
    orders.group_by(lambda _, word: word, key=str, name="by-word").count(store="counts").to_stream().to("counts")
    return builder.build()


def topic_of(key: str, value: str, context: RecordContext) -> str:
    return value


def test_a_plan_says_what_it_reads_writes_and_keeps() -> None:
    assert repr(plan()) == (
        "Plan 'shop': 2 stages; reads orders, returns; writes topic copies, table orders, topic counts; keeps counts"
    )


def test_global_stores_patterns_and_computed_topics_are_named_too() -> None:
    builder = StreamsBuilder("shop")
    builder.global_table("cities", key=str, value=str, store="cities")
    builder.stream(pattern="orders-.*", key=str, value=str).to_extracted(topic_of)

    assert repr(builder.build()) == (
        "Plan 'shop': 1 stage; reads pattern orders-.*, cities; writes topics by record; keeps cities"
    )


def test_a_notebook_gets_the_flowchart_and_the_description_but_no_html() -> None:
    shown: Any = plan()

    assert shown._repr_mimebundle_() == {"text/vnd.mermaid": shown.mermaid(), "text/plain": shown.describe()}
    assert shown._repr_mimebundle_(include={"text/plain"}, exclude=None)["text/plain"].startswith("Topologies:")


def test_a_repr_makes_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = plan()
    for heavy in ("describe", "mermaid", "fingerprint"):
        monkeypatch.setattr(Plan, heavy, lambda self: pytest.fail("too much for a repr"))

    assert repr(shop).startswith("Plan 'shop'")
