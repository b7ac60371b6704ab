"""Records that tasks send to tasks of later stages within a chunk: a file per sender and receiver, read step by step.

A file is a sequence of frames: the length of what follows (4 bytes), then msgpack `(batch, RecordBatch)`. In an object
store, each attempt has files of its own, which are there once it has closed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from deltaworks.files import make_folder, opened, written_here
from deltaworks.kernel.records import RecordBatch
from deltaworks.lakehouse import layout
from deltaworks.object_path import ObjectPath, path_of
from deltaworks.runtime.task_loop import TaskId

_SIZE = 4
_encoder = msgspec.msgpack.Encoder()


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    batch: int
    records: RecordBatch


_decoder = msgspec.msgpack.Decoder(_Frame)


class ExchangeWriter:
    """Writes the records that one task chunk sends."""

    def __init__(self, folder: Path, sender: str) -> None:
        self._folder, self._sender = folder, sender
        self._files: dict[TaskId, BinaryIO] = {}
        self._paths: dict[TaskId, Path] = {}
        self._open = ExitStack()

    def add(self, batch: int, to: TaskId, records: RecordBatch) -> None:
        """Adds the records for one task in a batch; called in the order of batches."""
        file = self._files.get(to)
        if file is None:
            path = self._paths[to] = self._path(to)
            place = self._open.enter_context(written_here(path))
            make_folder(place.parent, durable=False)
            file = self._files[to] = self._open.enter_context(place.open("wb"))
        data = _encoder.encode(_Frame(batch, records))
        file.write(len(data).to_bytes(_SIZE, "big") + data)

    @property
    def files(self) -> tuple[tuple[TaskId, str], ...]:
        """The receivers and their files."""
        return tuple((to, str(path)) for to, path in self._paths.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _path(self, to: TaskId) -> Path:
        attempt = f"-{layout.nonce()}" if isinstance(self._folder, ObjectPath) else ""
        return self._folder / f"{to[0]}-{to[1]}-from-{self._sender}{attempt}"


class ExchangeReader:
    """What one task gets."""

    def __init__(self, files: Iterable[str]) -> None:
        self._frames = [_frames(path_of(file)) for file in files]
        self._heads = [next(frames, None) for frames in self._frames]

    def take(self, batch: int) -> list[RecordBatch]:
        """The records that were sent to it in a batch; called in the order of batches."""
        found: list[RecordBatch] = []
        for number, head in enumerate(self._heads):
            while head is not None and head.batch == batch:
                found.append(head.records)
                head = self._heads[number] = next(self._frames[number], None)
        return found


def _frames(path: Path) -> Iterator[_Frame]:
    with opened(path) as file:
        while size := file.read(_SIZE):
            yield _decoder.decode(file.read(int.from_bytes(size, "big")))
