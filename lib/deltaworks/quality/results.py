"""The history of verdicts: two Delta tables next to those of the pipelines, which show since when something is wrong.

| table | a row per | columns |
|---|---|---|
| `quality_results` | verdict | run_id, pipeline, table, all fields of the verdict but the sample, blocks, at |
| `quality_failures` | sampled failing row | run_id, pipeline, table, expectation, expects, at, row (JSON) |

Replays, DAGs and people append at the same time: each append is one commit, retried if another one was first. Appends
also compact and clean the tables. Readers need no lock (`deltaworks.lakehouse.catalog`). What the columns mean is in
`catalogue/quality_tables.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from deltaworks.catalogue.quality_tables import FAILURES, RESULTS
from deltaworks.errors import TableError, TransientError
from deltaworks.lakehouse.described import Definition
from deltaworks.lakehouse.reading import delta_table, options
from deltaworks.quality.verdict import Verdict

_ATTEMPTS = 20
_PAUSE_S = 0.05
_TOO_MANY_FILES = 100


def append(root: Path, run_id: str, pipeline: str, verdicts: Sequence[Verdict], at: datetime) -> None:
    """Adds the verdicts of one run.

    Args:
        root: folder of all tables.
        run_id: id of the replay or of the check.
        pipeline: name of the checked pipeline.
        verdicts: all verdicts, passed or not.
        at: time of the check, an aware datetime.

    Raises:
        TableError: a table has other columns.
        TransientError: other writers were first at every attempt.
    """
    results = [_shared(run_id, pipeline, each, at) | _of_verdict(each) for each in verdicts]
    failures = [_shared(run_id, pipeline, each, at) | {"row": _json(row)} for each in verdicts for row in each.sample]
    _append(root, RESULTS, results)
    _append(root, FAILURES, failures)


def _shared(run_id: str, pipeline: str, verdict: Verdict, at: datetime) -> dict[str, object]:
    return {
        "run_id": run_id,
        "pipeline": pipeline,
        "table": verdict.table,
        "expectation": verdict.expectation,
        "expects": verdict.expects,
        "at": at,
    }


def _of_verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "why": verdict.why,
        "severity": verdict.severity,
        "outcome": verdict.outcome.value,
        "blocks": verdict.blocks,
        "unexpected": verdict.unexpected,
        "rows": verdict.rows,
        "observed": verdict.observed,
        "error": verdict.error,
    }


def _json(row: object) -> str:
    """A row as JSON, with decimals as text so that no reader rounds them, and bytes in base 64."""
    return msgspec.json.encode(row, enc_hook=str).decode()


def _append(root: Path, table: Definition, cells: Sequence[dict[str, object]]) -> None:
    """Appends rows; appends never conflict with each other, except when two create the table."""
    path, rows = root / table.name, pa.Table.from_pylist(cells, schema=table.columns)
    for attempt in range(_ATTEMPTS):
        try:
            if not DeltaTable.is_deltatable(str(path), storage_options=options(path)):
                table.create(root)
            if len(rows):
                write_deltalake(str(path), rows, mode="append", storage_options=options(path))
            break
        except (DeltaProtocolError, SchemaMismatchError) as error:
            raise TableError(
                f"Delta table '{path.name}' at {path.parent} has other columns: {error}",
                hint="another version of deltaworks made it; move its folder away, and a new table is created",
            ) from error
        except DeltaError as error:
            if attempt + 1 == _ATTEMPTS:
                raise TransientError(
                    f"Delta table '{path.name}' at {path.parent} cannot take the verdicts: {error}",
                    hint="others keep writing to it; try again",
                ) from error
            time.sleep(random.uniform(0, _PAUSE_S * (attempt + 1)))
    _keep_in_order(path)


def _keep_in_order(path: Path) -> None:
    """Compacts small files; another writer may do so at the same moment and be first."""
    with suppress(CommitFailedError, TableNotFoundError):
        table = delta_table(path)
        if len(table.file_uris()) > _TOO_MANY_FILES:
            table.optimize.compact()
            table.vacuum(dry_run=False)
