"""The public list: a change of it is a change of this test."""

from __future__ import annotations

import deltaworks

PUBLIC = [
    "Boolean",
    "BranchedKStream",
    "BufferConfig",
    "Bytes",
    "CogroupedKStream",
    "ConfigurationError",
    "ConnectDecimal",
    "ConsumedRecord",
    "DeadLetterRecord",
    "DecimalText",
    "DeltaworksError",
    "Double",
    "EmitStrategy",
    "ErrorContext",
    "ErrorHandler",
    "ErrorPolicy",
    "FailOnInvalidTimestamp",
    "FailedRecord",
    "Float",
    "IncompatibleCheckpointError",
    "Integer",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "LeaseError",
    "ListOf",
    "LogAndSkipOnInvalidTimestamp",
    "Long",
    "Materialized",
    "Pipeline",
    "Plan",
    "RecordContext",
    "Response",
    "Serde",
    "SerializationError",
    "SessionWindowed",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "Short",
    "SlidingWindows",
    "StackError",
    "StreamPartitioner",
    "StreamsBuilder",
    "StreamsError",
    "String",
    "Suppressed",
    "TerminalError",
    "TimeWindowed",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "Timestamp",
    "TimestampExtractor",
    "Topic",
    "TopicNameExtractor",
    "TopologyError",
    "TransientError",
    "UnlimitedWindows",
    "UsePartitionTimeOnInvalidTimestamp",
    "Uuid",
    "Void",
    "WallclockTimestampExtractor",
    "Windowed",
]


def test_the_public_names_are_these() -> None:
    assert sorted(deltaworks.__all__) == PUBLIC


def test_every_public_name_exists_and_is_documented() -> None:
    undocumented = [name for name in PUBLIC if not getattr(deltaworks, name).__doc__]

    assert undocumented == []
