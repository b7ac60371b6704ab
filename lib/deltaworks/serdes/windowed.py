"""Keys of windowed tables, and their bytes as Kafka Streams writes them: the inner key, then the window."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import msgspec

from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.primitives import unfit, unreadable

K = TypeVar("K")

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")
LAST_END_MS = 2**63 - 1
"""End of a window that never ends."""


class Windowed(msgspec.Struct, Generic[K], frozen=True, order=True):
    """A key together with the window its record belongs to.

    `end_ms` is exclusive for time windows and inclusive for sessions and sliding windows, as in Kafka Streams.

    >>> Windowed("ann", 0, 60_000).end
    datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.timezone.utc)
    """

    key: K
    start_ms: int
    end_ms: int

    @property
    def start(self) -> datetime:
        """The start as an instant in UTC."""
        return _EPOCH + timedelta(milliseconds=self.start_ms)

    @property
    def end(self) -> datetime:
        """The end as an instant in UTC."""
        return _EPOCH + timedelta(milliseconds=self.end_ms)

    def __str__(self) -> str:
        return f"[{self.key}@{self.start_ms}/{self.end_ms}]"


class WindowEnds(Protocol):
    """What says where a window ends."""

    def end_of(self, start_ms: int, /) -> int:
        """The end of the window that starts then."""


@dataclass(frozen=True)
class FixedSize:
    """Windows of one length, of which no more is known."""

    size_ms: int

    def end_of(self, start_ms: int) -> int:
        """The end of the window that starts then; there is no time after the largest timestamp."""
        return min(start_ms + self.size_ms, LAST_END_MS)


_NO_KEY = "it has no key"


@dataclass(frozen=True)
class TimeWindowed(Generic[K]):
    """The inner key, then the start (8 bytes, big-endian); the end follows from the windows (`TimeWindowedSerde`).

    Args:
        inner: serde of the key.
        windows: what the key was windowed by, or how long each window is.

    >>> from deltaworks import String
    >>> TimeWindowed(String(), timedelta(minutes=1)).deserialize(b"ann" + bytes(8))
    Windowed(key='ann', start_ms=0, end_ms=60000)
    """

    inner: Serde[K]
    windows: timedelta | WindowEnds

    def __post_init__(self) -> None:
        if isinstance(self.windows, timedelta):
            if self.windows <= timedelta(0) or self.windows % _MILLISECOND:
                raise ValueError(f"the size of a window must be whole milliseconds, at least one, not {self.windows}")
        elif not hasattr(self.windows, "end_of"):
            number = isinstance(self.windows, int | float)
            example = f"timedelta(milliseconds={self.windows})" if number else "timedelta(minutes=5)"
            raise TypeError(f"TimeWindowed needs the windows or their size, such as {example}, not {self.windows!r}")

    @cached_property
    def ends(self) -> WindowEnds:
        """Says where a window ends."""
        if isinstance(self.windows, timedelta):
            return FixedSize(self.windows // _MILLISECOND)
        return self.windows

    @property
    def name(self) -> str:
        """Such as `time-windowed(string)`."""
        return f"time-windowed({self.inner.name})"

    @property
    def type(self) -> type[Windowed[K]]:
        """`Windowed[K]`."""
        return Windowed[self.inner.type]  # type: ignore[name-defined]

    def serialize(self, value: Windowed[K] | None) -> bytes:
        """The bytes of the inner key, then those of the start."""
        if value is None:
            return NULL
        if value.key is None:
            raise unfit(value, self.name, _NO_KEY)
        return self.inner.serialize(value.key) + _TIME.pack(value.start_ms)

    def deserialize(self, data: bytes | None) -> Windowed[K]:
        """The key and its window."""
        if data is None:
            return NULL
        if len(data) < _TIME.size:
            raise unreadable(data, self.name)
        (start_ms,) = _TIME.unpack_from(data, len(data) - _TIME.size)
        return Windowed(self.inner.deserialize(data[: -_TIME.size]), start_ms, self.ends.end_of(start_ms))


@dataclass(frozen=True)
class SessionWindowed(Generic[K]):
    """The inner key, the end, then the start (8 bytes each, big-endian; `SessionWindowedSerde`)."""

    inner: Serde[K]

    @property
    def name(self) -> str:
        """Such as `session-windowed(string)`."""
        return f"session-windowed({self.inner.name})"

    @property
    def type(self) -> type[Windowed[K]]:
        """`Windowed[K]`."""
        return Windowed[self.inner.type]  # type: ignore[name-defined]

    def serialize(self, value: Windowed[K] | None) -> bytes:
        """The bytes of the inner key, then those of the end and of the start."""
        if value is None:
            return NULL
        if value.key is None:
            raise unfit(value, self.name, _NO_KEY)
        return self.inner.serialize(value.key) + _TIMES.pack(value.end_ms, value.start_ms)

    def deserialize(self, data: bytes | None) -> Windowed[K]:
        """The key and its session."""
        if data is None:
            return NULL
        if len(data) < _TIMES.size:
            raise unreadable(data, self.name)
        end_ms, start_ms = _TIMES.unpack_from(data, len(data) - _TIMES.size)
        return Windowed(self.inner.deserialize(data[: -_TIMES.size]), start_ms, end_ms)
