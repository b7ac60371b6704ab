"""The low level: sources, processors, sinks and stores, connected by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from deltaworks.dsl.graph import BuilderConfig, Graph, call_site
from deltaworks.dsl.mistakes import Handle, check_partitioner, check_reads, need_topics
from deltaworks.dsl.point import Typed, settle
from deltaworks.dsl.processing import add_store, check_supplier, own_stores
from deltaworks.dsl.shown import collected
from deltaworks.dsl.state_stores import StoreBuilder
from deltaworks.errors import TopologyError
from deltaworks.topology.checks import check
from deltaworks.topology.nodes import (
    AnyNode,
    ExtractedTopicSink,
    FixedKeyProcessorNode,
    ProcessorNode,
    Source,
    TopicSink,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.plan import Plan
from deltaworks.topology.processors import FixedKeyProcessor, Processor
from deltaworks.topology.registered import with_stored_values
from deltaworks.topology.routing import StreamPartitioner, TopicNameExtractor
from deltaworks.topology.split import split, split_off_global
from deltaworks.topology.timestamps import FailOnInvalidTimestamp, TimestampExtractor

Supplier = Callable[[], Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]]


class Topology(Handle):
    """A topology built node by node. You name the nodes, and add each parent before its children.

    A processor forwards to all its children in the order in which they were added, or to the one that it names.
    `StreamsBuilder` is the high level, with types, groups and joins.

    Source: `Topology`; differs: `build` tells all problems at once.

    Args:
        name: name of the topology, for messages.

    >>> from deltaworks import Processor, Record
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Route(Processor[str, int, str, int]):
    ...     def process(self, record: Record[str, int]) -> None:
    ...         self.context.forward(record, "even" if record.value % 2 == 0 else "odd")
    >>> topology = Topology()
    >>> _ = topology.add_source("numbers", "in", key=str, value=int)
    >>> _ = topology.add_processor("route", Route, "numbers")
    >>> _ = topology.add_sink("even", "even", "route", key=str, value=int)
    >>> _ = topology.add_sink("odd", "odd", "route", key=str, value=int)
    >>> driver = TopologyTestDriver(topology.build())
    >>> driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 2), ("c", 3)])
    >>> driver.create_output_topic("odd").read_values_to_list()
    [1, 3]
    """

    def __init__(self, name: str = "topology") -> None:
        self._graph = Graph(name, BuilderConfig(record_cache=False))
        self._connected: list[tuple[str, str]] = []
        """Pairs of processor and store."""
        self._read_only: dict[str, str] = {}
        """Store that is filled from a topic -> the processor that fills it."""

    def __repr__(self) -> str:
        return collected(self, self._graph)

    def add_source(
        self,
        name: str,
        *topics: str,
        key: Typed[Any],
        value: Typed[Any],
        pattern: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: Literal["earliest", "latest"] | None = None,
    ) -> Topology:
        """Reads topics.

        Args:
            name: name of the node.
            topics: their names.
            key: type or serde of the keys.
            value: type or serde of the values.
            pattern: instead of names, a regular expression; reads every topic whose whole name matches it.
            timestamp_extractor: `(record, partition_time_ms) -> timestamp_ms`; None: the record's own timestamp.
            offset_reset: where a new pipeline begins to read; None: the host's setting.

        Source: `Topology#addSource`; differs: serdes are never taken from a default.
        """
        where = call_site()
        need_topics(self._graph, topics, operator="add_source", where=where)
        check_reads(self._graph, timestamp_extractor, offset_reset, operator="add_source", where=where)
        if (not topics) is (pattern is None):
            self._graph.report(
                f"the source '{name}' reads {'no topic' if not topics else 'topics and a pattern'}.",
                where,
                f"add_source('{name}', 'orders', ...), or pattern='sensor-.*'",
            )
        extractor = None if isinstance(timestamp_extractor, FailOnInvalidTimestamp) else timestamp_extractor
        self._add(
            Source(
                name=name,
                topics=tuple(sorted(set(topics))),
                key=settle(self._graph, key, None, operator="add_source", argument="key", where=where),
                value=settle(self._graph, value, None, operator="add_source", argument="value", where=where),
                pattern=pattern,
                timestamp_extractor=extractor,
                offset_reset=offset_reset,
                origin=where,
            )
        )
        return self

    def add_processor(self, name: str, supplier: Supplier, *parents: str) -> Topology:
        """Adds a processor.

        Args:
            name: name of the node.
            supplier: makes a `Processor` or a `FixedKeyProcessor` for each task. If it has an attribute `stores`, the
                stores declared there are added and connected.
            parents: names of the nodes that it gets records from.

        Source: `Topology#addProcessor`; differs: no.
        """
        where = call_site()
        kinds = (Processor, FixedKeyProcessor)
        made = check_supplier(self._graph, supplier, kinds, operator="add_processor", where=where)
        self._parents(name, parents, where)
        if isinstance(made, FixedKeyProcessor):
            self._add(FixedKeyProcessorNode(name=name, parents=parents, supplier=supplier, origin=where))  # type: ignore[arg-type]
        else:
            self._add(ProcessorNode(name=name, parents=parents, supplier=supplier, origin=where))  # type: ignore[arg-type]
        for store in own_stores(supplier, made):
            self._add_store(store, name, where=where)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        *parents: str,
        key: Typed[Any],
        value: Typed[Any],
        partitioner: StreamPartitioner | None = None,
    ) -> Topology:
        """Writes a topic.

        Args:
            name: name of the node.
            topic: its name, or a function `(key, value, context) -> topic`.
            parents: names of the nodes that it gets records from.
            key: type or serde of the keys.
            value: type or serde of the values.
            partitioner: `(topic, key, value, partitions) -> partition`; None: as Kafka's own producer would choose.

        Source: `Topology#addSink`; differs: serdes are never taken from a default.
        """
        where = call_site()
        self._parents(name, parents, where)
        check_partitioner(self._graph, partitioner, operator="add_sink", where=where)
        key_serde = settle(self._graph, key, None, operator="add_sink", argument="key", where=where)
        value_serde = settle(self._graph, value, None, operator="add_sink", argument="value", where=where)
        if isinstance(topic, str):
            self._add(
                TopicSink(
                    name=name,
                    parents=parents,
                    topic=topic,
                    key=key_serde,
                    value=value_serde,
                    partitioner=partitioner,
                    origin=where,
                )
            )
        else:
            self._add(
                ExtractedTopicSink(
                    name=name,
                    parents=parents,
                    extractor=topic,
                    key=key_serde,
                    value=value_serde,
                    partitioner=partitioner,
                    origin=where,
                )
            )
        return self

    def add_state_store(self, store: StoreBuilder[Any], *processors: str) -> Topology:
        """Adds a store and connects it to processors.

        Args:
            store: made by `Stores`.
            processors: names of processors that are already there.

        Source: `Topology#addStateStore`; differs: no.
        """
        self._add_store(store, *processors, where=call_site())
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Lets a processor use stores; processors that share a store are in one stage.

        Source: `Topology#connectProcessorAndStateStores`; differs: no.
        """
        where = call_site()
        if not stores:
            self._graph.report(
                f"'{processor}' is connected to no store.", where, "name at least one store after the processor"
            )
        for store in stores:
            self._connect(processor, store, where)
        return self

    def add_global_store(
        self,
        store: StoreBuilder[Any],
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: Typed[Any],
        value: Typed[Any],
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Adds a store that every task can read as a whole, filled from a topic by a processor that you write.

        Args:
            store: made by `Stores`; every processor may read it without being connected.
            source: name of the node that reads the topic.
            topic: its name; nothing else reads it.
            processor: name of the node that fills the store.
            supplier: makes the processor, which gets each record and writes it into the store; it forwards nothing.
            key: type or serde of the keys in the topic.
            value: type or serde of the values in the topic.
            timestamp_extractor: as in `add_source`.

        Source: `Topology#addGlobalStore`; differs: logging need not be disabled.
        """
        self._filled(
            store, source, topic, processor, supplier, key, value, timestamp_extractor, whole=True, where=call_site()
        )
        return self

    def add_read_only_state_store(
        self,
        store: StoreBuilder[Any],
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: Typed[Any],
        value: Typed[Any],
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Adds a store that is filled from a topic, partition by partition; other processors can only read it.

        Args:
            store: made by `Stores`; connect it to the processors that read it.
            source: name of the node that reads the topic.
            topic: its name; nothing else reads it.
            processor: name of the node that fills the store.
            supplier: makes the processor, which gets each record and writes it into the store; it forwards nothing.
            key: type or serde of the keys in the topic.
            value: type or serde of the values in the topic.
            timestamp_extractor: as in `add_source`.

        Source: `Topology#addReadOnlyStateStore`; differs: writes of other processors are refused.
        """
        self._filled(
            store, source, topic, processor, supplier, key, value, timestamp_extractor, whole=False, where=call_site()
        )
        self._read_only[store.name] = processor
        return self

    def describe(self) -> str:
        """The text of `build().describe()`.

        Source: `Topology#describe`; differs: text, not objects.
        """
        return self.build().describe()

    def build(self) -> Plan:
        """Checks the topology and returns its plan.

        Raises:
            TopologyError: lists every problem, each with the line that caused it.
        """
        graph = self._graph
        nodes = [self._with_stores(node) for node in graph.nodes]
        problems = [*graph.problems, *check(nodes, graph.stores)]
        if problems:
            raise TopologyError(graph.name, list(dict.fromkeys(problems)))
        stores = [spec for spec, _ in graph.stores]
        stages, global_stages = split(nodes, stores), split_off_global(nodes, stores)
        return with_stored_values(Plan(name=graph.name, stages=stages, global_stages=global_stages))

    def _add(self, node: AnyNode) -> None:
        self._graph.add(node)

    def _filled(
        self,
        store: StoreBuilder[Any],
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        key: Typed[Any],
        value: Typed[Any],
        timestamp_extractor: TimestampExtractor | None,
        *,
        whole: bool,
        where: Origin,
    ) -> None:
        """Adds a source, a processor behind it, and the store that it fills."""
        self.add_source(source, topic, key=key, value=value, timestamp_extractor=timestamp_extractor)
        if whole:
            self._graph.change(source, whole=True)
        self.add_processor(processor, supplier, source)
        self._add_store(store, processor, where=where)

    def _add_store(self, store: StoreBuilder[Any], *processors: str, where: Origin) -> None:
        add_store(self._graph, store, where)
        for processor in processors:
            self._connect(processor, store.name, where)

    def _connect(self, processor: str, store: str, where: Origin) -> None:
        nodes = {node.name: node for node in self._graph.nodes}
        if not isinstance(nodes.get(processor), ProcessorNode | FixedKeyProcessorNode):
            what = "is not a processor" if processor in nodes else "is not added yet"
            self._graph.report(
                f"the store '{store}' cannot be connected: '{processor}' {what}.", where, "add the processor first"
            )
        elif (processor, store) not in self._connected:
            self._connected.append((processor, store))

    def _parents(self, name: str, parents: tuple[str, ...], where: Origin) -> None:
        """Reports invalid parents, as Kafka Streams does."""
        nodes = {node.name: node for node in self._graph.nodes}
        if not parents:
            self._graph.report(f"'{name}' has no parent.", where, "name at least one node that it gets records from")
        for parent in parents:
            if parent == name:
                self._graph.report(f"'{name}' cannot be its own parent.", where, "name another node")
            elif parent not in nodes:
                self._graph.report(f"'{name}': its parent '{parent}' is not added yet.", where, "add the parent first")
            elif isinstance(nodes[parent], TopicSink | ExtractedTopicSink):
                self._graph.report(f"'{name}': the sink '{parent}' cannot be a parent.", where, "name its parent")

    def _with_stores(self, node: AnyNode) -> AnyNode:
        if not isinstance(node, ProcessorNode | FixedKeyProcessorNode):
            return node
        connected = tuple(store for processor, store in self._connected if processor == node.name)
        reads = tuple(store for store in connected if self._read_only.get(store, node.name) != node.name)
        return replace(node, connected=connected, reads=reads)
