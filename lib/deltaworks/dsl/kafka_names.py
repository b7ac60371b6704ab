"""Replacements for Kafka Streams' classes that do not exist here, for users who import them by habit."""

from __future__ import annotations

import sys
from importlib import import_module

_FUNCTION = "a function or a lambda does"
_SERDES = "give types (key=str, value=Order), or serdes such as String(), Long(), Json(Order)"

INSTEAD = {
    "Aggregator": _FUNCTION,
    "Branched": "branch(predicate, name='...')",
    "Consumed": "stream(..., key=..., value=..., timestamp_extractor=..., offset_reset=..., name='...')",
    "Grouped": "group_by(..., key=..., value=..., name='...')",
    "Initializer": _FUNCTION,
    "Joined": "join(..., value=..., grace=..., name='...')",
    "KafkaStreams": "Pipeline(...); `deltaworks run` runs it",
    "KeyValue": "a tuple: (key, value)",
    "KeyValueMapper": _FUNCTION,
    "Merger": _FUNCTION,
    "MockFixedKeyProcessorContext": "a topology of one process_values(...) and deltaworks.testing.TopologyTestDriver",
    "MockProcessorContext": "a topology of one process(...) and deltaworks.testing.TopologyTestDriver",
    "Named": "name='...' of each operator",
    "Predicate": _FUNCTION,
    "Printed": "print('label')",
    "Produced": "to(..., key=..., value=..., partitioner=..., name='...')",
    "Reducer": _FUNCTION,
    "Repartitioned": "repartition(partitions=..., partitioner=..., name='...')",
    "Serdes": _SERDES,
    "StreamJoined": "join_stream(..., store='...', name='...')",
    "StreamsConfig": "Pipeline(...)",
    "TableJoined": "join_foreign_key(..., name='...')",
    "TestInputTopic": "from deltaworks.testing import TestInputTopic",
    "TestOutputTopic": "from deltaworks.testing import TestOutputTopic",
    "TestRecord": "from deltaworks.testing import TestRecord",
    "TopologyTestDriver": "from deltaworks.testing import TopologyTestDriver",
    "ValueJoiner": _FUNCTION,
    "ValueMapper": _FUNCTION,
    "ValueTransformerWithKey": "ValueTransformer",
    "WindowedSerdes": "TimeWindowed(serde, timedelta(minutes=5)), SessionWindowed(serde)",
}
"""Class -> what to use instead."""


def missing(name: str, package: str = "deltaworks") -> Exception:
    """The error to raise for a name that a package does not have: `deltaworks` or `deltaworks.testing`.

    `from deltaworks import ...` replaces an `AttributeError` with its own error, without our text. It asks through
    importlib, which tells it apart from `getattr`; that has to get an `AttributeError`.
    """
    instead = INSTEAD.get(name)
    if package != "deltaworks" and instead is None and name in import_module("deltaworks.public").__all__:
        instead = f"from deltaworks import {name}"
    if instead is None:
        return AttributeError(f"module '{package}' has no attribute '{name}'")
    text = f"{package} has no '{name}'. Use instead: {instead}"
    asked_by = sys._getframe(2).f_globals.get("__name__", "")
    return ImportError(text) if "importlib" in asked_by else AttributeError(text)
