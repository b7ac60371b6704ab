"""The Delta tables with the history of checks, and what their columns mean. `quality/results.py` writes them."""

from __future__ import annotations

import pyarrow as pa

from deltaworks.lakehouse import descriptions
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.described import Definition
from deltaworks.lakehouse.schema import commented

KIND = "quality"
"""Of the tables, see `descriptions.KIND`."""
_WHICH = [("run_id", pa.string()), ("pipeline", pa.string()), ("table", pa.string()), ("expectation", pa.string())]
_RESULT = pa.schema(
    [
        *_WHICH,
        ("expects", pa.string()),
        ("why", pa.string()),
        ("severity", pa.string()),
        ("outcome", pa.string()),
        ("blocks", pa.bool_()),
        ("unexpected", pa.int64()),
        ("rows", pa.int64()),
        ("observed", pa.string()),
        ("error", pa.string()),
        ("at", TIMESTAMP),
    ]
)
_FAILURE = pa.schema([*_WHICH, ("expects", pa.string()), ("at", TIMESTAMP), ("row", pa.string())])
_COMMENTS = {
    "run_id": "The replay, or the run of the check.",
    "pipeline": "The pipeline or batch job whose table was checked.",
    "table": "The table that was checked.",
    "expectation": "Class of the expectation, such as ExpectColumnValuesToNotBeNull.",
    "expects": "What is expected, in words.",
    "why": "Why it matters.",
    "severity": "`critical`, `warning` or `info`.",
    "outcome": "`passed`, `failed`, or `error`: the check could not run.",
    "blocks": "Whether nobody should go on: more than a warning failed, or the check could not run.",
    "unexpected": "Number of unexpected rows; null: the expectation is not about rows, or there was an error.",
    "rows": "Number of rows that the table had; null: there was no table.",
    "observed": "What was found instead, where the expectation is about a column or the table as a whole.",
    "error": "Why the check could not run.",
    "at": "Time of the check.",
    "row": "The unexpected row, as JSON.",
}
_FINAL = "Rows are only added. Each is final."
_AS_OF = "The last check that was kept."
RESULTS = Definition(
    name="quality_results",
    description="Every check of a table, with its outcome: since when is something wrong?",
    columns=commented(_RESULT, _COMMENTS),
    properties=descriptions.properties(
        kind=KIND,
        grain="a check of a table by a run",
        key=(),
        note=_FINAL,
        as_of=_AS_OF,
        example='SELECT outcome, count(*) AS checks, max("at") AS last FROM quality_results GROUP BY ALL',
    ),
)
FAILURES = Definition(
    name="quality_failures",
    description="The first rows that a check did not expect.",
    columns=commented(_FAILURE, _COMMENTS),
    properties=descriptions.properties(
        kind=KIND,
        grain="an unexpected row of a check",
        key=(),
        note=f"{_FINAL} It is a sample: a check keeps the first few.",
        as_of=_AS_OF,
        example='SELECT "at", "table", expects, "row" FROM quality_failures ORDER BY "at" DESC LIMIT 10',
    ),
)
