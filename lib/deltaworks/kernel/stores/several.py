"""All values of one key and window as one value: what a window store that retains duplicates keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltaworks.kernel.stores.lists import pack, unpack
from deltaworks.serdes.base import Serde


@dataclass(frozen=True)
class Several:
    """Tuples of values, in the order in which they were put."""

    inner: Serde[Any]

    @property
    def name(self) -> str:
        return f"several({self.inner.name})"

    @property
    def type(self) -> Any:
        return tuple[self.inner.type, ...]  # type: ignore[name-defined]

    def serialize(self, value: tuple[Any, ...]) -> bytes:
        return pack(map(self.inner.serialize, value))

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        return tuple(map(self.inner.deserialize, unpack(data)))
