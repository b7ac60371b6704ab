"""Planted breakages: each takes one safeguard away, and the kill test or the demo check must turn red.

`plant` runs in the driver and in every worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def plant(name: str) -> None:
    """Installs a breakage in this process."""
    BREAKAGES[name]()


def _nonce_not_compared() -> None:
    from deltaworks.spark import protocol

    protocol.same_stamp = lambda local, truth: local.version == truth.version


def _undo_skipped() -> None:
    from deltaworks.spark import protocol
    from deltaworks.spark.local_store import LocalStore

    def pretend(local: LocalStore) -> None:
        header = local.header()
        assert header is not None and header.previous is not None
        local.commit({}, header.previous, None)

    protocol.undo = pretend


def _marker_skipped() -> None:
    from deltaworks.kafka.transactional import TransactionalSink

    TransactionalSink._read_marker = lambda self: 0  # type: ignore[method-assign]


def _offset_outside_the_transaction() -> None:
    from confluent_kafka import Consumer, TopicPartition

    from deltaworks.kafka.transactional import TransactionalSink

    def commit_alone(self: Any, batch_id: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(self._marker_topic, 0, batch_id + 1)], asynchronous=False)
        consumer.close()

    TransactionalSink._mark = commit_alone  # type: ignore[method-assign]


def _delta_transaction_ignored() -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    TableCommitter.already_committed = lambda *args: False  # type: ignore[method-assign]


def _one_row_altered() -> None:
    from deltaworks.spark.collector import TaskCollector

    original = TaskCollector.window_row
    altered: list[bool] = []

    def window_row(self: Any, table: str, key: Any, start: int, end: int, value: Any, timestamp: int) -> None:
        if table == "order_counts" and value is not None and not altered:
            altered.append(True)
            value += 1
        original(self, table, key, start, end, value, timestamp)

    TaskCollector.window_row = window_row  # type: ignore[method-assign]


BREAKAGES: dict[str, Callable[[], None]] = {
    "nonce not compared": _nonce_not_compared,
    "undo skipped": _undo_skipped,
    "transaction marker not read": _marker_skipped,
    "offset outside the transaction": _offset_outside_the_transaction,
    "Delta transaction id ignored": _delta_transaction_ignored,
    "one row altered": _one_row_altered,
}
