"""Holding back the updates of a table."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.suppressed import BufferConfig


@dataclass(frozen=True, kw_only=True)
class Suppress(Node):
    """Keeps the last update per key until its time has come."""

    wait_ms: int
    """An update is forwarded once `its time <= observed time - wait_ms`."""
    until_window_closes: bool
    """Whether its time is the end of its window and deletes are dropped; else it is that of the first held update."""
    stays_open_ms: int
    """How far observed time may pass the end of a window before its row is final (see `WindowClock`)."""
    buffer: BufferConfig
    store: str
    """The store of the held updates."""

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: f"updates held back for {self.wait_ms} ms"}
