"""Planted breakages: each takes one safeguard away, and the kill test or the demo check must turn red.

`plant` runs in the driver and in every worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Patch = Callable[[Any, str, Any], None]
"""`setattr`, or that of pytest's `monkeypatch`."""


def plant(name: str, patch: Patch = setattr) -> None:
    """Installs a breakage in this process."""
    BREAKAGES[name](patch)


def _nonce_not_compared(patch: Patch) -> None:
    from deltaworks.spark import protocol

    patch(protocol, "same_stamp", lambda local, truth: local.version == truth.version)


def _undo_skipped(patch: Patch) -> None:
    from deltaworks.spark import protocol
    from deltaworks.spark.local_store import LocalStore

    def pretend(local: LocalStore) -> None:
        header = local.header()
        assert header is not None and header.previous is not None
        local.commit({}, header.previous, None)

    patch(protocol, "undo", pretend)


def _marker_skipped(patch: Patch) -> None:
    from deltaworks.kafka.transactional import TransactionalSink

    patch(TransactionalSink, "_read_marker", lambda self: None)


def _marker_outside_the_transaction(patch: Patch) -> None:
    from confluent_kafka import Producer

    from deltaworks.kafka.control_topic import Marker, encode
    from deltaworks.kafka.transactional import TransactionalSink

    producers: list[Producer] = []

    def write_alone(self: Any) -> None:
        if not producers:
            producers.append(Producer({"bootstrap.servers": self._bootstrap, "log_level": 0}))
        place, marker = self._place, Marker(batch=self._batch_id, intent=self._intent)
        producers[0].produce(place.topic, encode(marker), place.key, place.partition)
        producers[0].flush(10)

    patch(TransactionalSink, "_mark", write_alone)


def _delta_transaction_ignored(patch: Patch) -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    patch(TableCommitter, "already_committed", lambda *args: False)


def _one_row_altered(patch: Patch) -> None:
    from deltaworks.spark.collector import TaskCollector

    original = TaskCollector.window_row
    altered: list[tuple[Any, int]] = []

    def window_row(self: Any, table: str, key: Any, start: int, end: int, value: Any, timestamp: int) -> None:
        if table == "order_counts":
            if not altered:
                altered.append((key, start))
            value += (key, start) == altered[0]
        original(self, table, key, start, end, value, timestamp)

    patch(TaskCollector, "window_row", window_row)


BREAKAGES: dict[str, Callable[[Patch], None]] = {
    "nonce not compared": _nonce_not_compared,
    "undo skipped": _undo_skipped,
    "transaction marker not read": _marker_skipped,
    "marker outside the transaction": _marker_outside_the_transaction,
    "Delta transaction id ignored": _delta_transaction_ignored,
    "one row altered": _one_row_altered,
}
