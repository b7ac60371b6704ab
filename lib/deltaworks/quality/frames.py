"""Tables for the two engines: Arrow for DuckDB, pandas for Great Expectations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import pyarrow as pa
import pyarrow.dataset as pads

from deltaworks.lakehouse.sandbox import Limits, Sandbox
from deltaworks.quality.progress import UNKNOWN, Progress

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = Union[pa.Table, pads.Dataset, "pd.DataFrame", Path, str]
"""An Arrow table or dataset, a pandas data frame, or the path of a Delta table."""

_FIRST = 10_000
"""Rows that show how much memory a row takes."""


@dataclass(frozen=True)
class Tables:
    """All tables of one validation, each at one version."""

    sandbox: Sandbox
    """The sandbox for rules in SQL, which has every table by its name."""
    opened: Mapping[str, Any]
    """Arrow tables and datasets."""
    errors: Mapping[str, str]
    """Tables that cannot be opened, and why."""
    order: str | None = None
    """The order of the replay that wrote the tables, `recorded` or `time`; None if no or several replays wrote them."""
    progress: Progress = UNKNOWN
    """Of the stream that writes the tables."""

    @classmethod
    def open(
        cls,
        sources: Mapping[str, Source],
        order: str | None = None,
        limits: Limits | None = None,
        progress: Progress | None = None,
    ) -> Tables:
        """Opens all tables at about the same moment, for rules that need several; reads no rows yet."""
        sandbox = Sandbox(limits)
        opened, errors = {}, {}
        for name, source in sources.items():
            try:
                opened[name] = _open(source)
                sandbox.add(name, opened[name])
            except Exception as error:
                errors[name] = f"Table '{name}' cannot be opened: {error}"
        return cls(sandbox, opened, errors, order, UNKNOWN if progress is None else progress)

    def dataset(self, name: str) -> pads.Dataset:
        """A table of which no rows are read yet.

        Raises:
            LookupError: the table does not exist or cannot be opened.
        """
        if name not in self.opened:
            known = ", ".join(self.opened) or "none"
            raise LookupError(self.errors.get(name, f"There is no table '{name}'; tables: {known}"))
        table = self.opened[name]
        return pads.dataset(table) if isinstance(table, pa.Table) else table

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        return int(self.dataset(name).count_rows())

    def frame_mb(self, name: str, columns: Sequence[str] | None = None) -> float:
        """About how much memory a table, or some columns of it, takes as a data frame, as its first rows do."""
        source = self.dataset(name)
        first = source.head(_FIRST, columns=columns, batch_readahead=1, fragment_readahead=1)
        first_mb = float(data_frame(first).memory_usage(deep=True).sum()) / 1e6
        return first_mb if first.num_rows < _FIRST else first_mb / _FIRST * self.rows(name)


def _open(source: Source) -> Any:
    if isinstance(source, pa.Table | pads.Dataset):
        return source
    if isinstance(source, Path | str):
        from deltaworks.lakehouse.reading import dataset

        return dataset(Path(source))
    return pa.Table.from_pandas(source, preserve_index=False)


def data_frame(table: pa.Table) -> pd.DataFrame:
    """A data frame for Great Expectations: decimals and integers stay exact even with nulls; rows count from 0."""
    return table.to_pandas(integer_object_nulls=True)


def sample(table: pa.Table, rows: list[int]) -> tuple[dict[str, Any], ...]:
    """The rows of the given numbers, as Python objects."""
    return tuple(table.take(pa.array(rows, pa.int64())).to_pylist())
