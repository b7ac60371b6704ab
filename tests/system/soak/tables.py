"""Readers of tables: rows for a comparison, and DuckDB that reads all the time and finds only what was committed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from deltaworks.lakehouse import catalog
from deltaworks.lakehouse.reading import dataset
from tests.system.soak.models import COLUMNS, Row

_PAUSE_S = 1.0
_PAUSE = 4.0
"""Between two queries: at least this many times as long as the last one took, however large tables are by then."""
_WINDOW = "key, window_start, window_end"
_UNIQUE = {
    "soak_told": "key, value",
    "soak_hours": _WINDOW,
    "soak_visits": _WINDOW,
    "soak_matches": "ask, bid",
    "soak_notes": "key, seq",
    "soak_totals_changelog": "source_partition, source_offset",
    "soak_ledger_letters": 'topic, partition, "offset"',
}
_WRONG = {
    **{
        table: f"SELECT {columns}, count(*) FROM t GROUP BY ALL HAVING count(*) > 1 LIMIT 3"
        for table, columns in _UNIQUE.items()
    },
    "soak_rows": "SELECT key, count(*), count(DISTINCT seq), max(seq) FROM t GROUP BY key "
    "HAVING count(*) <> max(seq) + 1 OR count(*) <> count(DISTINCT seq) LIMIT 3",
}
"""Table -> a query that finds nothing while the table is a committed state."""
_SNAPSHOTS = ("soak_totals", "soak_groups")
_NOT_AS_OF = """
    WITH upto AS (SELECT key, value, batch_id, row_number() OVER (PARTITION BY key ORDER BY {order}) AS n
                  FROM changelog WHERE batch_id <= {batch})
    SELECT coalesce(s.key, c.key), s.value, c.value FROM (SELECT key, value FROM upto WHERE n = 1) c
    FULL JOIN snapshot s ON s.key = c.key WHERE s.value IS DISTINCT FROM c.value LIMIT 3
"""


def rows(tables: Path, name: str) -> Counter[Row]:
    """Those of a table, in the form of the models."""
    folder = tables / name
    if not DeltaTable.is_deltatable(str(folder)):
        return Counter()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", dataset(folder))
        return Counter(connection.execute(f"SELECT {COLUMNS[name]} FROM t").fetchall())


class OutsideReader:
    """Queries one table after the other."""

    def __init__(self, tables: Callable[[], Path], failed: Callable[[str], None]) -> None:
        self.reads = 0
        self.errors: Counter[str] = Counter()
        self.idle = threading.Lock()
        """Held by whoever moves the tables."""
        self._tables, self._failed = tables, failed
        self._told: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="reader")
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        took = 0.0
        while not self._closed.is_set():
            for name in (*_WRONG, *_SNAPSHOTS):
                if self._closed.wait(max(_PAUSE_S, _PAUSE * took)):
                    return
                with self.idle:
                    begun = time.monotonic()
                    self._look(name)
                    took = time.monotonic() - begun

    def _look(self, name: str) -> None:
        folder = self._tables() / name
        if not (folder / "_delta_log").is_dir():
            return
        try:
            wrong = self._snapshot(folder) if name in _SNAPSHOTS else self._query(folder, _WRONG[name])
        except Exception as error:  # a reader that comes too late for a file reads again
            self.errors[f"{name}: {type(error).__name__}: {error}"[:300]] += 1
            return
        self.reads += 1
        if wrong and name not in self._told:
            self._told.add(name)
            self._failed(f"a reader saw in {name} at {time.time():.0f}: {wrong}")

    def _query(self, folder: Path, query: str, **others: Any) -> list[Row]:
        with duckdb.connect() as connection:
            connection.register("t", dataset(folder))
            for name, other in others.items():
                connection.register(name, other)
            return connection.execute(query).fetchall()

    def _snapshot(self, folder: Path) -> list[Row]:
        """It has the last update of each key up to the batch that it says."""
        info = catalog.table(folder.parent, folder.name)
        if info.batch_id is None:
            return []
        with duckdb.connect() as connection:
            connection.register("snapshot", dataset(folder, DeltaTable(folder, version=info.version)))
            connection.register("changelog", dataset(folder.with_name(f"{folder.name}_changelog")))
            if folder.name == "soak_groups":  # the order of several updates in one batch is not in the rows
                query = f"""
                    SELECT s.key, s.value FROM snapshot s WHERE NOT EXISTS (SELECT 1 FROM changelog c
                    WHERE c.key = s.key AND c.value = s.value AND c.batch_id <= {info.batch_id}) LIMIT 3"""
            else:
                query = _NOT_AS_OF.format(order="source_offset DESC", batch=info.batch_id)
            return connection.execute(query).fetchall()
