"""What the newest batch of a task has changed, in a file beside its local store, for those who read stores.

A local store holds what batches have left that its task knows to be committed, so the changes of the newest batch wait
in a worker's memory (`recovery`). They are also here, before Spark can commit the batch. A reader takes them into
account once Spark has committed it. The file is not synced: it may be lost with its local store.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from zlib import crc32

import msgspec

from deltaworks.errors import StateError, StoreUnavailableError
from deltaworks.files import replace_file
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog, local_files
from deltaworks.runtime.state.local_store import StateVersion

FORMAT = 1
NAME = "published"
_PREFIX = struct.Struct(">4sBII")
"""Mark, format, checksum of what follows, bytes of the head."""
_MARK = b"DWPB"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Whose changes they are."""

    batch: int
    """Id of the batch, as in its intent."""
    intent: str
    """Digest of the batch's intent."""
    base: StateVersion
    """The version of the state that they were made from."""
    version: StateVersion
    """The version that they lead to; equal to `base` if the task had nothing to do."""
    chunks: tuple[int, ...]
    """Sizes of the chunks of the changes, in bytes."""


class Published:
    """The content of a file. The changes are decoded when they are needed."""

    def __init__(self, head: Head, body: memoryview) -> None:
        self.head, self._body = head, body

    def changes(self) -> Mapping[str, StoreChanges]:
        """The changes of the batch, by store."""
        if not self.head.chunks:
            return {}
        pieces, begin = [], 0
        for size in self.head.chunks:
            pieces.append(bytes(self._body[begin : begin + size]))
            begin += size
        return changelog.merge(changelog.decode(pieces), oldest=False)


def write(
    folder: Path,
    batch: int,
    intent: str,
    versions: tuple[StateVersion, StateVersion],
    chunks: Sequence[bytes] = (),
) -> None:
    """Replaces the file of a task.

    Args:
        folder: of the task's local store.
        batch: id of the batch.
        intent: digest of its intent.
        versions: the version that the changes were made from, and that to which they lead.
        chunks: the changes, as `changelog.encode` gives them.
    """
    head = msgspec.msgpack.encode(Head(batch, intent, *versions, tuple(map(len, chunks))))
    total = crc32(head)
    for chunk in chunks:
        total = crc32(chunk, total)
    replace_file(folder / NAME, b"".join([_PREFIX.pack(_MARK, FORMAT, total, len(head)), head, *chunks]))


def read(folder: Path) -> Published | None:
    """What a task has published; None: nothing, or in another format.

    Raises:
        StoreUnavailableError: the file is damaged.
    """
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _PREFIX.size:
        raise _damaged(folder)
    mark, found, total, size = _PREFIX.unpack_from(data)
    if mark != _MARK:
        raise _damaged(folder)
    if found != FORMAT:
        return None
    content = memoryview(data)[_PREFIX.size :]
    if crc32(content) != total:
        raise _damaged(folder)
    return Published(msgspec.msgpack.decode(content[:size], type=Head), content[size:])


def remove(folder: Path) -> None:
    """Nobody is told anything any more."""
    (folder / NAME).unlink(missing_ok=True)


def is_there(folder: Path) -> bool:
    """Whether a task has published what belongs to the store in its folder, which may be opened."""
    try:
        local_files.require_intact(folder)
    except StateError:
        return False
    return (folder / NAME).exists()


def _damaged(folder: Path) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{folder / NAME} is damaged.", hint="the next batch of the task writes it again; until then it is not read"
    )
