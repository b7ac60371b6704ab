"""What is asked of a server beside the stores of an executor, and how requests are signed.

A request reads one store of one task as of a batch, in bytes: the server knows neither topology nor serdes. Requests
and answers are msgpack. A request is signed with a token that the driver has made for its executors; what an executor
hosts is for nobody else.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeAlias

import msgspec

FORMAT = 1
PATH = "/read"
"""Behind the URL of a server, which ends with a name of its own: another one may get its port."""
SIGNATURE = "x-signature"
GLOBAL = "global-"
"""What the name of a global stage begins with."""
MAX_ENTRIES = 4_096
"""Entries of an answer at most."""
MAX_BYTES = 4 * 1024 * 1024
"""An answer ends with the entry that makes it as large as this."""
Entries: TypeAlias = list[tuple[bytes, bytes]]


class OfBatch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """The state that a committed batch has left."""

    batch: int
    intents: tuple[tuple[int, str], ...]
    """Digests of the intents of the last committed batches."""


class OfVersion(msgspec.Struct, frozen=True, array_like=True, tag="version"):
    """The state of a global table."""

    nonce: bytes | None
    """As an earlier answer said; None: the newest one."""


class Get(msgspec.Struct, frozen=True, array_like=True, tag="get"):
    """The values of keys: `list[bytes | None]`."""

    keys: list[bytes]


class Scan(msgspec.Struct, frozen=True, array_like=True, tag="scan"):
    """Entries between two keys: `Part`."""

    start: bytes
    stop: bytes | None
    reverse: bool
    limit: int


class ScanTime(msgspec.Struct, frozen=True, array_like=True, tag="scan-time"):
    """Entries of a span of time: `Part`."""

    start_ms: int
    stop_ms: int | None
    skip: int
    """The first entries that the asker has already."""
    limit: int


class Size(msgspec.Struct, frozen=True, array_like=True, tag="size"):
    """Entries and bytes: `tuple[int, int]`."""


class Changes(msgspec.Struct, frozen=True, array_like=True, tag="changes"):
    """What the batch has changed: `list[tuple[bytes, bytes | None]] | None`."""


class Version(msgspec.Struct, frozen=True, array_like=True, tag="version"):
    """The nonce of a global table's state: `bytes`."""


Question: TypeAlias = Get | Scan | ScanTime | Size | Changes | Version


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Entries in their order."""

    entries: Entries
    is_last: bool
    """Nothing follows."""


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One request."""

    format: int
    stage: int
    task: int | None
    """None: the stage is one of global tables."""
    store: str
    state: OfBatch | OfVersion
    question: Question


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What the server is told on its standard input."""

    folder: str
    """Of the stores of all tasks."""
    stores: dict[str, dict[str, bool]]
    """Number of a stage, behind `GLOBAL` if it has global tables -> its stores, and whether each has an index by time;
    see `local_store.stores_of`."""
    token: str
    name: str
    """Of the server."""
    listener: int
    """The socket that it listens at, an open file."""
    host_process: int
    """A pidfd: it ends when this process does."""


def signature(token: str, body: bytes) -> str:
    """The signature of a request."""
    return hmac.new(token.encode(), body, hashlib.sha256).hexdigest()
