"""What a driver tells the registry, and what it is told."""

from __future__ import annotations

from typing import Protocol

from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat


class Reporter(Protocol):
    """Never blocks and never fails the driver, whatever happens to whom it reports to."""

    def beat(self, beat: Heartbeat) -> None:
        """A new heartbeat."""

    def batch(self, record: BatchRecord, query_id: str) -> None:
        """A batch was committed by the checkpoint `query_id`."""

    def asked_to_drain(self) -> bool:
        """Whether somebody wants this generation to finish and stop.

        Raises:
            FencedError: a newer generation has taken over.
        """
        ...

    def close(self) -> None:
        """Reports what is left, for a short while."""


class SilentReporter:
    """Reports to nobody."""

    def beat(self, beat: Heartbeat) -> None:
        pass

    def batch(self, record: BatchRecord, query_id: str) -> None:
        pass

    def asked_to_drain(self) -> bool:
        return False

    def close(self) -> None:
        pass
