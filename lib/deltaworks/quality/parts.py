"""Expectations about rows and columns of a table that is larger than memory allows as one data frame.

Great Expectations judges here, too, but never sees the whole table. Arrow reads the table once, in parts, and each
expectation gets what decides its verdict, so that verdicts, counts and samples are those of `rows`:

| expectation | what Great Expectations sees |
|---|---|
| about each row alone | the rows of each part that may be unexpected (`suspects`), in the order of the table |
| uniqueness | nothing: DuckDB counts and finds equal rows, and writes to disk what does not fit |
| minimum, maximum, sum | those of each part |
| number of rows | nothing: it is known |
| columns of the table | no rows |
| any other | the columns that it names, if these fit; otherwise the check is an error that says so |

A sum of floats may differ from that of one data frame in its last digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.errors import ConfigurationError
from deltaworks.quality import frames, uniqueness
from deltaworks.quality.frames import Tables
from deltaworks.quality.rows import Rows, kind_of, misfit
from deltaworks.quality.suspects import Suspects
from deltaworks.quality.verdict import Outcome, Verdict

ROWS = 250_000
"""Rows of a part."""


@dataclass
class _Tally:
    """What is known of an expectation about each row alone."""

    expectation: Any
    suspects: Suspects
    considered: int = 0
    """Rows that the expectation does not ignore, of those that Great Expectations saw."""
    unexpected: int = 0
    sample: list[Mapping[str, Any]] = field(default_factory=list)
    error: str | None = None

    def add(self, part: pa.Table, samples: int) -> None:
        rows = self.suspects.among(part)
        if self.error is not None or (not len(rows) and len(part)):
            return
        judged = Rows.of(rows, samples, self.suspects.columns).judge(self.expectation)
        if judged.error is not None:
            self.error = judged.error
            return
        self.considered += judged.considered
        self.unexpected += judged.unexpected or 0
        self.sample += judged.sample[: samples - len(self.sample)]

    def verdict(self, verdict: Verdict) -> Verdict:
        if self.error is not None:
            return replace(verdict, outcome=Outcome.ERROR, error=self.error)
        share = 1.0 if self.considered == 0 else (self.considered - self.unexpected) / self.considered
        outcome = Outcome.PASSED if share >= float(getattr(self.expectation, "mostly", 1)) else Outcome.FAILED
        return replace(verdict, outcome=outcome, unexpected=self.unexpected, sample=tuple(self.sample))


@dataclass
class _Reduced:
    """A column of which a few values decide: the lowest and highest, or the sum, of each part."""

    expectation: Any
    column: str
    kind: pa.DataType
    values: list[Any] = field(default_factory=list)

    def add(self, part: pa.Table, samples: int) -> None:
        column = part.select([self.column])
        if self._is_sum:
            self.values.append(frames.data_frame(column)[self.column].sum())
        else:
            self.values += _bounds(column.column(0))
        if column.column(0).null_count:
            self.values.append(None)  # Great Expectations refuses to add up decimals if some are missing

    def verdict(self, verdict: Verdict) -> Verdict:
        values = self.values
        if self._is_sum and pa.types.is_decimal(self.kind):
            values = [
                None if value is None else Decimal(value) for value in values
            ]  # of a part without values, it is the integer 0
        column = pa.array(values, None if self._is_sum else self.kind)
        return Rows.of(pa.table({self.column: column}), 0).check(self.expectation, verdict)

    @property
    def _is_sum(self) -> bool:
        return kind_of(self.expectation) == "ExpectColumnSumToBeBetween"


def check(tables: Tables, name: str, suite: Sequence[tuple[Any, Verdict]], samples: int) -> Iterator[Verdict]:
    """Checks all expectations but rules in SQL; one verdict for each, in their order.

    Args:
        tables: all tables.
        name: the table.
        suite: the expectations, each with its verdict before the check.
        samples: maximum number of rows that a verdict shows.
    """
    source = tables.dataset(name)
    read_once: dict[int, _Tally | _Reduced] = {}
    for number, (expectation, _) in enumerate(suite):
        if misfit(source.schema, expectation) is None and (reader := _reader(source.schema, expectation)) is not None:
            read_once[number] = reader
    failed = _read(source, read_once, samples)
    for number, (expectation, verdict) in enumerate(suite):
        if number in failed:
            yield replace(verdict, outcome=Outcome.ERROR, error=failed[number])
        else:
            yield _completed(tables, name, expectation, verdict, samples, read_once.get(number))


def _reader(schema: pa.Schema, expectation: Any) -> _Tally | _Reduced | None:
    """What reads the table for an expectation; None: it does not need all rows, or all at once."""
    if (suspects := Suspects.of(schema, expectation)) is not None:
        return _Tally(expectation, suspects)
    if kind_of(expectation) in _REDUCED and not expectation.row_condition:
        return _Reduced(expectation, expectation.column, schema.field(expectation.column).type)
    return None


def _read(source: Any, readers: Mapping[int, _Tally | _Reduced], samples: int) -> dict[int, str]:
    """Reads the table once; returns the errors."""
    failed: dict[int, str] = {}
    if not readers:
        return failed
    for part in parts_of(source):
        for number, reader in readers.items():
            if number in failed:
                continue
            try:
                reader.add(part, samples)
            except Exception as error:
                failed[number] = f"{type(error).__name__}: {error}"
    pa.default_memory_pool().release_unused()  # DuckDB needs it next
    return failed


def parts_of(source: Any) -> Iterator[pa.Table]:
    """The rows in their order, some at a time; one part without rows if there are none."""
    some = False
    # More would be read ahead than the limit of memory allows: a whole row group per file.
    for batch in source.scanner(batch_size=ROWS, batch_readahead=1, fragment_readahead=1).to_batches():
        if batch.num_rows:
            some = True
            yield pa.Table.from_batches([batch])
    if not some:
        yield source.schema.empty_table()


def _completed(
    tables: Tables,
    name: str,
    expectation: Any,
    verdict: Verdict,
    samples: int,
    reader: _Tally | _Reduced | None,
) -> Verdict:
    try:
        if reader is not None:
            return reader.verdict(verdict)
        return _alone(tables, name, expectation, verdict, samples)
    except ConfigurationError as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error))
    except Exception as error:
        return replace(verdict, outcome=Outcome.ERROR, error=f"{type(error).__name__}: {error}")


def _alone(tables: Tables, name: str, expectation: Any, verdict: Verdict, samples: int) -> Verdict:
    """An expectation that needs no rows, DuckDB, or whole columns."""
    source, kind = tables.dataset(name), kind_of(expectation)
    if kind in _OF_COLUMNS or misfit(source.schema, expectation) is not None:
        return Rows.of(source.schema.empty_table(), samples).check(expectation, verdict)
    if kind in _OF_COUNT and not expectation.row_condition:
        return _counted(tables.rows(name), expectation, verdict)
    if uniqueness.covers(source.schema, expectation, kind):
        return uniqueness.check(tables, name, expectation, verdict, samples)
    return Rows.of(_columns_that_fit(tables, name, expectation), samples).check(expectation, verdict)


def _counted(rows: int, expectation: Any, verdict: Verdict) -> Verdict:
    """A number of rows against its bounds. Great Expectations would make a hash of each row, 22 bytes, to say so."""
    if kind_of(expectation) == "ExpectTableRowCountToEqual":
        least = most = expectation.value
    else:
        least, most = expectation.min_value, expectation.max_value
    known = all(bound is None or isinstance(bound, (int, float)) for bound in (least, most))
    if not known or (least is None and most is None):
        return Rows.of_count(rows).check(expectation, verdict)  # which says what is wrong with it
    above = least is None or rows > least or (rows == least and not getattr(expectation, "strict_min", False))
    below = most is None or rows < most or (rows == most and not getattr(expectation, "strict_max", False))
    outcome = Outcome.PASSED if above and below else Outcome.FAILED
    return replace(verdict, outcome=outcome, observed=str(rows))


def _columns_that_fit(tables: Tables, name: str, expectation: Any) -> pa.Table:
    """The columns that an expectation of Great Expectations names, or else the table.

    Raises:
        ConfigurationError: they do not fit.
    """
    source = tables.dataset(name)
    named = [expectation.column] if kind_of(expectation) in _OF_A_COLUMN and not expectation.row_condition else None
    needed_mb, allowed_mb = tables.frame_mb(name, named), tables.sandbox.limits.frame_mb
    if needed_mb > allowed_mb:
        raise ConfigurationError(
            f"{type(expectation).__name__} needs {'the column' if named else 'the table'} in memory as a whole, which "
            f"takes about {needed_mb:,.0f} MB as a data frame; {allowed_mb:,} MB are allowed.",
            hint="write it as a rule in SQL (UnexpectedRowsExpectation), or raise DELTAWORKS_QUERY_FRAME_MB",
        )
    return source.to_table(columns=named)


def _bounds(values: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    bounds = pc.min_max(values)
    return [bounds["min"].as_py(), bounds["max"].as_py()]


_REDUCED = frozenset({"ExpectColumnMaxToBeBetween", "ExpectColumnMinToBeBetween", "ExpectColumnSumToBeBetween"})
_OF_COUNT = frozenset({"ExpectTableRowCountToBeBetween", "ExpectTableRowCountToEqual"})
_OF_COLUMNS = frozenset(
    {
        "ExpectColumnToExist",
        "ExpectTableColumnCountToBeBetween",
        "ExpectTableColumnCountToEqual",
        "ExpectTableColumnsToMatchOrderedList",
        "ExpectTableColumnsToMatchSet",
    }
)
_OF_A_COLUMN = frozenset(
    {
        "ExpectColumnDistinctValuesToBeInSet",
        "ExpectColumnDistinctValuesToContainSet",
        "ExpectColumnDistinctValuesToEqualSet",
        "ExpectColumnMeanToBeBetween",
        "ExpectColumnMedianToBeBetween",
        "ExpectColumnMostCommonValueToBeInSet",
        "ExpectColumnProportionOfNonNullValuesToBeBetween",
        "ExpectColumnProportionOfUniqueValuesToBeBetween",
        "ExpectColumnQuantileValuesToBeBetween",
        "ExpectColumnStdevToBeBetween",
        "ExpectColumnUniqueValueCountToBeBetween",
    }
)
"""Their verdict needs no other column, and shows no rows."""
