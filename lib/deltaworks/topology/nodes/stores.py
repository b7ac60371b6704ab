"""Which stores a node reads or writes."""

from __future__ import annotations

from typing import assert_never

from deltaworks.topology.nodes import (
    AnyNode,
    Branch,
    DeltaSink,
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
    TableFilter,
    TableMapValues,
    TableSource,
    TableToStream,
    TopicSink,
    WindowAggregate,
)


def stores_of(node: AnyNode) -> tuple[str, ...]:
    """Names of the stores that a node reads or writes."""
    match node:
        case TableSource() | StreamAggregate() | WindowAggregate() | SessionAggregate():
            return (node.store,)
        case StreamTableJoin():
            return (node.table_store,)
        case Source() | TopicSink() | DeltaSink() | HopSink():
            return ()
        case Filter() | Map() | MapValues() | FlatMap() | FlatMapValues() | SelectKey() | Peek():
            return ()
        case Merge() | Branch() | Passthrough():
            return ()
        case TableFilter() | TableMapValues() | TableToStream():
            return ()
        case _:
            assert_never(node)
