"""The batch record in an object store, which cannot append to a file.

```
<folder>/index                    a line with the files, then the last batches; replaced by compare and swap
<folder>/<first batch>-<random>   records, a JSON line each; never changed
```

Only files that the index names count. So a driver that was replaced changes nothing: it may write a file, but its index
is not the one that it has read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec

from deltaworks import formats
from deltaworks.faults import reach
from deltaworks.files import Stored, contents, delete, files_in, swap, write_new
from deltaworks.object_path import ObjectPath

FORMAT = 1
INDEX = "index"
INDEX_RECORDS, FILE_RECORDS = 200, 10_000
"""At most so many records are in the index, and about so many in a file."""
_DIGITS = 12


T = TypeVar("T")


class _Number(msgspec.Struct):
    """What a record has to have."""

    batch: int


class _File(msgspec.Struct, frozen=True):
    name: str
    first: int
    """The first batch in it."""
    last: int
    records: int


class _Index(msgspec.Struct, frozen=True):
    format: int = FORMAT
    files: tuple[_File, ...] = ()


_Lines = tuple[bytes, ...]
_numbers = msgspec.json.Decoder(_Number)


class StoredRecords:
    """The record of one pipeline. A record is a line: an object in JSON with the number of its `batch`.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: ObjectPath) -> None:
        self._folder, self._files = folder, files_in(folder)

    def append(self, record: bytes, admitted: Callable[[], AbstractContextManager[None]]) -> None:
        """Writes the record of a batch, unless it is there.

        The index is read before `admitted` looks whether a newer driver runs. So whoever was replaced either sees that,
        or finds another index than the one it has read as soon as its successor has written.
        """
        while not self._of_now(lambda *now: self._append(record, admitted, *now)):
            pass

    def read(self) -> Iterator[bytes]:
        """All records, in order."""
        while True:
            index, lines, stored = self._index()
            begun = False
            try:
                for data in contents(self._folder / each.name for each in index.files):
                    begun = True
                    yield from data.splitlines()
                yield from lines
                return
            except FileNotFoundError:  # it was brought together with others since
                if begun or self._index()[2] == stored:
                    raise

    def last(self) -> bytes | None:
        """The newest record."""

        def last(index: _Index, lines: _Lines, _: Stored | None) -> bytes | None:
            if not lines and index.files:
                lines = self._lines_of(index.files[-1])
            return lines[-1] if lines else None

        return self._of_now(last)

    def newest(self, reaches: Callable[[bytes], bool]) -> list[bytes]:
        """The newest records, in order, from the first one of a file on; older files are not read.

        Args:
            reaches: whether those from this record on are enough.
        """

        def newest(index: _Index, lines: _Lines, _: Stored | None) -> list[bytes]:
            found = [lines]
            files = iter(reversed(index.files))
            while not (found[-1] and reaches(found[-1][0])) and (file := next(files, None)) is not None:
                found.append(self._lines_of(file))
            return [line for part in reversed(found) for line in part]

        return self._of_now(newest)

    def set_aside(self, first: int, to: ObjectPath) -> None:
        """Moves the records from a batch on to another folder; if it is interrupted, it can be called again."""
        while True:
            index, lines, stored = self._index()  # whoever undoes is alone: no driver brings files together
            whole = tuple(each for each in index.files if each.last < first)
            others = [line for each in index.files[len(whole) :] for line in self._lines_of(each)] + [*lines]
            kept, moved = ([each for each in others if (_batch(each) >= first) is late] for late in (False, True))
            if not moved:
                return
            target = StoredRecords(to)
            target._swap(_Index(files=(target._write(moved),)), (), target._index()[2])
            reach("batches.set_aside")
            if self._swap(_Index(files=(*whole, self._write(kept)) if kept else whole), (), stored):
                delete(self._folder / each.name for each in index.files[len(whole) :])
                return

    def _of_now(self, act: Callable[[_Index, _Lines, Stored | None], T]) -> T:
        """Does something with the index, once more if a file that it names was brought together with others since."""
        while True:
            index, lines, stored = self._index()
            try:
                return act(index, lines, stored)
            except FileNotFoundError:
                if self._index()[2] == stored:
                    raise

    def _append(
        self,
        record: bytes,
        admitted: Callable[[], AbstractContextManager[None]],
        index: _Index,
        known: _Lines,
        stored: Stored | None,
    ) -> bool:
        """Returns whether nobody else has written meanwhile; if somebody has, nothing was done."""
        batch = _batch(record)
        if record in known or (index.files and batch <= index.files[-1].last):
            return True  # the batch ran again
        lines = [each for each in known if _batch(each) != batch]
        files, brought_together = index.files, None
        with admitted():
            if len(lines) >= INDEX_RECORDS:  # but for the last one, which another attempt may replace
                moved, lines = lines[:-1], lines[-1:]
                if files and files[-1].records < FILE_RECORDS:
                    brought_together = files[-1]
                    moved, files = [*self._lines_of(files[-1]), *moved], files[:-1]
                files = (*files, self._write(moved))
                reach("batches.moved")
            if not self._swap(_Index(files=files), (*lines, record), stored):
                return False
        if brought_together is not None:
            delete([self._folder / brought_together.name])
        return True

    def _index(self) -> tuple[_Index, _Lines, Stored | None]:
        stored = self._files.get(INDEX)
        if stored is None:
            return _Index(), (), None
        head, *lines = stored.data.splitlines()
        index = formats.decode(head, _Index, FORMAT, f"The record of batches {self._folder / INDEX}")
        return index, tuple(lines), stored

    def _swap(self, index: _Index, lines: _Lines, read: Stored | None) -> bool:
        return swap(self._files, INDEX, b"\n".join((msgspec.json.encode(index), *lines)), read)

    def _lines_of(self, file: _File) -> _Lines:
        return tuple((self._folder / file.name).read_bytes().splitlines())

    def _write(self, lines: Sequence[bytes]) -> _File:
        first, last = _batch(lines[0]), _batch(lines[-1])
        name = f"{first:0{_DIGITS}d}-{secrets.token_hex(8)}"
        write_new(self._folder / name, b"\n".join(lines))
        return _File(name, first, last, len(lines))


def _batch(line: bytes) -> int:
    return _numbers.decode(line).batch
