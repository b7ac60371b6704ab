"""The files of Spark's checkpoint: which exist, what each belongs to, and whether each is whole.

```
metadata                          id of the query
offsets/N, commits/N              a batch is planned; a batch is done
state/OP/PART/V.changelog, V.zip  version V = N + 1 of a partition's state; a snapshot refers to SSTs/*
state/OP/_metadata/v2/N           metadata of an operator, with the path of its schema
state/OP/_stateSchema/*/*         that schema
.NAME.crc, .NAME.ID.tmp           checksum of NAME (Hadoop refuses content that differs); left by a killed process
```

In an object store, no file is torn and none has a checksum beside it: an object appears as a whole.

This module only reads. `checkpoint_recovery` acts on the result; `checkpoint_sync` makes the files durable.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.kafka.ranges import Offsets
from deltaworks.object_path import ObjectPath

OFFSETS, COMMITS, STATE, METADATA = "offsets", "commits", "state", "metadata"
_CHANGELOG, _SNAPSHOT = ".changelog", ".zip"
_TEMPORARY = re.compile(r"\..+\.tmp(\.crc)?")
_CRC_HEADER = struct.Struct(">4si")
_BLOCK = struct.Struct("<8sBiiI")
"""A block of an LZ4 stream: magic, token, compressed size, size, checksum."""
_CHUNK = 1 << 20


class Crc(Enum):
    """Whether the checksum beside a file fits."""

    ABSENT = "absent"
    FITS = "fits"
    DIFFERS = "differs"


@dataclass(frozen=True)
class LoggedOffsets:
    """An entry of `offsets`: what Spark noted about a batch when it planned it."""

    settings: dict[str, Any]
    """The time of the batch, and the settings of Spark that must not change."""
    offsets: Offsets

    def encode(self) -> bytes:
        """Encodes the entry as Spark and its Python sources do; Spark compares offsets byte by byte."""
        settings = json.dumps(self.settings, separators=(",", ":"))
        return f"v1\n{settings}\n{json.dumps(self.offsets)}".encode()


def crc_path(path: Path) -> Path:
    """The path of a file's checksum."""
    return path.with_name(f".{path.name}.crc")


def owner_of_crc(path: Path) -> Path:
    """The file that a checksum belongs to."""
    return path.with_name(path.name[1:-4])


def is_crc(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".crc")


def is_temporary(path: Path) -> bool:
    """Whether a killed process left the file."""
    return _TEMPORARY.fullmatch(path.name) is not None


