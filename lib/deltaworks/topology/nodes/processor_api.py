"""Processors that users write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.processors import FixedKeyProcessor, Processor


@dataclass(frozen=True, kw_only=True)
class _UserNode(Node):
    connected: tuple[str, ...] = ()
    """The stores that it may read and write; it may always read global ones."""
    reads: tuple[str, ...] = ()
    """The stores among them that something else fills; it may only read these."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.connected

    @property
    def fills(self) -> dict[str, str]:
        return {store: "processor" for store in self.connected if store not in self.reads}


@dataclass(frozen=True, kw_only=True)
class ProcessorNode(_UserNode):
    """Gets records and forwards any records (`KStream.process`, `Topology.add_processor`)."""

    supplier: Callable[[], Processor[Any, Any, Any, Any]]
    """Makes one object per task."""


@dataclass(frozen=True, kw_only=True)
class FixedKeyProcessorNode(_UserNode):
    """The same, but keys stay as they are (`KStream.process_values`)."""

    supplier: Callable[[], FixedKeyProcessor[Any, Any, Any]]
    """Makes one object per task."""
