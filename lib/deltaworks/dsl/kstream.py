"""Streams of records: the stateless operators, and the steps to tables, groups and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from deltaworks.dsl.branched import BranchedKStream
from deltaworks.dsl.call_outs import KStreamCallOuts
from deltaworks.dsl.exchanges import exchange
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.grouped import KGroupedStream
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import Grouping, table_source
from deltaworks.dsl.materialized import Materialized, Stored
from deltaworks.dsl.mistakes import check_function, check_partitioner, check_shape, named, need_handle, need_topics
from deltaworks.dsl.point import Known, Point, Typed, Unknown
from deltaworks.dsl.processing import process, process_values
from deltaworks.dsl.shown import handle
from deltaworks.dsl.state_stores import StoreBuilder
from deltaworks.dsl.tables import KeyColumns, ValueColumn, delta_sink
from deltaworks.serdes.inference import element, pair, returned
from deltaworks.topology.nodes import (
    CustomSink,
    ExtractedTopicSink,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Peek,
    SelectKey,
    TopicSink,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.processors import FixedKeyProcessor, Processor
from deltaworks.topology.routing import RecordContext, StreamPartitioner
from deltaworks.topology.sinks import Sink

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VO = TypeVar("VO")
VR = TypeVar("VR")
VT = TypeVar("VT")
KG = TypeVar("KG")
VG = TypeVar("VG")

_ONE_TYPE = "bring both streams to one type first, with map_values(...) or map(...)"


def _merged(one: Known, other: Known, where: Origin) -> Known:
    """The type of two merged streams; where it is unknown, what is to blame."""
    for each in (one, other):
        if isinstance(each, Unknown):
            return each
    if one == other:
        return one
    return Unknown("merge", where, "joins streams of different types", lambda: _ONE_TYPE)


class KStream(KStreamCallOuts[K, V]):
    """A stream at one point of a topology; a handle, made by the builder and by operators.

    Functions that get a key or a value may get None where the stream has null keys or values.
    Every operator takes `name=`, the name of its node instead of a generated one.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> lines = builder.stream("lines", key=str, value=str)
    >>> lines.flat_map_values(str.split).filter(lambda _, word: word != "the").to("words")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("lines").pipe_input("page 1", "the old lighthouse")
    >>> driver.create_output_topic("words").read_key_values_to_list()
    [('page 1', 'old'), ('page 1', 'lighthouse')]

    Args:
        at: where its records come out.
    """

    def __repr__(self) -> str:
        return handle(self, self.at)

    def filter(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]:
        """Keeps the records for which the predicate holds.

        Shape: `KStream[K, V] -> KStream[K, V]`; 1 record -> 0 or 1.
        Args:
            predicate: `(key, value) -> bool`.
            name: name of the node.
        State: none.
        Source: `KStream#filter`; differs: no.
        """
        return self._filter(predicate, negate=False, name=name)

    def filter_not(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]:
        """Keeps the records for which the predicate does not hold.

        Shape: `KStream[K, V] -> KStream[K, V]`; 1 record -> 0 or 1.
        Args:
            predicate: `(key, value) -> bool`.
            name: name of the node.
        State: none.
        Source: `KStream#filterNot`; differs: no.
        """
        return self._filter(predicate, negate=True, name=name)

    def map(
        self,
        mapper: Callable[[K, V], tuple[KR, VR]],
        *,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Changes key and value; the next operator that works by key makes an exchange first.

        Shape: `KStream[K, V] -> KStream[KR, VR]`; 1 record -> 1.
        Args:
            mapper: `(key, value) -> (key, value)`.
            key: type or serde of the new key, if the mapper has no return annotation.
            value: type or serde of the new value, likewise.
            name: name of the node.
        State: none.
        Source: `KStream#map`; differs: no.
        """
        where = call_site()
        check_function(self.at.graph, mapper, "mapper(key, value)", operator="map", where=where)
        node = Map(name=self._name(name, "KSTREAM-MAP-"), parents=(self.at.node,), mapper=mapper, origin=where)
        new_key, new_value = pair(returned(mapper))
        return KStream(
            self.at.then(
                node,
                key=self.at.settle(key, new_key, operator="map", argument="key", where=where),
                value=self.at.settle(value, new_value, operator="map", argument="value", where=where),
                rekeyed=True,
            )
        )

    def map_values(
        self, mapper: Callable[[V], VR], *, value: Typed[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """Changes the value and keeps the key.

        Shape: `KStream[K, V] -> KStream[K, VR]`; 1 record -> 1.
        Args:
            mapper: `value -> value`.
            value: type or serde of the new value, if the mapper has no return annotation and is no builtin such as
                `str.upper`. It must not contradict the annotation. `Optional[Order]` has the serde of `Order`.
            name: name of the node.
        State: none.
        Source: `KStream#mapValues`; differs: no.
        """
        return self._map_values(lambda _, old: mapper(old), mapper, "map_values", value, name)

    def map_values_with_key(
        self, mapper: Callable[[K, V], VR], *, value: Typed[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """`map_values` with a mapper `(key, value) -> value`.

        Source: `KStream#mapValues(ValueMapperWithKey)`; differs: no.
        """
        return self._map_values(mapper, mapper, "map_values_with_key", value, name)

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[KR, VR]]],
        *,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Makes any number of new keys and values; the next operator that works by key makes an exchange first.

        Shape: `KStream[K, V] -> KStream[KR, VR]`; 1 record -> 0 to n.
        Args:
            mapper: `(key, value) -> [(key, value), ...]`.
            key: type or serde of the new key, if the mapper has no return annotation.
            value: type or serde of the new value, likewise.
            name: name of the node.
        State: none.
        Source: `KStream#flatMap`; differs: a text as a result is an error.
        """
        where = call_site()
        check_function(self.at.graph, mapper, "mapper(key, value)", operator="flat_map", where=where)
        node = FlatMap(name=self._name(name, "KSTREAM-FLATMAP-"), parents=(self.at.node,), mapper=mapper, origin=where)
        new_key, new_value = pair(element(returned(mapper)))
        return KStream(
            self.at.then(
                node,
                key=self.at.settle(key, new_key, operator="flat_map", argument="key", where=where),
                value=self.at.settle(value, new_value, operator="flat_map", argument="value", where=where),
                rekeyed=True,
            )
        )

    def flat_map_values(
        self, mapper: Callable[[V], Iterable[VR]], *, value: Typed[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """Makes any number of new values and keeps the key.

        Shape: `KStream[K, V] -> KStream[K, VR]`; 1 record -> 0 to n.
        Args:
            mapper: `value -> [value, ...]`.
            value: type or serde of the new value, if the mapper has no return annotation.
            name: name of the node.
        State: none.
        Source: `KStream#flatMapValues`; differs: a text as a result is an error.
        """
        return self._flat_map_values(lambda _, old: mapper(old), mapper, "flat_map_values", value, name)

    def flat_map_values_with_key(
        self, mapper: Callable[[K, V], Iterable[VR]], *, value: Typed[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """`flat_map_values` with a mapper `(key, value) -> [value, ...]`.

        Source: `KStream#flatMapValues(ValueMapperWithKey)`; differs: a text as a result is an error.
        """
        return self._flat_map_values(mapper, mapper, "flat_map_values_with_key", value, name)

    def select_key(
        self, selector: Callable[[K, V], KR | None], *, key: Typed[KR] | None = None, name: str | None = None
    ) -> KStream[KR, V]:
        """Changes the key and keeps the value; the next operator that works by key makes an exchange first.

        Shape: `KStream[K, V] -> KStream[KR, V]`; 1 record -> 1.
        Args:
            selector: `(key, value) -> key`; a null key passes an exchange only if a left or outer join follows.
            key: type or serde of the new key, if the selector has no return annotation.
            name: name of the node.
        State: none.
        Source: `KStream#selectKey`; differs: no.
        """
        return KStream(self._select_key(selector, key, "select_key", call_site(), name))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Calls a function for its effect and passes the record on. A batch that is run again calls it again.

        Shape: `KStream[K, V] -> KStream[K, V]`; 1 record -> 1.
        Args:
            action: `(key, value) -> anything`.
            name: name of the node.
        State: none.
        Source: `KStream#peek`; differs: no.
        """
        where = call_site()
        check_function(self.at.graph, action, "action(key, value)", operator="peek", where=where)
        node = Peek(name=self._name(name, "KSTREAM-PEEK-"), parents=(self.at.node,), action=action, origin=where)
        return KStream(self.at.then(node))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Calls a function for its effect and ends this branch. A batch that is run again calls it again.

        Args:
            action: `(key, value) -> anything`.
            name: name of the node.
        Source: `KStream#foreach`; differs: no.
        """
        check_function(self.at.graph, action, "action(key, value)", operator="foreach", where=call_site())
        node = Peek(
            name=self._name(name, "KSTREAM-FOREACH-"),
            parents=(self.at.node,),
            action=action,
            terminal=True,
            origin=call_site(),
        )
        self.at.then(node)

    def print(
        self,
        label: str | None = None,
        *,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Prints `[label]: key, value` for each record and ends this branch. Use it to look at a stream, not for logs.

        Args:
            label: text before the record; None: the name of the node that the records come from.
            mapper: `(key, value) -> text`, instead of `key, value`.
            name: name of the node.
        Source: `KStream#print`, `Printed`; differs: to the standard output only.
        """
        if mapper is not None:
            check_function(self.at.graph, mapper, "mapper(key, value)", operator="print", where=call_site())
        prefix = label or self.at.node

        def show(key: K, value: V) -> None:
            text = f"{key}, {value}" if mapper is None else mapper(key, value)
            print(f"[{prefix}]: {text}")

        node = Peek(
            name=self._name(name, "KSTREAM-PRINTER-"),
            parents=(self.at.node,),
            action=show,
            terminal=True,
            origin=call_site(),
        )
        self.at.then(node)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Merges two streams; the records of each stream keep their order.

        Shape: `KStream[K, V] + KStream[K, V] -> KStream[K, V]`; 1 record -> 1.
        Args:
            other: a stream with the same types.
            name: name of the node.
        State: none.
        Source: `KStream#merge`; differs: no.
        """
        where = call_site()
        need_handle(self.at.graph, other, KStream, operator="merge", where=where)
        at, of = self.at, other.at
        if of.graph is not at.graph:
            at.graph.report("merge: the other stream belongs to another builder.", where, "use one builder for both")
            return self
        node = Merge(name=self._name(name, "KSTREAM-MERGE-"), parents=(at.node, of.node), origin=where)
        return KStream(
            at.then(
                node,
                key=_merged(at.key, of.key, where),
                value=_merged(at.value, of.value, where),
                rekeyed=of.rekeyed,
            )
        )

    def split(self, name: str | None = None) -> BranchedKStream[K, V]:
        """Begins to split the stream: add `.branch(...)`, end with `.default_branch()` or `.no_default_branch()`.

        Shape: `KStream[K, V] -> dict[str, KStream[K, V]]`; 1 record -> 0 or 1, in the first branch that takes it.
        Args:
            name: name of the node; the branches' nodes are called `<name>-<branch>`.
        State: none.
        Source: `KStream#split`; differs: the result is keyed by the bare names of the branches.
        """
        where = call_site()
        node = self._name(f"{name}-" if name else None, "KSTREAM-BRANCH-")
        self.at.graph.open_splits[node] = where
        return BranchedKStream(self.at, node, where)

    def group_by_key(
        self, *, key: Typed[K] | None = None, value: Typed[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Groups by the current key; makes an exchange only if the key may have changed.

        Args:
            key: type or serde of the key, if it is not known and an exchange needs it.
            value: type or serde of the value, likewise.
            name: name of the exchange. Aggregates of this grouping share a named exchange; without a name, each makes
                its own.
        Source: `KStream#groupByKey`; differs: no.
        """
        return KGroupedStream(Grouping(self._typed(key, value, "group_by_key", call_site()), name))

    def group_by(
        self,
        selector: Callable[[K, V], KR | None],
        *,
        key: Typed[KR] | None = None,
        value: Typed[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Groups by a new key; each aggregate makes an exchange, unless it shares a named one.

        Args:
            selector: `(key, value) -> key`; null keys are dropped.
            key: type or serde of the new key, if the selector has no return annotation.
            value: type or serde of the value, if it is not known.
            name: name of the exchange and of the node that selects the key.
        Source: `KStream#groupBy`; differs: no.
        """
        where = call_site()
        at = KStream[K, V](self._typed(None, value, "group_by", where))._select_key(
            selector, key, "group_by", where, name
        )
        return KGroupedStream(Grouping(at, name))

    def repartition(
        self,
        *,
        partitions: int | None = None,
        partitioner: StreamPartitioner | None = None,
        key: Typed[K] | None = None,
        value: Typed[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Sends every record to the task that owns its key; the operators behind it are another stage.

        Shape: `KStream[K, V] -> KStream[K, V]`; 1 record -> 1; a null key is dropped, unless a left join follows.
        Args:
            partitions: number of tasks behind the exchange; None: as many as before it, or as many as joins need.
            partitioner: `(exchange, key, value, partitions) -> partition`, instead of Kafka's; see
                `StreamPartitioner`. Operators behind the exchange that work by key need all records of a key in one
                partition; those that work by value, such as a processor with a store, need related records in one.
            key: type or serde of the key, if it is not known.
            value: type or serde of the value, if it is not known.
            name: name of the exchange.
        State: none.
        Source: `KStream#repartition`; differs: a shuffle, not a topic.
        """
        where = call_site()
        at = self._typed(key, value, "repartition", where)
        check_partitioner(at.graph, partitioner, operator="repartition", where=where)
        if partitions is not None and partitions < 1:
            at.graph.report(f"repartition: {partitions} partitions are too few.", where, "partitions=1 or more")
        name = name or at.graph.next_name("KSTREAM-REPARTITION-")
        return KStream(
            exchange(at, name, operator="repartition", where=where, partitions=partitions, partitioner=partitioner)
        )

    def process(
        self,
        supplier: Callable[[], Processor[K, V, KR, VR]],
        *stores: str | StoreBuilder[Any],
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Hands each record to a processor that you write; the next operator that works by key makes an exchange first.

        Shape: `KStream[K, V] -> KStream[KR, VR]`; 1 record -> as many as it forwards.
        Args:
            supplier: makes a `Processor` for each task: the class itself, `lambda: Name(...)`, `partial(Name, ...)` or
                a function. It is also called while the topology is built, to see the class: its types are those of the
                result, and the stores declared in its attribute `stores` are added and connected.
            stores: the stores that it may use: names, or declarations such as `Stores.key_value(...)`, which are
                added; global ones need not be named.
            key: type or serde of the keys that it forwards, if its class does not say.
            value: type or serde of the values that it forwards, likewise.
            name: name of the node.
        State: what it keeps in its stores.
        Source: `KStream#process`; differs: no.

        >>> from deltaworks import Processor, Record, StreamsBuilder
        >>> from deltaworks.testing import TopologyTestDriver
        >>> class Words(Processor[str, str, str, int]):
        ...     def process(self, record: Record[str, str]) -> None:
        ...         for word in record.value.split():
        ...             self.context.forward(record.with_key(word).with_value(len(word)))
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines", key=str, value=str).process(Words).to("lengths")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("lines").pipe_input("page 1", "old lighthouse")
        >>> driver.create_output_topic("lengths").read_key_values_to_list()
        [('old', 3), ('lighthouse', 10)]
        """
        return KStream(process(self.at, supplier, stores, key=key, value=value, name=name, where=call_site()))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, VR]],
        *stores: str | StoreBuilder[Any],
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`process` with a processor that keeps the keys, so nothing has to be repartitioned behind it.

        Shape: `KStream[K, V] -> KStream[K, VR]`; 1 record -> as many as it forwards.
        Args:
            supplier: makes a `FixedKeyProcessor` for each task; see `process`.
            stores: names of the stores that it may use; see `process`.
            value: type or serde of the values that it forwards, if its class does not say.
            name: name of the node.
        State: what it keeps in its stores.
        Source: `KStream#processValues`; differs: no.
        """
        return KStream(process_values(self.at, supplier, stores, value=value, name=name, where=call_site()))

    def to_table(
        self, *, store: Stored = "", key: Typed[K] | None = None, value: Typed[V] | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """Turns the records into updates of a table: a null key is dropped, a null value deletes.

        Shape: `KStream[K, V] -> KTable[K, V]`; n records -> 1 row per key, updated.
        Args:
            store: name of its store; part of the pipeline's state, so keep it.
            key: type or serde of the key, if it is not known.
            value: type or serde of the value, if it is not known.
            name: name of the node.
        State: a value per key, for ever.
        Source: `KStream#toTable`; differs: no.
        """
        where = call_site()
        at = self._typed(key, value, "to_table", where)
        kept = Materialized.of(store)
        node = self._name(name, "KSTREAM-TOTABLE-")
        named = replace(kept, name=at.graph.store_name(kept.name, "KSTREAM-TOTABLE-"))
        if at.rekeyed:
            at = exchange(at, node, operator="to_table", where=where, named=name is not None)
        table: KTable[K, V] = table_source(at, node, kept, named, operator="to_table", where=where)
        return table

    def to(
        self,
        topic: str,
        *,
        key: Typed[K] | None = None,
        value: Typed[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to a topic, exactly once, in the partitions that Kafka's own producer would choose.

        Args:
            topic: exists already, or is declared in the pipeline's `topics`.
            key: type or serde of the key, if it is not known.
            value: type or serde of the value, if it is not known.
            partitioner: `(topic, key, value, partitions) -> partition`, instead of Kafka's; see `StreamPartitioner`.
            name: name of the node.
        Source: `KStream#to`, `Produced`; differs: no.
        """
        where = call_site()
        need_topics(self.at.graph, [topic], operator="to", where=where)
        operator = f"to('{topic}')"
        check_partitioner(self.at.graph, partitioner, operator=operator, where=where)
        at = self._typed(key, value, operator, where)
        at.then(
            TopicSink(
                name=self._name(name, "KSTREAM-SINK-"),
                parents=(at.node,),
                topic=topic,
                key=at.need(at.key, operator=operator, argument="key", where=where),
                value=at.need(at.value, operator=operator, argument="value", where=where),
                partitioner=partitioner,
                origin=where,
            )
        )

    def to_extracted(
        self,
        extractor: Callable[[K, V, RecordContext], str],
        *,
        key: Typed[K] | None = None,
        value: Typed[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes each record to the topic that a function names.

        Args:
            extractor: `(key, value, context) -> topic`; the topics exist already. The context says where the record
                in process was read from, and has its timestamp and headers.
            key: type or serde of the key, if it is not known.
            value: type or serde of the value, if it is not known.
            partitioner: `(topic, key, value, partitions) -> partition`, instead of Kafka's.
            name: name of the node.
        Source: `KStream#to(TopicNameExtractor)`; differs: where the function raises, the record has failed at the sink,
            and goes on to the other operators.
        """
        where = call_site()
        operator = "to_extracted"
        check_function(self.at.graph, extractor, "extractor(key, value, context)", operator=operator, where=where)
        check_partitioner(self.at.graph, partitioner, operator=operator, where=where)
        at = self._typed(key, value, operator, where)
        at.then(
            ExtractedTopicSink(
                name=self._name(name, "KSTREAM-SINK-"),
                parents=(at.node,),
                extractor=extractor,
                key=at.need(at.key, operator=operator, argument="key", where=where),
                value=at.need(at.value, operator=operator, argument="value", where=where),
                partitioner=partitioner,
                origin=where,
            )
        )

    def to_delta(
        self,
        table: str,
        *,
        key: KeyColumns = None,
        value: ValueColumn = None,
        doc: str | None = None,
        name: str | None = None,
    ) -> None:
        """Appends every record to a Delta table, exactly once.

        A record with a value that no column can hold (`NaN` in a DECIMAL, an int of more than 64 bits) is a production
        error, like one that does not encode; with `on_error="continue"` it becomes a dead letter.

        Args:
            table: name of the Delta table.
            key: the key's column, by its name or as a `Column` that says what it means. Several if the key has several:
                a tuple, or a type with fields, whose columns have the names of the fields otherwise. If a field of the
                value has that name, both are one column; a record in which they differ is a production error.
            value: the value's column, if the value has no fields; the columns of a value with fields have their names.
            doc: description of the table, for its readers.
            name: name of the node.

        Source: none; in Kafka Streams a connector reads the output topic.
        """
        delta_sink(
            self.at,
            table,
            TableKind.APPEND,
            key=key,
            value=value,
            doc=doc,
            known_key=self.at.key,
            window_node=None,
            name=self._name(name, "KSTREAM-TODELTA-"),
            where=call_site(),
        )

    def sink(self, sink: Sink[K, V], *, name: str, in_replay: bool = False) -> None:
        """Hands the records to a sink that you write, one micro-batch of a task at a time; see `deltaworks.Sink`.

        Delivery is exactly once if the sink is idempotent or transactional. A sink that fails ends the batch, which
        runs again.

        Args:
            sink: opens a writer per task; it is sent to the workers, so it holds settings and no connections.
            name: name of the node. The sink's commits are recorded under it, so keep it when the topology changes.
            in_replay: replays of history call it too, with `SinkTask.replay` set; by default they leave it out.
        Source: none; in Kafka Streams a connector reads the output topic.
        """
        where = call_site()
        if not callable(getattr(sink, "open", None)) or isinstance(sink, type):
            self.at.graph.refuse(
                f"sink needs an object with open(task), but got {named(sink)}.", where, "see deltaworks.Sink"
            )
        self.at.then(
            CustomSink(
                name=self._name(name, "KSTREAM-SINK-"),
                parents=(self.at.node,),
                sink=sink,
                in_replay=in_replay,
                origin=where,
            )
        )

    def _kind(self) -> TableKind:
        return TableKind.APPEND

    def _known_key(self) -> Known:
        return self.at.key

    def _name(self, given: str | None, prefix: str) -> str:
        return self.at.graph.name_of(given, prefix)

    def _typed(self, key: Typed[Any] | None, value: Typed[Any] | None, operator: str, where: Origin) -> Point:
        """This point with the serdes that were given to an operator."""
        at = self.at
        return at.typed(
            key=at.key_or(key, operator=operator, where=where), value=at.value_or(value, operator=operator, where=where)
        )

    def _filter(self, predicate: Callable[[K, V], bool], *, negate: bool, name: str | None) -> KStream[K, V]:
        operator, where = "filter_not" if negate else "filter", call_site()
        check_function(self.at.graph, predicate, "predicate(key, value)", operator=operator, where=where)
        node = Filter(
            name=self._name(name, "KSTREAM-FILTER-"),
            parents=(self.at.node,),
            predicate=predicate,
            negate=negate,
            origin=where,
        )
        return KStream(self.at.then(node))

    def _map_values(
        self,
        mapper: Callable[[K, V], VR],
        given: Callable[..., Any],
        operator: str,
        value: Typed[VR] | None,
        name: str | None,
    ) -> KStream[K, VR]:
        where = call_site()
        check_shape(self.at.graph, given, "mapper", "value", operator, where)
        node = MapValues(
            name=self._name(name, "KSTREAM-MAPVALUES-"), parents=(self.at.node,), mapper=mapper, origin=where
        )
        known = self.at.settle(value, returned(given), operator=operator, argument="value", where=where)
        return KStream(self.at.then(node, value=known))

    def _flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[VR]],
        given: Callable[..., Any],
        operator: str,
        value: Typed[VR] | None,
        name: str | None,
    ) -> KStream[K, VR]:
        where = call_site()
        check_shape(self.at.graph, given, "mapper", "value", operator, where)
        node = FlatMapValues(
            name=self._name(name, "KSTREAM-FLATMAPVALUES-"), parents=(self.at.node,), mapper=mapper, origin=where
        )
        known = self.at.settle(value, element(returned(given)), operator=operator, argument="value", where=where)
        return KStream(self.at.then(node, value=known))

    def _select_key(
        self,
        selector: Callable[[K, V], Any],
        key: Typed[Any] | None,
        operator: str,
        where: Origin,
        name: str | None,
    ) -> Point:
        check_function(self.at.graph, selector, "selector(key, value)", operator=operator, where=where)
        node = SelectKey(
            name=self._name(name, "KSTREAM-KEY-SELECT-"), parents=(self.at.node,), selector=selector, origin=where
        )
        known = self.at.settle(key, returned(selector), operator=operator, argument="key", where=where)
        return self.at.then(node, key=known, rekeyed=True)
