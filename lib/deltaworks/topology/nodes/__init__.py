"""The closed union of nodes.

A new operator is sugar in `dsl`, or a node here with its processor in `kernel/processors`. `match` and `assert_never`
make mypy name every place that does not handle it yet.
"""

from deltaworks.topology.nodes.aggregates import (
    CogroupMerge,
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    WindowAggregate,
)
from deltaworks.topology.nodes.call_outs import CallOut
from deltaworks.topology.nodes.foreign_keys import (
    ForeignKeyAnswer,
    ForeignKeyRegister,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    ForeignKeyUpdate,
)
from deltaworks.topology.nodes.grouped_table import TableAggregate, TableGroupBy
from deltaworks.topology.nodes.joins import (
    GlobalTableJoin,
    JoinWindow,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.nodes.repartition import ExchangeSink
from deltaworks.topology.nodes.sinks import CustomSink, DeltaSink, ExtractedTopicSink, TopicSink
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
from deltaworks.topology.nodes.table_joins import TableJoinMerge, TableTableJoin
from deltaworks.topology.nodes.table_operators import TableFilter, TableMapValues, TableToStream, TableTransformValues

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
    | CallOut
    | ExchangeSink
    | TableFilter
    | TableMapValues
    | TableTransformValues
    | TableToStream
    | TableGroupBy
    | TableAggregate
    | TableTableJoin
    | TableJoinMerge
    | StreamAggregate
    | WindowAggregate
    | SlidingAggregate
    | SessionAggregate
    | CogroupMerge
    | StreamTableJoin
    | GlobalTableJoin
    | JoinWindow
    | StreamStreamJoin
    | StreamSelfJoin
    | Suppress
    | ForeignKeySubscribe
    | ForeignKeyRegister
    | ForeignKeyAnswer
    | ForeignKeyUpdate
    | ForeignKeyResolve
    | ProcessorNode
    | FixedKeyProcessorNode
    | TopicSink
    | ExtractedTopicSink
    | DeltaSink
    | CustomSink
)

__all__ = [
    "AnyNode",
    "Branch",
    "CallOut",
    "CogroupMerge",
    "CustomSink",
    "DeltaSink",
    "ExchangeSink",
    "ExtractedTopicSink",
    "Filter",
    "FixedKeyProcessorNode",
    "FlatMap",
    "FlatMapValues",
    "ForeignKeyAnswer",
    "ForeignKeyRegister",
    "ForeignKeyResolve",
    "ForeignKeySubscribe",
    "ForeignKeyUpdate",
    "GlobalTableJoin",
    "JoinWindow",
    "Map",
    "MapValues",
    "Merge",
    "Passthrough",
    "Peek",
    "ProcessorNode",
    "SelectKey",
    "SessionAggregate",
    "SlidingAggregate",
    "Source",
    "StreamAggregate",
    "StreamSelfJoin",
    "StreamStreamJoin",
    "StreamTableJoin",
    "Suppress",
    "TableAggregate",
    "TableFilter",
    "TableGroupBy",
    "TableJoinMerge",
    "TableMapValues",
    "TableSource",
    "TableTableJoin",
    "TableToStream",
    "TableTransformValues",
    "TopicSink",
    "WindowAggregate",
]
