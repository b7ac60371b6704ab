"""What a store answers. Every answer says as of which batch it is."""

from __future__ import annotations

import base64
import binascii
from typing import Generic, TypeVar

import msgspec

from deltaworks.errors import StoreQueryError
from deltaworks.kafka.ranges import Offsets

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of an answer: the end of a batch that is committed."""

    batch: int
    """Id of the batch, as in the record of batches and in tables."""
    time_ms: int
    """The time of the batch, by the clock of the stream's machine."""
    offsets: Offsets
    """Topic -> partition -> the next offset after the batch; for a global table, how far it was read itself."""


class Found(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """The value of a key."""

    value: V | None
    """None: there is none."""
    timestamp_ms: int | None
    """The time of the record that it is from; None: there is no value, or the store keeps no times."""
    task: int | None
    """The task that has it; None: no task, or a global table."""
    as_of: AsOf


class Entry(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with its value."""

    key: K
    value: V
    timestamp_ms: int | None


class Change(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with what a batch has left in it."""

    key: K
    value: V | None
    """None: it is gone."""
    timestamp_ms: int | None


class WindowChange(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with what a batch has left of it in a window."""

    key: K
    start_ms: int
    end_ms: int
    """Exclusive."""
    value: V | None
    """None: it is gone."""
    timestamp_ms: int | None


class SessionChange(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with what a batch has left of it in a session; one that has grown is another session, and the old one is
    gone."""

    key: K
    start_ms: int
    end_ms: int
    """Inclusive: the time of its last record."""
    value: V | None
    """None: it is gone."""


class Changes(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """What a batch has changed."""

    rows: tuple[R, ...] | None
    """Each key once (with its window or session), in the order of their bytes; None: it is not known any more, since
    the stream has gone on."""
    as_of: AsOf


class Several(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """Several keys with their values."""

    entries: tuple[Entry[K, V] | None, ...]
    """In the order of the question; None: the key has no value."""
    as_of: AsOf


class Window(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with its value in a window."""

    key: K
    start_ms: int
    end_ms: int
    """Exclusive."""
    value: V
    timestamp_ms: int | None


class Session(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A key with its value in a session."""

    key: K
    start_ms: int
    end_ms: int
    """Inclusive: the time of its last record."""
    value: V


class Version(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A version of a key."""

    value: V | None
    """None: there is none."""
    valid_from_ms: int | None
    task: int | None
    as_of: AsOf


class Page(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """Some rows, in order."""

    rows: tuple[R, ...]
    next: str | None
    """Where the next page begins, for `after=`; None: this is the last one. The next page is as of its own batch."""
    as_of: AsOf


class StoreMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A store that can be read."""

    store: str
    kind: str
    key: str
    """Type of its keys."""
    value: str
    """Type of its values."""
    tasks: int
    """Number of tasks that have a part of it; 0: a global table, which is whole on every machine."""
    timestamped: bool
    """Whether its values have times."""


class KeyMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key is."""

    store: str
    task: int | None
    """The task that has it, or has it first in a search; None: all are asked."""
    certain: bool
    """Whether no other task can have it: what others write into a topic may be partitioned otherwise."""


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a store."""

    store: str
    kind: str
    entries: int
    """Windows, sessions and versions count one by one; expired ones that are still there, too."""
    size_bytes: int
    """What its pages take on the disk, with those of its index by time; some of them are partly filled."""
    oldest_ms: int | None
    """Timed stores: the time of the oldest entry; None: there is none."""
    newest_ms: int | None
    """Timed stores: the newest time ever put."""
    as_of: AsOf


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ends: the key in the order of the rows, and the task."""

    key: bytes
    task: int


def after(place: Place) -> str:
    """A place as text."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")


def place_of(text: str) -> Place:
    """Inverse of `after`.

    Raises:
        StoreQueryError: it is not from a page.
    """
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Place)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise StoreQueryError(f"{text!r} is not where a page ends.", hint="give what a page says as `next`") from error
