"""The closed union of nodes.

A new operator is sugar in `dsl`, or a node here and its processor in `kernel/processors`; `match` and `assert_never`
make mypy name every place that does not know it yet.
"""

from deltaworks.topology.nodes.aggregates import SessionAggregate, StreamAggregate, WindowAggregate
from deltaworks.topology.nodes.joins import StreamTableJoin
from deltaworks.topology.nodes.repartition import HopSink
from deltaworks.topology.nodes.sinks import DeltaSink, ExtractedTopicSink, TopicSink
from deltaworks.topology.nodes.sources import Source, TableSource
from deltaworks.topology.nodes.stateless import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    SelectKey,
)
from deltaworks.topology.nodes.suppress import Suppress
from deltaworks.topology.nodes.tables import TableFilter, TableMapValues, TableToStream

AnyNode = (
    Source
    | TableSource
    | Filter
    | Map
    | MapValues
    | FlatMap
    | FlatMapValues
    | SelectKey
    | Peek
    | Merge
    | Branch
    | Passthrough
    | HopSink
    | TableFilter
    | TableMapValues
    | TableToStream
    | StreamAggregate
    | WindowAggregate
    | SessionAggregate
    | StreamTableJoin
    | Suppress
    | TopicSink
    | ExtractedTopicSink
    | DeltaSink
)

__all__ = [
    "AnyNode",
    "Branch",
    "DeltaSink",
    "ExtractedTopicSink",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "HopSink",
    "Map",
    "MapValues",
    "Merge",
    "Passthrough",
    "Peek",
    "SelectKey",
    "SessionAggregate",
    "Source",
    "StreamAggregate",
    "StreamTableJoin",
    "Suppress",
    "TableFilter",
    "TableMapValues",
    "TableSource",
    "TableToStream",
    "TopicSink",
    "WindowAggregate",
]
