"""Where records leave: they are encoded here and handed to the host's collector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from deltaworks.errors import ConfigurationError, ProductionError, SerializationError
from deltaworks.kernel.column_limits import RowCheck, no_day
from deltaworks.kernel.context import Process
from deltaworks.kernel.partitioning import chosen_partitions
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers, PartitionedCollector
from deltaworks.kernel.stores.keys import window_bytes
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes.sinks import CustomSink, DeltaSink, ExtractedTopicSink, TableKind, TopicSink
from deltaworks.topology.routing import RecordContext, StreamPartitioner

Send = Callable[[str, Any, Any, int, Headers], None]
"""`(topic, key, value, timestamp_ms, headers)`"""


def topic_sink(node: TopicSink, wiring: Wiring) -> Process:
    """A record that its topic does not take (`ProductionError`) fails like one that does not encode."""
    if node.partitioner is not None:
        topic, send_to = node.topic, _sending(node, node.partitioner, wiring)
        return lambda key, value, timestamp_ms, headers: send_to(topic, key, value, timestamp_ms, headers)
    name, topic, unwritable, send = node.name, node.topic, wiring.context.unwritable, wiring.context.collector.send
    write_key, write_value = node.key.serialize, node.value.serialize
    suffix_bytes, taken = window_bytes(node.key), wiring.raw_records.taken_by(name, wiring.context)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            key_bytes = None if key is None else write_key(key)
            value_bytes = None if value is None else write_value(value)
        except Exception as error:
            return unwritable(name, error, topic, process, key, value, timestamp_ms, headers)
        try:
            if suffix_bytes and key_bytes is not None:
                send(topic, key_bytes, value_bytes, timestamp_ms, headers, key_bytes[:-suffix_bytes])
            else:
                send(topic, key_bytes, value_bytes, timestamp_ms, headers)
        except ProductionError as error:
            return unwritable(name, error, topic, process, key, value, timestamp_ms, headers)
        if taken is not None:
            taken(key, value, timestamp_ms, headers)
        return None

    return process


def extracted_topic_sink(node: ExtractedTopicSink, wiring: Wiring) -> Process:
    """If the function raises, or names no topic, its record has failed."""
    name, extractor, context = node.name, node.extractor, wiring.context
    send = _sending(node, node.partitioner, wiring)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        read_from = context.coordinates
        try:
            topic = extractor(
                key, value, RecordContext(read_from.topic, read_from.partition, read_from.offset, timestamp_ms, headers)
            )
            if not isinstance(topic, str):
                raise TypeError(f"the extractor of topic names returned {topic!r}, which is not a name")
        except Exception as error:
            return context.failed(name, error, key, value, timestamp_ms, headers)
        return send(topic, key, value, timestamp_ms, headers)

    return process


def _sending(node: TopicSink | ExtractedTopicSink, partitioner: StreamPartitioner | None, wiring: Wiring) -> Send:
    """The slower way of a record: its topic or its partition is not known before."""
    name, context, collector = node.name, wiring.context, wiring.context.collector
    write_key, write_value = node.key.serialize, node.value.serialize
    suffix_bytes, taken = window_bytes(node.key), wiring.raw_records.taken_by(name, context)

    def send(topic: str, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            targets = None if partitioner is None else chosen_partitions(partitioner, topic, key, value, known(topic))
        except ProductionError as error:
            again = partial(send, topic)
            return context.unwritable(name, error, topic, again, key, value, timestamp_ms, headers)
        except Exception as error:
            return context.failed(name, error, key, value, timestamp_ms, headers)
        try:
            key_bytes = None if key is None else write_key(key)
            value_bytes = None if value is None else write_value(value)
        except Exception as error:
            again = partial(send, topic)
            return context.unwritable(name, error, topic, again, key, value, timestamp_ms, headers)
        if targets is not None and not targets:
            return context.drop()
        try:
            if targets is None:
                partition_key = key_bytes[:-suffix_bytes] if suffix_bytes and key_bytes is not None else None
                collector.send(topic, key_bytes, value_bytes, timestamp_ms, headers, partition_key)
            else:
                for partition in targets:  # the first one is refused, or none
                    send_to(topic, partition, key_bytes, value_bytes, timestamp_ms, headers)
        except ProductionError as error:
            again = partial(send, topic)
            return context.unwritable(name, error, topic, again, key, value, timestamp_ms, headers)
        if taken is not None:
            taken(key, value, timestamp_ms, headers)
        return None

    if partitioner is not None:
        if not isinstance(collector, PartitionedCollector):
            raise ConfigurationError(
                f"'{name}' has a partitioner of its own, which this host does not know.",
                hint="leave partitioner= out, or repartition(partitioner=...) before the sink",
            )
        known, send_to = collector.partitions, collector.send_to
    return send


def custom_sink(node: CustomSink, wiring: Wiring) -> Process:
    """The record goes as it is; the host writes it at the end of the batch.

    A record that the columns of the sink cannot hold, or that has no key though the sink finds its rows by it, is a
    production error, as with a Delta table. An update of a table that came out of order is left out.
    """
    name, context, add = node.name, wiring.context, wiring.context.collector.rows(node.name).add
    is_table, is_windowed = node.kind is not TableKind.APPEND, node.kind is TableKind.WINDOWED
    check = None if node.rows is None else RowCheck(node.rows)
    may_refuse, needs_key = getattr(node.sink, "may_refuse", False), node.needs_key
    if not (is_table or check or may_refuse or needs_key):
        return lambda key, value, timestamp_ms, headers: add((key, value, timestamp_ms, headers))

    def misfit(key: Any, value: Any) -> SerializationError | None:
        if key is None and needs_key:
            return SerializationError(f"a record for sink '{name}' has no key, by which the sink finds it again")
        if check is None:
            return None
        inner = key.key if is_windowed else key
        try:
            if check.key is not None:
                check.key(inner)
            if check.value is not None and value is not None:
                check.value(value)
            if check.both is not None and value is not None:
                check.both(inner, value)
        except Exception:
            return check.misfit(inner, value)
        return None

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        again: Process = process
        if is_table:
            if not value.is_latest:
                return None
            again = _with_change(process, value)
            value = value.new
        if (error := misfit(key, value)) is not None:
            return context.unwritable(name, error, None, again, key, value, timestamp_ms, headers)
        if may_refuse:
            return add((key, value, timestamp_ms, headers, context.as_read(name, timestamp_ms, headers)))
        return add((key, value, timestamp_ms, headers))

    return process


def delta_sink(node: DeltaSink, wiring: Wiring) -> Process:
    """A row that its table cannot hold (`kernel/column_limits.py`) is a production error, as if it did not encode.

    Then the table keeps the row that it has; what the operators before have in their stores stays there.
    """
    match node.kind:
        case TableKind.APPEND:
            return _appending(node, wiring)
        case TableKind.CHANGELOG:
            return _changing(node, wiring)
        case TableKind.WINDOWED:
            return _windowed(node, wiring)
        case _:
            assert_never(node.kind)


def _appending(node: DeltaSink, wiring: Wiring) -> Process:
    context, add = wiring.context, wiring.context.collector.rows(node.name).add
    check = RowCheck(node)
    check_key, check_value, check_both = check.key, check.value, check.both

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            if check_key is not None:
                check_key(key)
            if check_value is not None and value is not None:
                check_value(value)
            if check_both is not None and value is not None:
                check_both(key, value)
        except Exception:
            if (error := check.misfit(key, value)) is not None:
                return context.unwritable(node.name, error, None, process, key, value, timestamp_ms, headers)
        return add((key, value, timestamp_ms, context.coordinates))

    return process


def _changing(node: DeltaSink, wiring: Wiring) -> Process:
    """An update that came out of order would put an old version in the place of the latest one, so it is left out."""
    context, add = wiring.context, wiring.context.collector.rows(node.name).add
    check = RowCheck(node)
    check_key, check_value, check_both = check.key, check.value, check.both

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        if not change.is_latest:
            return None
        value = change.new
        try:
            if check_key is not None:
                check_key(key)
            if check_value is not None and value is not None:
                check_value(value)
            if check_both is not None and value is not None:
                check_both(key, value)
        except Exception:
            if (error := check.misfit(key, value)) is not None:
                again = _with_change(process, change)
                return context.unwritable(node.name, error, None, again, key, value, timestamp_ms, headers)
        return add((key, value, timestamp_ms, context.coordinates))

    return process


def _windowed(node: DeltaSink, wiring: Wiring) -> Process:
    table, context, add = node.table, wiring.context, wiring.context.collector.rows(node.name).add
    check = RowCheck(node)
    check_key, check_value, check_both = check.key, check.value, check.both

    def process(key: Windowed[Any], change: Change, timestamp_ms: int, headers: Headers) -> None:
        inner, start_ms, value, error = key.key, key.start_ms, change.new, None
        try:
            if not 0 <= start_ms <= LAST_MS:
                error = no_day(table, start_ms)
            if check_key is not None:
                check_key(inner)
            if check_value is not None and value is not None:
                check_value(value)
            if check_both is not None and value is not None:
                check_both(inner, value)
        except Exception:
            error = check.misfit(inner, value) or error
        if error is not None:
            again = _with_change(process, change)
            return context.unwritable(node.name, error, None, again, key, value, timestamp_ms, headers)
        return add((inner, value, timestamp_ms, start_ms, key.end_ms))

    return process


def _with_change(process: Process, change: Change) -> Process:
    """For the error handler, that is given values and may ask to write one again."""
    return lambda key, _, timestamp_ms, headers: process(key, change, timestamp_ms, headers)
