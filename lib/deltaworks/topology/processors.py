"""Processors that users write: the record they get, the context they work with, punctuation.

`KStream.process`, `KStream.process_values` and `Topology.add_processor` add a processor to a topology; its stores are
in `state_stores.py`; `kernel/processors/processor_api.py` runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, overload

import msgspec

from deltaworks.topology.records import Headers
from deltaworks.topology.state_stores import DeclaredStore

K = TypeVar("K", covariant=True)
V = TypeVar("V", covariant=True)
KIn = TypeVar("KIn", contravariant=True)
VIn = TypeVar("VIn", contravariant=True)
KOut = TypeVar("KOut", covariant=True)
VOut = TypeVar("VOut", covariant=True)
KSent = TypeVar("KSent", contravariant=True)
VSent = TypeVar("VSent", contravariant=True)
KR = TypeVar("KR")
VR = TypeVar("VR")
S = TypeVar("S")


class Record(msgspec.Struct, Generic[K, V], frozen=True):
    """A record as a `Processor` sees and forwards it; the `with_` methods make changed copies.

    Source: `api.Record`; differs: no.

    >>> Record("ann", 1, 1_000).with_value("one")
    Record(key='ann', value='one', timestamp_ms=1000, headers=())
    """

    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()

    def __post_init__(self) -> None:
        if self.timestamp_ms < 0:
            raise _negative(self.timestamp_ms)

    def with_key(self, key: KR) -> Record[KR, V]:
        """The same with another key."""
        return Record(key, self.value, self.timestamp_ms, self.headers)

    def with_value(self, value: VR) -> Record[K, VR]:
        """The same with another value."""
        return Record(self.key, value, self.timestamp_ms, self.headers)

    def with_timestamp(self, timestamp_ms: int) -> Record[K, V]:
        """The same at another time, in milliseconds since the epoch; a negative one is refused."""
        return Record(self.key, self.value, timestamp_ms, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """The same with other headers."""
        return Record(self.key, self.value, self.timestamp_ms, headers)


class FixedKeyRecord(msgspec.Struct, Generic[K, V], frozen=True):
    """A record as a `FixedKeyProcessor` sees and forwards it: everything but the key may be changed.

    Source: `api.FixedKeyRecord`; differs: no.
    """

    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()

    def __post_init__(self) -> None:
        if self.timestamp_ms < 0:
            raise _negative(self.timestamp_ms)

    def with_value(self, value: VR) -> FixedKeyRecord[K, VR]:
        """The same with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp_ms, self.headers)

    def with_timestamp(self, timestamp_ms: int) -> FixedKeyRecord[K, V]:
        """The same at another time, in milliseconds since the epoch; a negative one is refused."""
        return FixedKeyRecord(self.key, self.value, timestamp_ms, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K, V]:
        """The same with other headers."""
        return FixedKeyRecord(self.key, self.value, self.timestamp_ms, headers)


class RecordMetadata(msgspec.Struct, frozen=True):
    """Where the record in process was read from; behind a repartition, that is the repartition.

    Source: `api.RecordMetadata`; differs: no.
    """

    topic: str
    partition: int
    offset: int


class PunctuationType(Enum):
    """Which time a punctuator follows.

    Source: `PunctuationType`; differs: no.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Ticking(Processor[str, str, str, str]):
    ...     def init(self, context: ProcessorContext[str, str]) -> None:
    ...         super().init(context)
    ...         context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.tick)
    ...     def tick(self, time_ms: int) -> None:
    ...         self.context.forward(Record("tick", str(time_ms), time_ms))
    ...     def process(self, record: Record[str, str]) -> None:
    ...         "Records are dropped."
    >>> builder = StreamsBuilder()
    >>> builder.stream("in", key=str, value=str).process(Ticking).to("ticks")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.advance_wall_clock_time(timedelta(seconds=1))
    >>> driver.create_output_topic("ticks").read_key_values_to_list()
    [('tick', '1000')]
    """

    STREAM_TIME = "stream time"
    """The largest timestamp of the records that the task has taken so far; it stands still without records."""
    WALL_CLOCK_TIME = "wall-clock time"
    """The clock of the host: the time of the micro-batch, or the time that a test sets."""


class Punctuator(Protocol):
    """A function that runs again and again.

    Source: `Punctuator`; differs: no.
    """

    def __call__(self, time_ms: int, /) -> object:
        """Gets the stream time or the wall-clock time at which it runs, not the time it was due."""


class Cancellable(Protocol):
    """The result of `schedule`.

    Source: `Cancellable`; differs: no.
    """

    def cancel(self) -> None:
        """Stops the punctuator."""


class _CommonContext(Protocol):
    @property
    def task_id(self) -> str:
        """`<stage>_<task>`, such as `0_3`; Kafka Streams' numbers may differ."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the record in process was read from; None in a punctuator and in `init`."""

    @property
    def current_stream_time_ms(self) -> int:
        """The largest timestamp of the records taken so far, including the one in process; -1 before the first."""

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock of the micro-batch or of the test driver. A batch that is run again sees the same time."""

    @overload
    def state_store(self, store: DeclaredStore[S], /) -> S: ...

    @overload
    def state_store(self, store: str, /) -> Any: ...

    def state_store(self, store: str | DeclaredStore[Any], /) -> Any:
        """A store that is connected to this processor, or a global one, which can only be read.

        Args:
            store: Its declaration, which also tells a type checker what it holds, or its name.

        Raises:
            KeyError: There is no such store, or it is not connected.
        """

    def schedule(
        self,
        interval: timedelta,
        type: PunctuationType,
        punctuator: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Runs a function again and again.

        Args:
            interval: Time between two runs. A single run makes up for missed ones; the next one is
                then due at a multiple of the interval after the first.
            type: The time that it follows.
            punctuator: Gets the time. It runs outside of any record, without metadata and headers.
            start_ms: When it is first due. None: in stream time, with the first record, then at multiples of the
                interval; on the wall clock, one interval from now.

        A schedule made in `init` continues where it was when a task is built again on another worker. A schedule made
        later is lost then, as in Kafka Streams, so make lasting ones in `init`.
        """

    def commit(self) -> None:
        """Asks for a commit soon. The host commits after each micro-batch (the test driver: each record) anyway."""