def crc_of(path: Path) -> Crc:
    """Compares a file with its checksum, as Hadoop does on a read."""
    try:
        expected = crc_path(path).read_bytes()
    except FileNotFoundError:
        return Crc.ABSENT
    if len(expected) < _CRC_HEADER.size:
        return Crc.DIFFERS
    magic, step = _CRC_HEADER.unpack_from(expected)
    if magic != b"crc\0" or not 0 < step <= _CHUNK:
        return Crc.DIFFERS
    found = bytearray(expected[: _CRC_HEADER.size])
    with path.open("rb") as file:
        while data := file.read(_CHUNK // step * step):
            view = memoryview(data)
            for at in range(0, len(data), step):
                found += zlib.crc32(view[at : at + step]).to_bytes(4, "big")
    return Crc.FITS if found == expected else Crc.DIFFERS


def numbered(folder: Path, suffix: str = "") -> list[int]:
    """The numbers of the files `NUMBER<suffix>` in a folder, in order."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def read_offsets(path: Path) -> LoggedOffsets | None:
    """An entry of `offsets`; None if it is torn or missing."""
    lines = _lines(path, "v1")
    if lines is None or len(lines) != 2:
        return None
    try:
        settings = msgspec.json.decode(lines[0], type=dict[str, Any])
        offsets = msgspec.json.decode(lines[1], type=Offsets)
    except msgspec.DecodeError:  # also of another type
        return None
    return LoggedOffsets(settings, offsets) if "batchTimestampMs" in settings else None


def is_commit(path: Path) -> bool:
    """Whether an entry of `commits` is whole."""
    lines = _lines(path, "v1")
    try:
        return lines is not None and len(lines) == 1 and isinstance(msgspec.json.decode(lines[0]), dict)
    except msgspec.DecodeError:
        return False


def is_query(path: Path) -> bool:
    """Whether `metadata` is whole."""
    try:
        return "id" in msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return False


@dataclass(frozen=True)
class OperatorMetadata:
    """An entry of `state/OP/_metadata/v2`."""

    content: dict[str, Any]

    @property
    def partitions(self) -> int:
        return max((int(store["numPartitions"]) for store in self._stores), default=0)

    def schemas(self, operator: Path) -> list[Path]:
        """The files with its schema, wherever the checkpoint was when they were written."""
        return [_inside(operator, each) for store in self._stores for each in store["stateSchemaFilePaths"]]

    def at(self, operator: Path) -> OperatorMetadata:
        """The same metadata for a checkpoint at this path: Spark writes absolute paths."""
        scheme = "" if isinstance(operator, ObjectPath) else "file:"
        stores = [
            store | {"stateSchemaFilePaths": [f"{scheme}{_inside(operator, e)}" for e in store["stateSchemaFilePaths"]]}
            for store in self._stores
        ]
        return OperatorMetadata(self.content | {"stateStoreInfo": stores})

    def encode(self) -> bytes:
        return b"v2\n" + json.dumps(self.content, separators=(",", ":")).encode()

    @property
    def _stores(self) -> list[dict[str, Any]]:
        return list(self.content["stateStoreInfo"])


def read_operator(path: Path) -> OperatorMetadata | None:
    """An entry of `_metadata/v2`; None if it is torn or missing."""
    lines = _lines(path, "v2")
    if lines is None or len(lines) != 1:
        return None
    try:
        found = OperatorMetadata(msgspec.json.decode(lines[0], type=dict[str, Any]))
        found.schemas(path.parents[2])
        return found if found.partitions > 0 else None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


@dataclass
class StateFiles:
    """The state of all operators in a checkpoint; remembers what it has read.

    Args:
        checkpoint: Spark's folder.
        durable: files, relative to the checkpoint, that are known to be on the disk. Checksums are not synced, so
            theirs may differ.
    """

    checkpoint: Path
    durable: frozenset[str] | None = None
    sizes: Mapping[Path, int] | None = None
    """The files of the checkpoint in an object store, with their sizes in bytes; None: it is on a disk."""
    _verdicts: dict[Path, str | None] = field(default_factory=dict)

    def operators(self) -> list[Path]:
        return _numbered_folders(self.checkpoint / STATE)

    def metadata_of(self, operator: Path, batch: int) -> tuple[int, OperatorMetadata] | None:
        """What Spark would read of an operator after a batch: the last entry that is whole, with its schema."""
        folder = operator / "_metadata" / "v2"
        for number in reversed(numbered(folder)):
            if number > batch or not self._exists(folder / str(number)):
                continue
            found = read_operator(folder / str(number))
            if found is not None and all(self._schema(schema) is None for schema in found.schemas(operator)):
                return number, found
        return None

    def problems(self, version: int) -> list[str]:
        """Why a version of the state cannot be loaded as a whole; empty: it can be."""
        found = []
        for operator in self.operators():
            metadata = self.metadata_of(operator, version - 1)
            if metadata is None:
                found.append(f"{operator / '_metadata'}: no entry is whole")
                continue
            for partition in range(metadata[1].partitions):
                problem = self.snapshot_of(operator / str(partition), version)
                if isinstance(problem, str):
                    found.append(problem)
        return found

    def snapshot_of(self, partition: Path, version: int) -> int | str:
        """The snapshot that a version can be loaded from, with the changelogs after it; or why there is none."""
        reason = f"{partition}: there is no snapshot up to version {version}"
        for snapshot in reversed(numbered(partition, _SNAPSHOT)):
            if snapshot > version or not self._exists(partition / f"{snapshot}{_SNAPSHOT}"):
                continue
            needed = [partition / f"{each}{_CHANGELOG}" for each in range(snapshot + 1, version + 1)]
            problem = self._snapshot(partition / f"{snapshot}{_SNAPSHOT}") or next(
                filter(None, map(self._changelog, needed)), None
            )
            if problem is None:
                return snapshot
            reason = problem
        return reason

    def _snapshot(self, path: Path) -> str | None:
        if path not in self._verdicts:
            self._verdicts[path] = self._read_snapshot(path)
        return self._verdicts[path]

    def _changelog(self, path: Path) -> str | None:
        if path not in self._verdicts:
            self._verdicts[path] = self._read_changelog(path)
        return self._verdicts[path]

    def _read_snapshot(self, path: Path) -> str | None:
        try:
            for sst, size in ssts_of(path).items():
                if not self._exists(sst) or self._size(sst) != size:
                    return f"{sst}, of {path.name}, is missing or cut"
                if self._differs(sst):
                    return f"{sst}, of {path.name}, does not fit its checksum"
        except (OSError, zipfile.BadZipFile, zlib.error, KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
            return f"{path} cannot be read: {error}"
        return None

    def _read_changelog(self, path: Path) -> str | None:
        if not self._exists(path):
            return f"{path} is missing"
        if self._differs(path):
            return f"{path} does not fit its checksum"
        return None if self.sizes is not None or _is_lz4_stream(path) else f"{path} is torn"

    def _schema(self, path: Path) -> str | None:
        if not self._exists(path):
            return f"{path} is missing"
        return f"{path} is torn" if self._size(path) == 0 or self._differs(path) else None

    def _exists(self, path: Path) -> bool:
        """Whether a file exists; after a loss of power, only files that are known to be durable count."""
        if self.durable is not None and not self._is_durable(path):
            return False
        return path.is_file() if self.sizes is None else path in self.sizes

    def _size(self, path: Path) -> int:
        return path.stat().st_size if self.sizes is None else self.sizes[path]

    def _differs(self, path: Path) -> bool:
        return self.sizes is None and crc_of(path) is Crc.DIFFERS and not self._is_durable(path)

    def _is_durable(self, path: Path) -> bool:
        return self.durable is not None and path.relative_to(self.checkpoint).as_posix() in self.durable


def ssts_of(snapshot: Path) -> dict[Path, int]:
    """The files that a snapshot refers to, with their sizes in bytes.

    Raises:
        OSError, zipfile.BadZipFile, zlib.error, KeyError, IndexError, TypeError, msgspec.DecodeError: it is torn.
    """
    with snapshot.open("rb") as file, zipfile.ZipFile(file) as archive:
        if (torn := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{torn} is torn")
        lines = archive.read(METADATA).split(b"\n", 1)
    described = msgspec.json.decode(lines[1], type=dict[str, Any])
    folder = snapshot.parent / "SSTs"
    return {folder / str(each["dfsSstFileName"]): int(each["sizeBytes"]) for each in described.get("sstFiles", [])}


def is_snapshot(path: Path) -> bool:
    """Whether a file looks like a snapshot, judged by its end."""
    with path.open("rb") as file:
        return zipfile.is_zipfile(file)


def scan(checkpoint: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All files below except checksums and temporary ones, with their names relative to the checkpoint.

    The files of a folder come before those of its subfolders: if a snapshot was found, its SSTs, which follow, had been
    written.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(checkpoint / folder) as found:
                listed = list(found)
        except FileNotFoundError:
            continue
        for entry in listed:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif not entry.name.startswith("."):
                yield name, entry


def batch_of(name: str) -> int | None:
    """The last batch that a file holds, by Spark's count; None: it belongs to no batch.

    Args:
        name: path relative to the checkpoint.
    """
    match name.split("/"):
        case [("offsets" | "commits"), number] if number.isdecimal():
            return int(number)
        case ["state", _, "_metadata", "v2", number] if number.isdecimal():
            return int(number)
        case ["state", _, _, version]:
            stem, _, suffix = version.rpartition(".")
            return int(stem) - 1 if stem.isdecimal() and f".{suffix}" in (_CHANGELOG, _SNAPSHOT) else None
    return None


def everything(checkpoint: Path) -> list[Path]:
    """All files below, in no order."""
    if isinstance(checkpoint, ObjectPath):
        return [path for path, _ in checkpoint.files()]
    return [Path(folder) / name for folder, _, names in os.walk(checkpoint) for name in names]


def _numbered_folders(folder: Path) -> list[Path]:
    return [folder / str(number) for number in numbered(folder)]


def _lines(path: Path, version: str) -> list[bytes] | None:
    """The lines after the first, which must be the version."""
    try:
        first, *lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return lines if first == version.encode() else None


def _inside(operator: Path, written: str) -> Path:
    """The current path of an operator's file, given the path at which it was written."""
    _, found, name = written.partition(f"/{STATE}/{operator.name}/")
    if not found:
        raise ValueError(f"{written} is no file of operator {operator.name}")
    return operator / name


def _is_lz4_stream(path: Path) -> bool:
    """Whether the blocks follow each other up to the last one, which ends the file."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while at + _BLOCK.size <= size:
            file.seek(at)
            magic, _, compressed, plain, _ = _BLOCK.unpack(file.read(_BLOCK.size))
            if magic != b"LZ4Block" or compressed < 0 or plain < 0:
                return False
            at += _BLOCK.size + compressed
            if plain == 0:
                return bool(at == size)
    return False
