"""Where a topology begins: sources, and the build that checks everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar, get_args

from deltaworks.dsl.exchanges import keep_null_keys
from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.graph import BuilderConfig, Graph, call_site
from deltaworks.dsl.kstream import KStream
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import table_source
from deltaworks.dsl.materialized import Materialized, Stored, store_spec
from deltaworks.dsl.mistakes import Handle, check_choice, check_reads, check_rows, need_topics
from deltaworks.dsl.optimize import merge_exchanges, with_one_store
from deltaworks.dsl.point import Point, Typed, settle
from deltaworks.dsl.processing import add_store, check_supplier
from deltaworks.dsl.shown import collected
from deltaworks.dsl.state_stores import StoreBuilder
from deltaworks.errors import TopologyError
from deltaworks.serdes import Debezium
from deltaworks.serdes.base import onward
from deltaworks.topology.checks import check
from deltaworks.topology.nodes import ProcessorNode, Source, TableSource
from deltaworks.topology.nodes.sources import OnNull
from deltaworks.topology.plan import Plan
from deltaworks.topology.processors import Processor
from deltaworks.topology.registered import with_stored_values
from deltaworks.topology.split import split, split_off_global
from deltaworks.topology.timestamps import FailOnInvalidTimestamp, TimestampExtractor

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class _Reads:
    """How a source reads, besides its serdes."""

    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: Literal["earliest", "latest"] | None = None
    pattern: str | None = None
    whole: bool = False
    on_null: OnNull = "forward"

    @property
    def extractor(self) -> TimestampExtractor | None:
        """None for the extractor that every source has by default."""
        return None if isinstance(self.timestamp_extractor, FailOnInvalidTimestamp) else self.timestamp_extractor


class StreamsBuilder(Handle):
    """Collects a topology; the only mutable object of the DSL. It reads and writes nothing.

    Args:
        name: name of the topology, for messages.
        record_cache: stores forward only the last update per key, at a commit; without it, every update.
        explicit_names: what you must name: `stores`; `all`: repartitions too; `none`: names are generated as in Kafka
            Streams, and change when the topology does.
        optimize: repartitions of one stream are merged, and a stream joined with itself keeps one store.
        emit_interval: wall-clock pause between two checks for results that the end of a window releases; 0: no
            pause. Kafka Streams: one second.
        compatible_with_kafka: with `EmitStrategy.ON_WINDOW_CLOSE`, a window that leaves its store before it is
            forwarded is lost, as in Kafka Streams: a jump of stream time that is longer than the retention loses the
            open windows. They are counted in `TaskMetrics.lost_results`. By default, they are kept and forwarded.

    >>> builder = StreamsBuilder("shout")
    >>> builder.stream("in", key=str, value=str).map_values(str.upper).to("out")
    >>> print(builder.build().describe().rstrip())
    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [in])
          --> KSTREAM-MAPVALUES-0000000001
        Processor: KSTREAM-MAPVALUES-0000000001 (stores: [])
          --> KSTREAM-SINK-0000000002
          <-- KSTREAM-SOURCE-0000000000
        Sink: KSTREAM-SINK-0000000002 (topic: out)
          <-- KSTREAM-MAPVALUES-0000000001
    """

    def __init__(
        self,
        name: str = "topology",
        *,
        record_cache: bool = True,
        explicit_names: Literal["stores", "all", "none"] = "stores",
        optimize: bool = False,
        emit_interval: timedelta = timedelta(0),
        compatible_with_kafka: bool = False,
    ) -> None:
        config = BuilderConfig(
            record_cache=record_cache,
            explicit_names=explicit_names,
            optimize=optimize,
            emit_interval=emit_interval,
            compatible_with_kafka=compatible_with_kafka,
        )
        self._graph = Graph(name, config)

    def __repr__(self) -> str:
        return collected(self, self._graph)

    def stream(
        self,
        *topics: str,
        pattern: str | None = None,
        key: Typed[K],
        value: Typed[V],
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: Literal["earliest", "latest"] | None = None,
        on_null: OnNull = "forward",
        name: str | None = None,
    ) -> KStream[K, V]:
        """Reads one or several topics as a stream.

        Args:
            topics: names; several topics are read as one stream. A second call with the same types
                gives the same stream.
            pattern: instead of names, a regular expression that must match the whole name of a topic.
            key: type or serde of the keys.
            value: type or serde of the values.
            timestamp_extractor: `(record, partition_time_ms) -> timestamp_ms`; None: the record's own timestamp.
            offset_reset: where a new pipeline begins to read; None: the host's setting.
            on_null: what happens to a record whose value is null. `forward`: its value is None, as in Kafka Streams.
                `skip`: it is dropped and not decoded. `skip_empty`: so is a record with an empty value, `b""`. Like a
                record that a filter drops, it moves stream time; a timestamp extractor is not asked about it.
            name: name of the node.

        Source: `StreamsBuilder#stream`, `Consumed`; differs: serdes are never taken from a default; `on_null`.

        >>> builder = StreamsBuilder()
        >>> builder.stream("numbers", key=str, value=int, on_null="skip").map_values(lambda n: n + 1).to("next")
        """
        reads = _Reads(timestamp_extractor, offset_reset, pattern, on_null=on_null)
        return KStream(self._source(topics, key, value, name, "stream", reads))

    def table(
        self,
        topic: str,
        *,
        key: Typed[K],
        value: Typed[V],
        store: Stored = "",
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: Literal["earliest", "latest"] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Reads a topic as a table: the last record of a key counts, a null value deletes, a null key is dropped.

        Args:
            topic: its name.
            key: type or serde of the keys.
            value: type or serde of the values. `Debezium(Row)` reads the changes of a database's table.
            store: name of its store; part of the pipeline's state, so keep it. A table that is neither joined nor
                grouped needs none, unless `Debezium` reads it.
            timestamp_extractor: `(record, partition_time_ms) -> timestamp_ms`; None: the record's own timestamp.
            offset_reset: where a new pipeline begins to read; None: the host's setting.
            name: name of the node.

        State: a value per key, for ever; none without a store.
        Source: `StreamsBuilder#table`; differs: no.
        """
        where = call_site()
        kept = Materialized.of(store)
        check_rows(self._graph, value, operator="table", where=where)
        named = replace(kept, name=self._graph.store_name(kept.name, f"{topic}-"))
        at = self._source((topic,), key, value, name, "table", _Reads(timestamp_extractor, offset_reset))
        node = self._graph.name_of(f"{name}-table-source" if name else None, "KTABLE-SOURCE-")
        table: KTable[K, V] = table_source(at, node, kept, named, operator="table", where=where)
        if isinstance(value, Debezium):
            # Without its rows, the null after a deletion would be a second one.
            self._graph.materialize(node)
            self._graph.change(node, deletes_once=True)
        return table

    def global_table(
        self,
        topic: str,
        *,
        key: Typed[K],
        value: Typed[V],
        store: Stored = "",
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """Reads a topic as a table whose rows are all available to every task, so it can be joined by any key.

        The last record of a key counts, a null value deletes, a null key is dropped. Updates trigger nothing.

        Args:
            topic: its name; nothing else reads it.
            key: type or serde of the keys.
            value: type or serde of the values.
            store: name of its store; part of the pipeline's state, so keep it.
            timestamp_extractor: `(record, partition_time_ms) -> timestamp_ms`; None: the record's own timestamp.
            name: name of the node.

        State: a value per key, for ever, in every task.
        Source: `StreamsBuilder#globalTable`; differs: no.
        """
        where = call_site()
        graph, kept = self._graph, Materialized.of(store)
        check_rows(graph, value, operator="global_table", where=where)
        if kept.history is not None:
            graph.report("global_table cannot have a history.", where, "leave history=... out, or read it as a table")
        named = replace(kept, name=graph.store_name(kept.name, f"{topic}-"), history=None, caching=False)
        source_name = f"{name}-source" if name else None
        at = self._source((topic,), key, value, source_name, "global_table", _Reads(timestamp_extractor, whole=True))
        if not kept.name:
            graph.demand_name("global_table", where)
        spec = store_spec(at, named, kind="key-value", value=at.value, operator="global_table", where=where)
        graph.add_store(spec, where)
        node = TableSource(
            name=graph.name_of(name, "KTABLE-SOURCE-"), parents=(at.node,), store=spec.name, origin=where
        )
        return GlobalKTable(at.then(node), spec.name, named=bool(kept.name))

    def add_state_store(self, store: StoreBuilder[Any]) -> StreamsBuilder:
        """Adds a store for processors, which name it: `stream.process(Count, "counts")`.

        Args:
            store: made by `Stores`. Processors that share it are in one stage.

        Source: `StreamsBuilder#addStateStore`; differs: it may also be added after the processors that name it.
        """
        add_store(self._graph, store, call_site())
        return self

    def add_global_store(
        self,
        store: StoreBuilder[Any],
        topic: str,
        supplier: Callable[[], Processor[K, V, Any, Any]],
        *,
        key: Typed[K],
        value: Typed[V],
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Adds a store that every task can read as a whole, filled from a topic by a processor that you write.

        Args:
            store: made by `Stores`. Every processor may read it without naming it.
            topic: its name; nothing else reads it.
            supplier: makes the processor that gets each record and writes it into the store; it forwards nothing.
            key: type or serde of the keys in the topic.
            value: type or serde of the values in the topic.
            timestamp_extractor: `(record, partition_time_ms) -> timestamp_ms`; None: the record's own timestamp.
            name: name of the node.

        State: what the processor puts into the store, in every task.
        Source: `StreamsBuilder#addGlobalStore`; differs: no.
        """
        where = call_site()
        graph = self._graph
        source_name = f"{name}-source" if name else None
        at = self._source(
            (topic,), key, value, source_name, "add_global_store", _Reads(timestamp_extractor, whole=True)
        )
        check_supplier(graph, supplier, Processor, operator="add_global_store", where=where)
        add_store(graph, store, where)
        graph.add(
            ProcessorNode(
                name=graph.name_of(name, "KTABLE-SOURCE-"),
                parents=(at.node,),
                supplier=supplier,
                connected=(store.name,),
                origin=where,
            )
        )
        return self

    def build(self) -> Plan:
        """Checks the topology and returns its plan.

        Raises:
            TopologyError: lists every problem, each with the line that caused it.
        """
        graph = self._graph
        for node, where in graph.open_splits.items():
            graph.report(
                f"the split '{node}' is not ended, so its branches do not exist.",
                where,
                "end it with .default_branch() or .no_default_branch()",
            )
        problems = [*graph.problems, *check(graph.nodes, graph.stores)]
        if problems:
            raise TopologyError(graph.name, list(dict.fromkeys(problems)))
        nodes = merge_exchanges(graph.nodes, graph.mergeable_exchanges) if graph.config.optimize else graph.nodes
        nodes, stores = keep_null_keys(nodes), [spec for spec, _ in graph.stores]
        if graph.config.optimize:
            nodes, stores = with_one_store(nodes, stores)
        stages, global_stages = split(nodes, stores), split_off_global(nodes, stores)
        return with_stored_values(Plan(name=graph.name, stages=stages, global_stages=global_stages))

    def _source(
        self,
        topics: tuple[str, ...],
        key: Typed[K],
        value: Typed[V],
        name: str | None,
        operator: str,
        reads: _Reads | None = None,
    ) -> Point:
        where = call_site()
        graph = self._graph
        key_serde = settle(graph, key, None, operator=operator, argument="key", where=where)
        value_serde = settle(graph, value, None, operator=operator, argument="value", where=where)
        reads = reads or _Reads()
        need_topics(graph, topics, operator=operator, where=where)
        check_reads(graph, reads.timestamp_extractor, reads.offset_reset, operator=operator, where=where)
        check_choice(graph, reads.on_null, get_args(OnNull), f"{operator}: on_null", where)
        if not topics and reads.pattern is None:
            graph.report(f"{operator} reads no topic.", where, f"{operator}('orders', ...)")
        elif topics and reads.pattern is not None:
            graph.report(
                f"{operator} has both topic names and a pattern.", where, "give the names, or pattern='sensor-.*'"
            )
        node = Source(
            name=graph.name_of(name, "KSTREAM-SOURCE-"),
            topics=tuple(sorted(set(topics))),
            key=key_serde,
            value=value_serde,
            pattern=reads.pattern,
            timestamp_extractor=reads.extractor,
            offset_reset=reads.offset_reset,
            whole=reads.whole,
            on_null=reads.on_null,
            origin=where,
        )
        # No topic name begins with a tilde.
        read = node.topics or (f"~{node.pattern}",)
        same = graph.streams.get(read)
        if operator == "stream" and same is not None and replace(same, name=node.name) == node:
            node = same
        else:
            graph.add(node)
        if operator == "stream":
            graph.streams.setdefault(read, node)
        return Point(graph, node.name, key_serde, onward(value_serde))
