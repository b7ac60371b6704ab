"""Whoever writes the names of Kafka Streams' test utilities is told ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import deltaworks
from deltaworks import StreamsBuilder
from deltaworks.testing import TestRecord, TopologyTestDriver


def driver() -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.to("out")
    stream.group_by_key().count(store="counts")
    return TopologyTestDriver(builder.build())


def given() -> Any:
    return driver().create_input_topic("in")


def written() -> Any:
    return driver().create_output_topic("out")


def counts() -> Any:
    return driver().store("counts")


def record() -> Any:
    return TestRecord("a", 1)


@pytest.mark.parametrize(
    ("of", "name", "hint"),
    [
        (driver, "createInputTopic", "create_input_topic(...)"),
        (driver, "createOutputTopic", "create_output_topic(...)"),
        (driver, "advanceWallClockTime", "advance_wall_clock_time(...)"),
        (driver, "producedTopicNames", "produced_topics"),
        (driver, "getStateStore", "store(name)"),
        (driver, "getAllStateStores", "stores"),
        (driver, "getKeyValueStore", "key_value_store(name, key=..., value=...)"),
        (driver, "get_key_value_store", "key_value_store(name, key=..., value=...)"),
        (
            driver,
            "getTimestampedKeyValueStore",
            "key_value_store(name, key=..., value=...).all_with_timestamps()",
        ),
        (driver, "getWindowStore", "window_store(name, key=..., value=...)"),
        (driver, "getTimestampedWindowStore", "window_store(name, key=..., value=...).all_with_timestamps()"),
        (driver, "getSessionStore", "session_store(name, key=..., value=...)"),
        (driver, "getVersionedKeyValueStore", "versioned_store(name, key=..., value=...)"),
        (driver, "pipeInput", "create_input_topic(topic).pipe_input(key, value)"),
        (driver, "readOutput", "create_output_topic(topic).read_record()"),
        (given, "pipeInput", "pipe_input(...)"),
        (given, "pipeKeyValueList", "pipe_key_value_list(...)"),
        (given, "pipeRecordList", "pipe_record_list(...)"),
        (given, "advanceTime", "advance_time(...)"),
        (written, "readValue", "read_value(...)"),
        (written, "readKeyValuesToList", "read_key_values_to_list(...)"),
        (written, "readKeyValuesToMap", "read_key_values_to_map(...)"),
        (written, "read_records", "read_records_to_list()"),
        (written, "isEmpty", "is_empty"),
        (written, "getQueueSize", "queue_size"),
        (record, "getKey", "key"),
        (record, "getHeaders", "headers"),
        (record, "timestamp", "timestamp_ms; time is the same as a datetime"),
        (record, "getRecordTime", "time"),
        (counts, "prefixScan", "prefix_scan(...)"),
        (counts, "approximateNumEntries", "len(store)"),
        (counts, "putIfAbsent", "access.put_if_absent(...)"),
    ],
)
def test_a_name_of_java_is_answered_with_ours(of: Callable[[], Any], name: str, hint: str) -> None:
    shown = of()

    with pytest.raises(AttributeError) as caught:
        getattr(shown, name)

    first, where, last = str(caught.value).split("\n")
    assert first == f"{type(shown).__name__} has no method '{name}'."
    assert "test_java_names.py:" in where
    assert last == f"    Hint: {hint}"


def test_a_name_that_nothing_replaces_has_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"TopologyTestDriver has no method 'flush'.\n    at .*:\d+$"):
        driver().flush  # type: ignore[attr-defined]  # noqa: B018


def test_a_property_of_a_handle_is_hinted_at_without_parentheses() -> None:
    builder = StreamsBuilder()
    stream: Any = builder.stream("in", key=str, value=str)
    table: Any = builder.table("rows", key=str, value=str, store="rows")

    with pytest.raises(AttributeError, match=r"Hint: queryable_store_name$"):
        table.queryableStoreName()
    with pytest.raises(AttributeError, match=r"Hint: to_table\(store='...'\).queryable_store_name$"):
        stream.queryableStoreName()


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("deltaworks.testing", "MockProcessorContext", "a topology of one process(...)"),
        ("deltaworks.testing", "StreamsBuilder", "from deltaworks import StreamsBuilder"),
        ("deltaworks", "TestRecord", "from deltaworks.testing import TestRecord"),
        ("deltaworks", "TestInputTopic", "from deltaworks.testing import TestInputTopic"),
    ],
)
def test_an_import_of_a_name_that_is_elsewhere_says_where(module: str, name: str, instead: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {module} import {name}", {})

    assert str(caught.value).startswith(f"{module} has no '{name}'. Use instead: {instead}")
    with pytest.raises(AttributeError, match=f"{module} has no '{name}'"):
        getattr(importlib.import_module(module), name)


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Nothing' from 'deltaworks\.testing'"):
        exec("from deltaworks.testing import Nothing", {})
    assert importlib.import_module("deltaworks.testing.recorded")
    assert not hasattr(deltaworks.testing, "nothing")
