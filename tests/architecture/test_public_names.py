"""The public list: a change of it is a change of this test."""

from __future__ import annotations

import deltaworks

PUBLIC = [
    "BranchedKStream",
    "Bytes",
    "ConfigurationError",
    "DeltaworksError",
    "Double",
    "IncompatibleCheckpointError",
    "Integer",
    "Json",
    "KGroupedStream",
    "KStream",
    "KTable",
    "LeaseError",
    "Long",
    "Materialized",
    "Pipeline",
    "Plan",
    "Serde",
    "SerializationError",
    "SessionWindowed",
    "SessionWindowedKStream",
    "SessionWindows",
    "StackError",
    "StreamsBuilder",
    "StreamsError",
    "String",
    "TerminalError",
    "TimeWindowed",
    "TimeWindowedKStream",
    "TimeWindows",
    "Topic",
    "TopologyError",
    "TransientError",
    "Windowed",
]


def test_the_public_names_are_these() -> None:
    assert sorted(deltaworks.__all__) == PUBLIC


def test_every_public_name_exists_and_is_documented() -> None:
    undocumented = [name for name in PUBLIC if not getattr(deltaworks, name).__doc__]

    assert undocumented == []
