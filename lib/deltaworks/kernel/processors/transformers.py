"""Tables whose rows are made by users' objects, which may use stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.processor_api import UserContext
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.base import Node
from deltaworks.topology.nodes.table_operators import TableTransformValues

Transform: TypeAlias = Callable[[Any, Any], Any]
"""`(key, value or None) -> value or None`"""


class _TransformerContext(UserContext):
    """A transformer returns its value, so it has nothing to forward."""

    def forward(self, record: object, child: str | None = None) -> None:
        raise RuntimeError(f"'{self._node.name}' forwards a record; a ValueTransformer returns the new value")


def transformer(node: TableTransformValues, of: Node, wiring: Wiring) -> Transform:
    """Makes an object; it is initialized when all processors of the task are built.

    Args:
        of: the operator that it works for, the node itself or one that looks rows up.
    """
    made, context = node.supplier(), _TransformerContext(of, wiring, node.connected)
    wiring.starts.append(lambda: context.start(made.init))
    wiring.closers.append(made.close)
    return made.transform


def table_transform_values(node: TableTransformValues, wiring: Wiring) -> Process:
    """Transforms the rows of a table. Unlike a mapper, a transformer is called for deletes.

    Source: `KTableTransformValues`.
    """
    transform = transformer(node, node, wiring)
    if node.store is not None:
        return _kept(node, node.store, transform, wiring)
    name, old_values = node.name, node.old_values
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        try:
            new = transform(key, change.new)
            old = transform(key, change.old) if old_values else None
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        return forward(key, Change(new, old, change.is_latest), timestamp_ms, headers)

    return process


def _kept(node: TableTransformValues, store_name: str, transform: Transform, wiring: Wiring) -> Process:
    """A table with its own store, which knows the old value."""
    name, store = node.name, wiring.table_store(store_name)
    failed, keep = wiring.context.failed, keeper(node, store, wiring)
    cache_key, freeze, thaw, entries = store.codec.cache_key, store.codec.freeze, store.codec.thaw, store.entries
    wants_old = node.old_values and not store.spec.cached

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        try:
            new = transform(key, change.new)
            entry_key = key if cache_key is None else cache_key(key)
            kept = new if freeze is None or new is None else freeze(new)
            old = entries.get(entry_key)[0] if wants_old else None
            if old is not None and thaw is not None:
                old = thaw(old)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        return keep(entry_key, key, kept, new, old, timestamp_ms, headers)

    return process
