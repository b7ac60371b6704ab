"""The last check of each table, from the history of checks (`quality/results.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import duckdb

from deltaworks.catalogue.quality_tables import RESULTS
from deltaworks.lakehouse.catalog import table_names
from deltaworks.lakehouse.reading import dataset

Word = Literal["passed", "warning", "failed"]
_LAST = """
WITH lasts AS (SELECT "table", max("at") AS "at", arg_max(run_id, "at") AS run_id FROM results GROUP BY "table")
SELECT "table", run_id, "at", outcome, count(*), bool_or(blocks)
FROM results SEMI JOIN lasts USING ("table", "at", run_id)
GROUP BY ALL ORDER BY outcome
"""


@dataclass(frozen=True)
class Checked:
    """The last check of a table."""

    at: datetime
    run_id: str
    outcomes: dict[str, int]
    """Outcome -> number of checks with it."""
    blocks: bool
    """Whether something worse than a warning was found, or a check could not run."""

    @property
    def verdict(self) -> Word:
        """`warning`: not all checks have passed, but nobody has to stop."""
        if self.blocks:
            return "failed"
        return "passed" if self.outcomes.keys() == {"passed"} else "warning"


def last_checks(root: Path) -> dict[str, Checked]:
    """Table -> its last check; tables that nobody has checked are left out.

    Args:
        root: the folder of all tables.
    """
    if RESULTS.name not in table_names(root):
        return {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("results", dataset(root / RESULTS.name))
        rows = connection.execute(_LAST).fetchall()
    found: dict[str, Checked] = {}
    for table, run_id, at, outcome, count, blocks in rows:
        before = found.get(table, Checked(at, run_id, {}, False))
        found[table] = Checked(at, run_id, {**before.outcomes, outcome: count}, before.blocks or blocks)
    return found
