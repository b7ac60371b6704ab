"""How libraries open tables, in a folder or in an object store.

delta-rs gives a dataset a file system that is written in Python. Arrow's threads then need Python's lock for every file
that they open, while pyarrow holds it until they have begun: under load, a query sometimes hangs for ever. Arrow's own
file systems need no lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from deltaworks.object_path import ObjectPath


def dataset(path: Path, table: DeltaTable | None = None) -> Any:
    """The rows of a table; none are read yet.

    Args:
        path: the folder of the table.
        table: the table at some version; None: at its latest.
    """
    if isinstance(path, ObjectPath):
        files = SubTreeFileSystem(f"{path.bucket}/{path.key}", _s3(path))
    else:
        files = SubTreeFileSystem(str(path.absolute()), LocalFileSystem())
    return (delta_table(path) if table is None else table).to_pyarrow_dataset(filesystem=files)


def parquet_files(folder: Path, schema: pa.Schema | None = None) -> Any:
    """The rows of all files of Parquet in a folder; none are read yet.

    Args:
        folder: of this machine, or in an object store.
        schema: of the rows; None: that of the first file.
    """
    if isinstance(folder, ObjectPath):
        return pads.dataset(f"{folder.bucket}/{folder.key}", format="parquet", schema=schema, filesystem=_s3(folder))
    return pads.dataset(folder, format="parquet", schema=schema)


def _s3(path: ObjectPath) -> Any:
    from pyarrow.fs import S3FileSystem  # its library starts threads

    return S3FileSystem(**path.store.arrow())


def delta_table(path: Path, version: int | None = None) -> DeltaTable:
    """A table of delta-rs.

    Args:
        path: the folder of the table.
        version: None: the latest.

    Raises:
        DeltaError: there is no such table, or no such version.
    """
    return DeltaTable(str(path), version=version, storage_options=options(path))


def options(path: Path) -> dict[str, str] | None:
    """What delta-rs has to know to reach a folder."""
    return path.store.options() if isinstance(path, ObjectPath) else None


class LocalCopies:
    """Files as DuckDB can open them: those of an object store are copied into a folder while they are asked for.

    Args:
        folder: of this machine, which somebody else removes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[Path, Path] = {}

    def of(self, paths: Sequence[Path]) -> list[Path]:
        """Local paths of files."""
        return [self._copies.get(path, path) for path in paths]

    def fetch(self, paths: Collection[Path]) -> None:
        """Copies these files unless they are here, and removes what was copied before and is not among them."""
        for gone in self._copies.keys() - set(paths):
            self._copies.pop(gone).unlink()
        for path in paths:
            if isinstance(path, ObjectPath) and path not in self._copies:
                copy = self._folder / f"{hashlib.blake2b(str(path).encode(), digest_size=16).hexdigest()}.parquet"
                copy.write_bytes(path.read_bytes())
                self._copies[path] = copy


def parquet_file(path: Path) -> pq.ParquetFile:
    """A file of Parquet, to be closed; of an object store, all of it is in memory."""
    return pq.ParquetFile(pa.BufferReader(path.read_bytes()) if isinstance(path, ObjectPath) else path)
