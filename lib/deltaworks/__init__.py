"""deltaworks: Kafka Streams topologies in typed Python, run by Spark, kept in Delta Lake.

Where to begin, each with an example in its `help`:

- `StreamsBuilder` reads topics and builds; it makes `KStream`, `KTable` and `GlobalKTable`, which have the operators.
- `group_by_key` and `group_by` lead to `KGroupedStream` and `KGroupedTable`, `windowed_by` to windows of time
  (`TimeWindows`, `SlidingWindows`, `UnlimitedWindows`) and to sessions (`SessionWindows`), `cogroup` to aggregates of
  several streams; `JoinWindows` is for joins of streams, `Suppressed` for final results.
- `Processor`, `FixedKeyProcessor`, `ValueTransformer` are operators that you write, `Stores` makes their stores,
  `Topology` connects them node by node.
- Types are given as types (`str`, `Order`) or as serdes (`Long()`, `Json(Order)`).
- `Pipeline` is a topology with a name and the way it runs; `deltaworks.testing.TopologyTestDriver` runs it in a test.

Importing this package loads no engine: neither Spark nor Delta Lake nor a Kafka client.
"""

from typing import TYPE_CHECKING, NoReturn

from deltaworks.dsl import kafka_names
from deltaworks.dsl.branched import BranchedKStream
from deltaworks.dsl.builder import StreamsBuilder
from deltaworks.dsl.cogrouped import CogroupedKStream, SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.grouped import KGroupedStream
from deltaworks.dsl.grouped_table import KGroupedTable
from deltaworks.dsl.kstream import KStream
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialized import Materialized
from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.dsl.state_stores import StoreBuilder, Stores
from deltaworks.dsl.topology import Topology
from deltaworks.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from deltaworks.errors import (
    ConfigurationError,
    DeltaworksError,
    IncompatibleCheckpointError,
    LeaseError,
    SerializationError,
    StackError,
    StreamsError,
    TerminalError,
    TopologyError,
    TransientError,
)
from deltaworks.serdes import (
    Boolean,
    Bytes,
    ConnectDecimal,
    DecimalText,
    Double,
    Float,
    Integer,
    Json,
    ListOf,
    Long,
    Serde,
    SessionWindowed,
    Short,
    String,
    Timestamp,
    TimeWindowed,
    Uuid,
    Void,
    Windowed,
)
from deltaworks.topology.columns import DecimalDigits
from deltaworks.topology.error_handlers import (
    DeadLetterRecord,
    ErrorAction,
    ErrorContext,
    ErrorHandler,
    ErrorPolicy,
    FailedRecord,
    Response,
)
from deltaworks.topology.join_windows import JoinWindows
from deltaworks.topology.processors import (
    Cancellable,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    PunctuationType,
    Punctuator,
    Record,
    RecordMetadata,
    ValueTransformer,
)
from deltaworks.topology.routing import RecordContext, StreamPartitioner, TopicNameExtractor
from deltaworks.topology.stages import Plan
from deltaworks.topology.state_stores import (
    KeyValueStore,
    OrderedBytes,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)
from deltaworks.topology.suppressed import BufferConfig, Suppressed
from deltaworks.topology.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    Timestamps,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from deltaworks.topology.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "Boolean",
    "BranchedKStream",
    "BufferConfig",
    "Bytes",
    "Cancellable",
    "CogroupedKStream",
    "ConfigurationError",
    "ConnectDecimal",
    "ConsumedRecord",
    "DeadLetterRecord",
    "DecimalDigits",
    "DecimalText",
    "DeltaworksError",
    "Double",
    "EmitStrategy",
    "ErrorAction",
    "ErrorContext",
    "ErrorHandler",
    "ErrorPolicy",
    "FailOnInvalidTimestamp",
    "FailedRecord",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Float",
    "GlobalKTable",
    "IncompatibleCheckpointError",
    "Integer",
    "JoinWindows",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "LeaseError",
    "ListOf",
    "LogAndSkipOnInvalidTimestamp",
    "Long",
    "Materialized",
    "OrderedBytes",
    "Pipeline",
    "Plan",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Response",
    "Serde",
    "SerializationError",
    "SessionStore",
    "SessionWindowed",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "Short",
    "SlidingWindows",
    "StackError",
    "StoreBuilder",
    "Stores",
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
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Timestamps",
    "Topic",
    "TopicNameExtractor",
    "Topology",
    "TopologyError",
    "TransientError",
    "UnlimitedWindows",
    "UsePartitionTimeOnInvalidTimestamp",
    "Uuid",
    "ValueAndTimestamp",
    "ValueTransformer",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "Void",
    "WallclockTimestampExtractor",
    "WindowStore",
    "Windowed",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise kafka_names.missing(name)
