"""Where records leave: they are encoded here and handed to the host's collector."""

from __future__ import annotations

from typing import Any, assert_never

from deltaworks.kernel.change import Change
from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed, Windowed
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind, TopicSink


def topic_sink(node: TopicSink, wiring: Wiring) -> Process:
    name, topic, unwritable, send = node.name, node.topic, wiring.context.unwritable, wiring.context.collector.send
    write_key, write_value = node.key.serialize, node.value.serialize
    window_bytes = _window_bytes(node.key)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            key_bytes = None if key is None else write_key(key)
            value_bytes = None if value is None else write_value(value)
        except Exception as error:
            return unwritable(name, error)
        if window_bytes and key_bytes is not None:
            return send(topic, key_bytes, value_bytes, timestamp_ms, headers, key_bytes[:-window_bytes])
        return send(topic, key_bytes, value_bytes, timestamp_ms, headers)

    return process


def _window_bytes(serde: Serde[Any]) -> int:
    """Bytes at the end of a key that name its window and do not decide the partition (`WindowedStreamPartitioner`)."""
    match serde:
        case TimeWindowed():
            return 8
        case SessionWindowed():
            return 16
        case _:
            return 0


def delta_sink(node: DeltaSink, wiring: Wiring) -> Process:
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
    table, context, append_row = node.table, wiring.context, wiring.context.collector.append_row

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        append_row(table, key, value, timestamp_ms, context.coordinates)

    return process


def _changing(node: DeltaSink, wiring: Wiring) -> Process:
    table, context, change_row = node.table, wiring.context, wiring.context.collector.change_row

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        change_row(table, key, change.new, timestamp_ms, context.coordinates)

    return process


def _windowed(node: DeltaSink, wiring: Wiring) -> Process:
    table, window_row = node.table, wiring.context.collector.window_row

    def process(key: Windowed[Any], change: Change, timestamp_ms: int, headers: Headers) -> None:
        window_row(table, key.key, key.start_ms, key.end_ms, change.new, timestamp_ms)

    return process
