"""The public list: a change of it is a change of this test."""

from __future__ import annotations

import deltaworks

PUBLIC = [
    "BranchedKStream",
    "BufferConfig",
    "Bytes",
    "ConfigurationError",
    "ConsumedRecord",
    "DeltaworksError",
    "Double",
    "FailOnInvalidTimestamp",
    "IncompatibleCheckpointError",
    "Integer",
    "Json",
    "KGroupedStream",
    "KStream",
    "KTable",
    "LeaseError",
    "LogAndSkipOnInvalidTimestamp",
    "Long",
    "Materialized",
    "Pipeline",
    "Plan",
    "RecordContext",
    "Serde",
    "SerializationError",
    "SessionWindowed",
    "SessionWindowedKStream",
    "SessionWindows",
    "StackError",
    "StreamPartitioner",
    "StreamsBuilder",
    "StreamsError",
    "String",
    "Suppressed",
    "TerminalError",
    "TimeWindowed",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampExtractor",
    "Topic",
    "TopicNameExtractor",
    "TopologyError",
    "TransientError",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
    "Windowed",
]


def test_the_public_names_are_these() -> None:
    assert sorted(deltaworks.__all__) == PUBLIC


def test_every_public_name_exists_and_is_documented() -> None:
    undocumented = [name for name in PUBLIC if not getattr(deltaworks, name).__doc__]

    assert undocumented == []
