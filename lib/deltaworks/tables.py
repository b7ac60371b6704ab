"""The Delta tables of a pipeline as of one batch, for programs.

```
from deltaworks import tables

orders = tables.open("orders")
counts = orders["order_counts"].rows.to_table()  # an Arrow table
```

A stream commits a batch one table after the other. Whoever opens each table at its latest version may see one with a
batch and another one without it; their sums then disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import catalog, cuts, retention
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.reading import dataset
from deltaworks.settings import Settings

__all__ = ["Table", "Tables", "open"]


@dataclass(frozen=True)
class Table:
    """A table at one version; nothing is read yet."""

    name: str
    path: Path
    """The folder of the table, for other engines: `polars.scan_delta(path, version=version)`."""
    version: int
    """The version of the Delta table."""
    rows: Any
    """A dataset of Arrow, which DuckDB, polars and pandas read: `rows.to_table(columns=[...]).to_pandas()`."""


class Tables(Mapping[str, Table]):
    """The tables of a pipeline that belong together, by name; made by `open`."""

    def __init__(self, root: Path, cut: Cut) -> None:
        self._root, self._cut = root, cut

    @property
    def pipeline(self) -> str:
        return self._cut.pipeline

    @property
    def batch_id(self) -> int:
        """The tables hold this batch and all before it, and no later one."""
        return self._cut.batch_id

    @property
    def at(self) -> datetime:
        """When the tables were so, in UTC."""
        return self._cut.at

    def __getitem__(self, name: str) -> Table:
        """Raises `ConfigurationError` if there is no such table, or if it was made anew since."""
        if name not in self._cut.tables:
            raise ConfigurationError(
                f"The pipeline '{self.pipeline}' has no table '{name}'.", hint=f"its tables: {', '.join(self)}"
            )
        table = cuts.opened(self._root, self._cut, name)
        if table is None:
            raise ConfigurationError(
                f"The table '{name}' is not the one of batch {self.batch_id} any more.", hint="open the tables again"
            )
        return Table(name, self._root / name, table.version(), dataset(self._root / name, table))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._cut.tables))

    def __len__(self) -> int:
        return len(self._cut.tables)

    def __repr__(self) -> str:
        return f"<tables of '{self.pipeline}' as of batch {self.batch_id}, {self.at:%Y-%m-%d %H:%M:%S} UTC>"


def open(pipeline: str, at: str | datetime | None = None, *, settings: Settings | None = None) -> Tables:
    """The tables of a pipeline as of one batch.

    Args:
        pipeline: its name.
        at: a time, `2026-03-01T12:00` or a `datetime`, without a zone in UTC; or the name of a pin; None: now.
        settings: name the home; None: those of the environment and of `deltaworks.toml`.

    Raises:
        ConfigurationError: there is no such pipeline or pin, or its tables of that time are not known.
    """
    root = (Settings.from_environment() if settings is None else settings).tables
    return Tables(root, _cut(root, pipeline, at))


def _cut(root: Path, pipeline: str, at: str | datetime | None) -> Cut:
    match catalog.moment(at) if isinstance(at, str) else at:
        case None:
            return cuts.required(root, pipeline)
        case datetime() as time:
            return cuts.required(root, pipeline, catalog.in_utc(time))
        case int():
            raise ConfigurationError(f"{at!r} is no time, and no pin.", hint="such as 2026-03-01T12:00")
        case name:
            if (cut := retention.pinned(root, name).get(pipeline)) is None:
                raise ConfigurationError(f"There is no pin '{name}' of '{pipeline}'.", hint="deltaworks tables pins")
            return cut
