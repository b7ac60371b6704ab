"""The table of all operators: which processor a node gets."""

from __future__ import annotations

from typing import assert_never

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors import aggregates, joins, repartition, sinks, sources, stateless, tables
from deltaworks.kernel.processors.suppress import suppress
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.topology.nodes import (
    AnyNode,
    Branch,
    DeltaSink,
    ExtractedTopicSink,
    Filter,
    FlatMap,
    FlatMapValues,
    HopSink,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    SelectKey,
    SessionAggregate,
    Source,
    StreamAggregate,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableMapValues,
    TableSource,
    TableToStream,
    TopicSink,
    WindowAggregate,
)


def processor(node: AnyNode, wiring: Wiring) -> Process:
    """The processor of a node whose children are built."""
    match node:
        case Source() | Merge() | Passthrough():
            return wiring.forward(node.name)
        case TableSource():
            return sources.table_source(node, wiring)
        case Filter():
            return stateless.filtering(node, wiring)
        case Map():
            return stateless.mapping(node, wiring)
        case MapValues():
            return stateless.mapping_values(node, wiring)
        case FlatMap():
            return stateless.flat_mapping(node, wiring)
        case FlatMapValues():
            return stateless.flat_mapping_values(node, wiring)
        case SelectKey():
            return stateless.selecting_key(node, wiring)
        case Peek():
            return stateless.peeking(node, wiring)
        case Branch():
            return stateless.branching(node, wiring)
        case HopSink():
            return repartition.hop_sink(node, wiring)
        case TableFilter() | TableMapValues():
            return tables.table_view(node, wiring)
        case TableToStream():
            return tables.table_to_stream(node, wiring)
        case StreamAggregate():
            return aggregates.stream_aggregate(node, wiring)
        case WindowAggregate():
            return aggregates.window_aggregate(node, wiring)
        case SessionAggregate():
            return aggregates.session_aggregate(node, wiring)
        case StreamTableJoin():
            return joins.stream_table_join(node, wiring)
        case Suppress():
            return suppress(node, wiring)
        case TopicSink():
            return sinks.topic_sink(node, wiring)
        case ExtractedTopicSink():
            return sinks.extracted_topic_sink(node, wiring)
        case DeltaSink():
            return sinks.delta_sink(node, wiring)
        case _:
            assert_never(node)
