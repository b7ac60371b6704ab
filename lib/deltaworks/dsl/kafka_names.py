"""Replacements for Kafka Streams' classes that do not exist here, for users who import them by habit."""

from __future__ import annotations

import difflib
import sys
from importlib import import_module

_FUNCTION = "a function or a lambda does"
_PROCESSOR = "a class: stream.process(Name); with arguments, process(lambda: Name(...))"
_HANDLER = "a function: Pipeline(..., deserialization_handler=..., processing_handler=..., production_handler=...)"
_ITERATOR = "Python's own: for key, value in store.all()"
_SERDES = "give types (key=str, value=Order), or serdes such as String(), Long(), Json(Order)"

INSTEAD = {
    "Aggregator": _FUNCTION,
    "AutoOffsetReset": "offset_reset='earliest'",
    "Branched": "branch(predicate, name='...')",
    "ConnectedStoreProvider": "an attribute stores of the processor's class",
    "Consumed": "stream(..., key=..., value=..., timestamp_extractor=..., offset_reset=..., name='...')",
    "ContextualFixedKeyProcessor": "FixedKeyProcessor, which keeps its context",
    "ContextualProcessor": "Processor, which keeps its context",
    "DeserializationExceptionHandler": _HANDLER,
    "Deserializer": _SERDES,
    "FixedKeyProcessorSupplier": _PROCESSOR,
    "ForeachAction": _FUNCTION,
    "Grouped": "group_by(..., key=..., value=..., name='...')",
    "Initializer": _FUNCTION,
    "Joined": "join(..., value=..., grace=..., name='...')",
    "KafkaStreams": "Pipeline(...); `deltaworks run` runs it",
    "KeyValue": "a tuple: (key, value)",
    "KeyValueBytesStoreSupplier": "Stores.key_value('name', key=str, value=int)",
    "KeyValueIterator": _ITERATOR,
    "KeyValueMapper": _FUNCTION,
    "LogAndContinueExceptionHandler": "Pipeline(..., on_error='continue')",
    "LogAndFailExceptionHandler": "Pipeline(..., on_error='fail'), the default",
    "Merger": _FUNCTION,
    "MockFixedKeyProcessorContext": "a topology of one process_values(...) and deltaworks.testing.TopologyTestDriver",
    "MockProcessorContext": "a topology of one process(...) and deltaworks.testing.TopologyTestDriver",
    "Named": "name='...' of each operator",
    "Predicate": _FUNCTION,
    "Printed": "print('label')",
    "ProcessingExceptionHandler": _HANDLER,
    "ProcessorSupplier": _PROCESSOR,
    "Produced": "to(..., key=..., value=..., partitioner=..., name='...')",
    "ProductionExceptionHandler": _HANDLER,
    "ReadOnlyKeyValueStore": "KeyValueStore",
    "ReadOnlySessionStore": "SessionStore",
    "ReadOnlyWindowStore": "WindowStore",
    "Reducer": _FUNCTION,
    "Repartitioned": "repartition(partitions=..., partitioner=..., name='...')",
    "Serdes": _SERDES,
    "Serializer": _SERDES,
    "SessionBytesStoreSupplier": "Stores.session('name', key=str, value=int, retention=timedelta(days=1))",
    "StateStore": "Stores.custom('name', factory)",
    "StreamJoined": "join(..., store='...', name='...')",
    "StreamsConfig": "Pipeline(...)",
    "TableJoined": "join(..., foreign_key=..., name='...')",
    "TestInputTopic": "from deltaworks.testing import TestInputTopic",
    "TestOutputTopic": "from deltaworks.testing import TestOutputTopic",
    "TestRecord": "from deltaworks.testing import TestRecord",
    "TopologyDescription": "the text of builder.build().describe()",
    "TopologyTestDriver": "from deltaworks.testing import TopologyTestDriver",
    "Transformer": "Processor",
    "TransformerSupplier": _PROCESSOR,
    "ValueJoiner": _FUNCTION,
    "ValueJoinerWithKey": _FUNCTION,
    "ValueMapper": _FUNCTION,
    "ValueMapperWithKey": _FUNCTION,
    "ValueTransformerSupplier": _PROCESSOR,
    "ValueTransformerWithKey": "ValueTransformer",
    "ValueTransformerWithKeySupplier": _PROCESSOR,
    "WindowBytesStoreSupplier": "Stores.window('name', key=str, value=int, window_size=..., retention=...)",
    "WindowStoreIterator": _ITERATOR,
    "WindowedSerdes": "TimeWindowed(serde, timedelta(minutes=5)), SessionWindowed(serde)",
}
"""Class -> what to use instead."""


def missing(name: str, package: str = "deltaworks") -> Exception:
    """The error to raise for a name that a package does not have: `deltaworks` or `deltaworks.testing`.

    `from deltaworks import ...` replaces an `AttributeError` with its own error, without our text. It asks through
    importlib, which tells it apart from `getattr`; that has to get an `AttributeError`.
    """
    public = import_module("deltaworks.public").__all__
    instead = INSTEAD.get(name)
    if package != "deltaworks" and instead is None and name in public:
        instead = f"from deltaworks import {name}"
    if instead is not None:
        text = f"{package} has no '{name}'. Use instead: {instead}"
    elif near := difflib.get_close_matches(name, import_module(package).__all__, n=1):
        text = f"{package} has no '{name}'. Did you mean: '{near[0]}'?"
    else:
        return AttributeError(f"module '{package}' has no attribute '{name}'")
    asked_by = sys._getframe(2).f_globals.get("__name__", "")
    return ImportError(text) if "importlib" in asked_by else AttributeError(text)
