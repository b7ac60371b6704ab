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
    (BREAKAGES | OF_STORES)[name](patch)


def _nonce_not_compared(patch: Patch) -> None:
    from deltaworks.spark import protocol

    patch(protocol, "same_stamp", lambda local, truth: local.version == truth.version)


def _local_store_written_at_once(patch: Patch) -> None:
    from deltaworks.spark import slot

    original = slot._TaskRun.turn

    def turn(self: Any, inputs: Any, *, last: bool) -> Any:
        sent = original(self, inputs, last=last)
        with self._hosted.local.transaction() as transaction:
            transaction.apply(self._changes[-1])
            transaction.commit(self._header.stamp)
        return sent

    patch(slot._TaskRun, "turn", turn)


def _stamp_not_required(patch: Patch) -> None:
    from deltaworks.spark import local_store

    patch(local_store, "_require", lambda path, found, wanted: None)


def _boot_ignored(patch: Patch) -> None:
    from deltaworks.spark import local_files

    patch(local_files, "same_boot", lambda found, now: True)


def _members_one_by_one(patch: Patch) -> None:
    from deltaworks.spark import slot

    keep = slot._TaskRun.keep
    write = slot._TaskRun.write

    def write_and_keep(self: Any) -> None:
        write(self)
        keep(self)
        with self._hosted.local.transaction() as transaction:  # as if the next turn were not in this batch
            transaction.apply(self._hosted.pending.changes)
            transaction.commit(self._header.stamp)

    patch(slot._TaskRun, "write", write_and_keep)
    patch(slot._TaskRun, "keep", lambda self: None)


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
    "local store written before the batch is committed": _local_store_written_at_once,
    "transaction marker not read": _marker_skipped,
    "marker outside the transaction": _marker_outside_the_transaction,
    "Delta transaction id ignored": _delta_transaction_ignored,
    "one row altered": _one_row_altered,
}
"""Those that the orders pipeline shows under failures."""

OF_STORES: dict[str, Callable[[Patch], None]] = {
    "nonce not compared": _nonce_not_compared,
    "stamp not compared when a store is written": _stamp_not_required,
    "boot id ignored": _boot_ignored,
    "circle commits members one by one": _members_one_by_one,
}
"""Those that other tests show, each in its own."""
