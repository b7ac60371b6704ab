"""Joins of tables by a foreign key; `topology/nodes/foreign_keys.py` describes how the five operators work together.

Between the exchanges a record carries a `Subscription` or an `Answer` instead of a value. A digest of its bytes
identifies a left value: if its serde begins to write other bytes, answers to older subscriptions are dropped until the
row comes again (as in Kafka Streams).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, assert_never

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.views import is_versioned, lookup
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.serdes.foreign_keys import Answer, Instruction, Subscription
from deltaworks.topology.nodes.foreign_keys import (
    ForeignKeyAnswer,
    ForeignKeyRegister,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    ForeignKeyUpdate,
)


def subscribe(node: ForeignKeySubscribe, wiring: Wiring) -> Process:
    """Sends at most two subscriptions per update: one ends the old value's subscription, one is for the new value.

    Source: `SubscriptionSendProcessorSupplier`.
    """
    name, context, left = node.name, wiring.context, node.kind == "left"
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    foreign_key, task = node.foreign_key, context.partition
    write_key, write_value, write_other = node.key.serialize, node.value.serialize, node.other_key.serialize
    versioned = is_versioned(node.parents[0], wiring)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        if versioned and not change.is_latest:
            return drop()
        new, old = change.new, change.old
        try:
            key_bytes = write_key(key)
            before = None if old is None else foreign_key(key, old)
            after = None if new is None else foreign_key(key, new)
            moved = before is not None and (after is None or write_other(before) != write_other(after))
            digest = None if new is None else _digest(write_value(new))
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)

        def send(wanted: Any, instruction: Instruction) -> None:
            forward(wanted, Subscription(digest, instruction, key_bytes, task), timestamp_ms, headers)

        if left:
            if new is None and old is None:
                return None
            if moved:
                send(before, Instruction.DELETE)
            # Without a foreign key nothing is kept, but there is an answer: the row joins nothing, or is deleted.
            return send(after, Instruction.ANSWER)
        if after is None:
            if new is not None:
                drop()
            return send(before, Instruction.DELETE_AND_ANSWER) if before is not None else None
        if moved:
            send(before, Instruction.DELETE)
            # This side does not know whether the old row was found, so the right side must say that there is none now.
            return send(after, Instruction.ANSWER)
        return send(after, Instruction.ANSWER_IF_FOUND)

    return process


def register(node: ForeignKeyRegister, wiring: Wiring) -> Process:
    """Source: `SubscriptionReceiveProcessorSupplier`."""
    name, store = node.name, wiring.subscription_store(node.store)
    forward, failed = wiring.forward(name), wiring.context.failed
    write_key, put = node.key.serialize, store.put

    def process(key: Any, value: Subscription, timestamp_ms: int, headers: Headers) -> None:
        if key is not None:
            try:
                key_bytes = write_key(key)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            ends = value.instruction in (Instruction.DELETE, Instruction.DELETE_AND_ANSWER)
            put(key_bytes, value.key, None if ends else (value.digest, value.task))
        return forward(key, value, timestamp_ms, headers)

    return process


def answer(node: ForeignKeyAnswer, wiring: Wiring) -> Process:
    """Answers a subscription, with the larger timestamp of both sides.

    Source: `SubscriptionJoinProcessorSupplier`.
    """
    name, read_key = node.name, node.key.deserialize
    forward, failed = wiring.forward(name), wiring.context.failed
    row_of = lookup(node.table, wiring)

    def process(key: Any, value: Subscription, timestamp_ms: int, headers: Headers) -> None:
        try:
            row, row_ms = (None, -1) if key is None else row_of(key)[:2]
            left_key = read_key(value.key)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        match value.instruction:
            case Instruction.DELETE:
                return None
            case Instruction.ANSWER_IF_FOUND if row is None:
                return None
            case Instruction.DELETE_AND_ANSWER:
                found = None
            case Instruction.ANSWER | Instruction.ANSWER_IF_FOUND:
                found = row
            case _:
                assert_never(value.instruction)
        return forward(left_key, Answer(value.digest, found, value.task), max(timestamp_ms, row_ms), headers)

    return process


def update(node: ForeignKeyUpdate, wiring: Wiring) -> Process:
    """Answers with the timestamp of the right row, even if the left one is newer, as in Kafka Streams.

    Source: `ForeignTableJoinProcessorSupplier`.
    """
    name, store = node.name, wiring.subscription_store(node.store)
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    read_key, write_other = node.key.deserialize, node.other_key.serialize
    versioned = is_versioned(node.parents[0], wiring)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        if versioned and not change.is_latest:
            return drop()
        try:
            subscribers = store.subscribers(write_other(key))
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        row = change.new
        for key_bytes, (digest, task) in subscribers:
            forward(read_key(key_bytes), Answer(digest, row, task), timestamp_ms, headers)
        return None

    return process


def resolve(node: ForeignKeyResolve, wiring: Wiring) -> Process:
    """Drops an answer to a value that is no longer there, because another answer will come.

    Source: `ResponseJoinProcessorSupplier`.
    """
    name, joiner, write_value, left = node.name, node.joiner, node.value.serialize, node.kind == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    row_of = lookup(node.table, wiring)

    def process(key: Any, value: Answer, timestamp_ms: int, headers: Headers) -> None:
        try:
            row = row_of(key)[0]
            if (None if row is None else _digest(write_value(row))) != value.digest:
                return drop()
            absent = value.value is None and (row is None or not left)
            joined = None if absent else joiner(row, value.value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, joined, timestamp_ms, headers)

    return process


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()