class ProcessorContext(_CommonContext, Protocol[KSent, VSent]):
    """The context of a `Processor`.

    Source: `api.ProcessorContext`; differs: no metrics, no directory.
    """

    def forward(self, record: Record[KSent, VSent], child: str | None = None) -> None:
        """Hands a record to every child of this processor, or to the one that is named.

        Raises:
            KeyError: There is no child of that name.
        """


class FixedKeyProcessorContext(_CommonContext, Protocol[KSent, VSent]):
    """The context of a `FixedKeyProcessor`.

    Source: `api.FixedKeyProcessorContext`; differs: no metrics, no directory.
    """

    def forward(self, record: FixedKeyRecord[KSent, VSent], child: str | None = None) -> None:
        """Hands a record to every child of this processor, or to the one that is named.

        Raises:
            KeyError: There is no child of that name.
        """


class ValueTransformerContext(_CommonContext, Protocol):
    """The context of a `ValueTransformer`; it forwards nothing.

    Source: `ProcessorContext` of `ValueTransformerWithKey#init`; differs: no metrics, no directory.
    """


class _Started:
    """Says what to do if a user's own `init` has not kept the context."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            text = f"'{type(self).__name__}' object has no attribute '{name}'"
            if name == "context":
                text += ": its init has to call super().init(context), which keeps it"
            raise AttributeError(text)


class Processor(_Started, ABC, Generic[KIn, VIn, KOut, VOut]):
    """An operator that you write: it gets a record, and forwards as many as it likes.

    Keep what it must remember in stores. A task may be built again from them between any two commits, and then its
    processors are new objects: attributes that `process` changes are lost; stores and schedules made in `init` are not.

    Source: `api.Processor`, `ContextualProcessor`; differs: no.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Halve(Processor[str, int, str, float]):
    ...     def process(self, record: Record[str, int]) -> None:
    ...         self.context.forward(record.with_value(record.value / 2))
    >>> builder = StreamsBuilder()
    >>> builder.stream("in", key=str, value=int).process(Halve, key=str, value=float).to("out")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("in").pipe_input("ann", 3)
    >>> driver.create_output_topic("out").read_key_value()
    ('ann', 1.5)
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once before the first record. Get stores and make schedules here. This method keeps the context."""
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for each record. The error policy decides about exceptions; records already forwarded stay."""

    def close(self) -> None:
        """Called when the task is closed in an orderly way; not after a failure."""


class FixedKeyProcessor(_Started, ABC, Generic[KIn, VIn, VOut]):
    """A `Processor` that keeps the key of its records, so that nothing has to be repartitioned behind it.

    Source: `api.FixedKeyProcessor`, `ContextualFixedKeyProcessor`; differs: no.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Words(FixedKeyProcessor[str, str, str]):
    ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
    ...         for word in record.value.split():
    ...             self.context.forward(record.with_value(word))
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines", key=str, value=str).process_values(Words).to("words")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("lines").pipe_input("page 1", "old lighthouse")
    >>> driver.create_output_topic("words").read_key_values_to_list()
    [('page 1', 'old'), ('page 1', 'lighthouse')]
    """

    context: FixedKeyProcessorContext[Any, VOut]

    def init(self, context: FixedKeyProcessorContext[Any, VOut]) -> None:
        """See `Processor.init`."""
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """See `Processor.process`."""

    def close(self) -> None:
        """See `Processor.close`."""


class ValueTransformer(_Started, ABC, Generic[KIn, VIn, VOut]):
    """Makes the value of a table's row from its key and value; unlike a mapper it may use stores.

    It is called for each update, including deletes (a None value). If the new table has no store, it is also called for
    the old value if a reader asked for that, and joins that look rows up call another object of the same supplier.

    Source: `ValueTransformerWithKey`; differs: no.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Length(ValueTransformer[str, str | None, int]):
    ...     def transform(self, key: str, value: str | None) -> int:
    ...         return len(value or "")
    >>> builder = StreamsBuilder()
    >>> names = builder.table("names", key=str, value=str, store="names")
    >>> names.transform_values(Length).to_stream().to("lengths")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("names").pipe_key_value_list([("ann", "Smith"), ("ann", None)])
    >>> driver.create_output_topic("lengths").read_key_values_to_list()
    [('ann', 5), ('ann', 0)]
    """

    context: ValueTransformerContext

    def init(self, context: ValueTransformerContext) -> None:
        """See `Processor.init`."""
        self.context = context

    @abstractmethod
    def transform(self, key: KIn, value: VIn) -> VOut:
        """Returns the new value; None deletes the row. The error policy decides about exceptions."""

    def close(self) -> None:
        """See `Processor.close`."""


def _negative(timestamp_ms: int) -> ValueError:
    return ValueError(f"the timestamp of a record must not be negative, but is {timestamp_ms}")
