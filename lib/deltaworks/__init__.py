"""deltaworks: Kafka Streams topologies in typed Python, run by Spark, kept in Delta Lake.

Importing this package loads no engine: neither Spark nor Delta Lake nor a Kafka client.
"""

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
