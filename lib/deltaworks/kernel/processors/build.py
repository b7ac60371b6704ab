"""The table of all operators: which processor a node gets."""

from __future__ import annotations

from typing import assert_never

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors import (
    aggregates,
    call_outs,
    foreign_keys,
    grouped_table,
    joins,
    processor_api,
    repartition,
    sessions,
    sinks,
    sliding,
    sources,
    stateless,
    stream_joins,
    table_joins,
    table_operators,
    transformers,
    windowed_aggregates,
)
from deltaworks.kernel.processors.suppress import suppress
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.topology.nodes import (
    AnyNode,
    Branch,
    CallOut,
    CogroupMerge,
    CustomSink,
    DeltaSink,
    ExchangeSink,
    ExtractedTopicSink,
    Filter,
    FixedKeyProcessorNode,
    FlatMap,
    FlatMapValues,
    ForeignKeyAnswer,
    ForeignKeyRegister,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    ForeignKeyUpdate,
    GlobalTableJoin,
    JoinWindow,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    ProcessorNode,
    SelectKey,
    SessionAggregate,
    SlidingAggregate,
    Source,
    StreamAggregate,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    Suppress,
    TableAggregate,
    TableFilter,
    TableGroupBy,
    TableJoinMerge,
    TableMapValues,
    TableSource,
    TableTableJoin,
    TableToStream,
    TableTransformValues,
    TopicSink,
    WindowAggregate,
)


def processor(node: AnyNode, wiring: Wiring) -> Process:
    """The processor of a node whose children are built."""
    match node:
        case Source():
            return sources.source(node, wiring)
        case Merge() | Passthrough():
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
        case CallOut():
            return call_outs.calling_out(node, wiring)
        case ExchangeSink():
            return repartition.exchange_sink(node, wiring)
        case TableFilter() | TableMapValues():
            return table_operators.table_view(node, wiring)
        case TableTransformValues():
            return transformers.table_transform_values(node, wiring)
        case TableToStream():
            return table_operators.table_to_stream(node, wiring)
        case TableGroupBy():
            return grouped_table.table_group_by(node, wiring)
        case TableAggregate():
            return grouped_table.table_aggregate(node, wiring)
        case TableTableJoin():
            return table_joins.table_table_join(node, wiring)
        case TableJoinMerge():
            return table_joins.table_join_merge(node, wiring)
        case StreamAggregate():
            return aggregates.stream_aggregate(node, wiring)
        case WindowAggregate():
            return windowed_aggregates.window_aggregate(node, wiring)
        case SlidingAggregate():
            return sliding.sliding_aggregate(node, wiring)
        case SessionAggregate():
            return sessions.session_aggregate(node, wiring)
        case CogroupMerge():
            return aggregates.cogroup_merge(node, wiring)
        case StreamTableJoin():
            return joins.stream_table_join(node, wiring)
        case GlobalTableJoin():
            return joins.global_table_join(node, wiring)
        case JoinWindow():
            return stream_joins.join_window(node, wiring)
        case StreamStreamJoin():
            return stream_joins.stream_stream_join(node, wiring)
        case StreamSelfJoin():
            return stream_joins.stream_self_join(node, wiring)
        case ForeignKeySubscribe():
            return foreign_keys.subscribe(node, wiring)
        case ForeignKeyRegister():
            return foreign_keys.register(node, wiring)
        case ForeignKeyAnswer():
            return foreign_keys.answer(node, wiring)
        case ForeignKeyUpdate():
            return foreign_keys.update(node, wiring)
        case ForeignKeyResolve():
            return foreign_keys.resolve(node, wiring)
        case Suppress():
            return suppress(node, wiring)
        case ProcessorNode() | FixedKeyProcessorNode():
            return processor_api.processing(node, wiring)
        case TopicSink():
            return sinks.topic_sink(node, wiring)
        case ExtractedTopicSink():
            return sinks.extracted_topic_sink(node, wiring)
        case DeltaSink():
            return sinks.delta_sink(node, wiring)
        case CustomSink():
            return sinks.custom_sink(node, wiring)
        case _:
            assert_never(node)
