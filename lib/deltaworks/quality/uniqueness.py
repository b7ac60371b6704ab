"""Uniqueness in a table that is larger than memory: DuckDB counts equal rows, on disk if need be.

As for Great Expectations on pandas, a missing value equals a missing value, and NaN is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from deltaworks.lakehouse.sandbox import identifier as _q
from deltaworks.quality import frames
from deltaworks.quality.frames import Tables
from deltaworks.quality.verdict import Outcome, Verdict

_REPEATED = "repeated values of a check"


def covers(schema: pa.Schema, expectation: Any, kind: str) -> bool:
    """Whether this module can check the expectation, which is of that kind."""
    if kind not in ("ExpectColumnValuesToBeUnique", "ExpectCompoundColumnsToBeUnique") or expectation.row_condition:
        return False
    columns = _columns(expectation)
    return all(name in schema.names and not pa.types.is_nested(schema.field(name).type) for name in columns)


def check(tables: Tables, name: str, expectation: Any, verdict: Verdict, samples: int) -> Verdict:
    """The verdict with its outcome.

    Raises:
        ConfigurationError: more memory, disk or time is needed than the limits of rules in SQL allow.
    """
    columns = _columns(expectation)
    schema = tables.dataset(name).schema
    values = [_value(column, schema.field(column).type) for column in columns]
    box, considered = tables.sandbox, _considered(expectation, values)
    listed = ", ".join(f"{value} AS v{number}" for number, value in enumerate(values))
    names = ", ".join(f"v{number}" for number in range(len(values)))
    found = box.answer(
        f"""
        CREATE OR REPLACE TEMP TABLE {_q(_REPEATED)} AS
        SELECT {names}, count(*) AS rows FROM (SELECT {listed} FROM {_q(name)} WHERE {considered})
        GROUP BY ALL HAVING count(*) > 1;
        SELECT coalesce(sum(rows), 0)::BIGINT FROM {_q(_REPEATED)}
        """,
        None,
    )
    (unexpected,) = found.rows[0]
    if not unexpected:
        return replace(verdict, outcome=Outcome.PASSED, unexpected=0)
    count = box.answer(f"SELECT count(*) FROM {_q(name)} WHERE {considered}", None).rows[0][0]
    enough = (count - unexpected) / count >= expectation.mostly
    sample = _first(tables, name, columns, samples)
    outcome = Outcome.PASSED if enough else Outcome.FAILED
    return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)


def _first(tables: Tables, name: str, columns: Sequence[str], samples: int) -> tuple[dict[str, Any], ...]:
    """The first rows of the table that are there more than once."""
    from deltaworks.quality import parts

    box, found = tables.sandbox, list[dict[str, Any]]()
    for part in parts.parts_of(tables.dataset(name)):
        if len(found) >= samples:
            break
        keys = part.select(list(columns)).append_column("row", pa.array(range(len(part)), pa.int64()))
        box.add(_PART, keys)
        same = " AND ".join(
            f"{_value(column, part.schema.field(column).type)} IS NOT DISTINCT FROM v{number}"
            for number, column in enumerate(columns)
        )
        query = f"SELECT row FROM {_q(_PART)} SEMI JOIN {_q(_REPEATED)} ON {same} ORDER BY row"
        rows = [row for (row,) in box.answer(f"{query} LIMIT {samples - len(found)}", None).rows]
        box.drop(_PART)
        found += frames.sample(part, rows)
    return tuple(found)


_PART = "part of a table in a check"


def _columns(expectation: Any) -> tuple[str, ...]:
    listed = getattr(expectation, "column_list", None)
    return tuple(listed) if listed else (str(getattr(expectation, "column", "")),)


def _considered(expectation: Any, values: Sequence[str]) -> str:
    """The rows that Great Expectations does not ignore."""
    there = [f"{value} IS NOT NULL" for value in values]
    match getattr(expectation, "ignore_row_if", "all_values_are_missing"):
        case "never":
            return "true"
        case "any_value_is_missing":
            return " AND ".join(there)
        case _:
            return f"({' OR '.join(there)})"


def _value(column: str, kind: pa.DataType) -> str:
    name = _q(column)
    return f"CASE WHEN NOT isnan({name}) THEN {name} END" if pa.types.is_floating(kind) else name
