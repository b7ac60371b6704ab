"""Delta tables as Arrow datasets, for DuckDB and pandas.

delta-rs gives a dataset a file system that is written in Python. Arrow's threads then need Python's lock for every file
that they open, while pyarrow holds it until they have begun: under load, a query sometimes hangs for ever. Arrow's own
file system needs no lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem


def dataset(path: Path, table: DeltaTable | None = None) -> Any:
    """The rows of a table; none are read yet.

    Args:
        path: the folder of the table.
        table: the table at some version; None: at its latest.
    """
    files = SubTreeFileSystem(str(path.absolute()), LocalFileSystem())
    return (DeltaTable(path) if table is None else table).to_pyarrow_dataset(filesystem=files)
