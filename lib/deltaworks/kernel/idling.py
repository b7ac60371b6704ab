"""Waiting for the other side: when a task may process the records at hand although one of its partitions has none.

A join sees the records of both sides in time order only as long as both have some at hand. With `max_task_idle` a task
waits that long, on the wall clock, for the partitions that have none.

The host asks before each record and keeps the records that have to wait. The wait is not remembered: after a restart
the task begins to wait again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Idling:
    """The partitions that one task waits for.

    Source: `PartitionGroup#readyToProcess`, KIP-695; differs: there, partitions are waited for one after the other.
    """

    def __init__(self, max_idle_ms: int | None) -> None:
        """
        Args:
            max_idle_ms: How long it waits for a partition without records; None: not at all.
        """
        self._max_idle_ms = max_idle_ms
        self._deadlines_ms: dict[Hashable, int] = {}

    def ready(self, with_records: Iterable[Hashable], without: Iterable[Hashable], wall_clock_ms: int) -> bool:
        """Whether the task may process a record now.

        Args:
            with_records: Its partitions that have a record at hand.
            without: Its partitions that have none.
            wall_clock_ms: The time now.
        """
        if self._max_idle_ms is None:
            return True
        for partition in with_records:
            self._deadlines_ms.pop(partition, None)
        ready = True
        for partition in without:
            if self._deadlines_ms.setdefault(partition, wall_clock_ms + self._max_idle_ms) > wall_clock_ms:
                ready = False
        return ready
