"""A task with one input partition gives the same result for every cut into micro-batches, restarts included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.memory_tables import AppendTable
from deltaworks.testing.recorded import MicroBatch, Recording, TableRow, cut, run_recorded
from tests.properties import cases
from tests.properties.cases import BY_UPDATE, SINGLE_INPUT, TOPIC, Build, Record

_CONTINUE = ErrorPolicy.of("continue")


def run(build: Build, rows: list[Record], cuts: list[int], restarts: set[int], *, record_cache: bool) -> Recording:
    batches = cut([cases.batch(rows)], [[min(end, len(rows))] for end in sorted(cuts)])
    return run_recorded(
        cases.plan(build, record_cache=record_cache),
        {TOPIC: 1},
        [MicroBatch(0, batch) for batch in batches],
        errors=_CONTINUE,
        restarts=lambda batch_id, task: batch_id in restarts,
        max_cached_entries=2 if restarts else 200_000,
    )


def observed(recording: Recording) -> dict[Any, Any]:
    """Everything a task produced; of the closings of windows only the last, because they belong to a batch."""
    result: dict[Any, Any] = {}
    for task, output in recording.tasks.items():
        rows = {table: [row for row in rows if row.kind != "close"] for table, rows in output.rows.items()}
        last = {table: last_closing(rows) for table, rows in output.rows.items()}
        letters = [
            (letter.source, letter.operator, letter.message, letter.key, letter.value, letter.timestamp_ms)
            for letter in output.dead_letters
        ]
        result[task] = (output.topics, rows, last, letters)
    return result


def last_closing(rows: list[TableRow]) -> int:
    return max((row.end_ms for row in rows if row.kind == "close"), default=0)


def tables(recording: Recording) -> dict[str, Any]:
    return {name: table.rows for name, table in recording.tables.by_name.items() if not isinstance(table, AppendTable)}


CUTS = st.lists(st.integers(min_value=0, max_value=40), max_size=8)
RESTARTS = st.sets(st.integers(min_value=0, max_value=8))


@pytest.mark.parametrize("name", SINGLE_INPUT | BY_UPDATE)
@settings(max_examples=40, deadline=None)
@given(rows=cases.records(), cuts=CUTS, restarts=RESTARTS)
def test_outputs_and_stores_do_not_depend_on_cuts_and_restarts(
    name: str, rows: list[Record], cuts: list[int], restarts: set[int]
) -> None:
    build = (SINGLE_INPUT | BY_UPDATE)[name]
    whole = run(build, rows, [], set(), record_cache=False)

    parts = run(build, rows, cuts, restarts, record_cache=False)

    assert observed(parts) == observed(whole)
    assert parts.stores == whole.stores


@pytest.mark.parametrize("name", SINGLE_INPUT)
@settings(max_examples=40, deadline=None)
@given(rows=cases.records(), cuts=CUTS, restarts=RESTARTS)
def test_final_tables_and_stores_do_not_depend_on_cuts_with_a_record_cache(
    name: str, rows: list[Record], cuts: list[int], restarts: set[int]
) -> None:
    uncached = run(SINGLE_INPUT[name], rows, [], set(), record_cache=False)

    cached = run(SINGLE_INPUT[name], rows, cuts, restarts, record_cache=True)

    assert tables(cached) == tables(uncached)
    assert cached.stores == uncached.stores


@pytest.mark.parametrize("build", [cases.rekeyed_count, cases.grouped_table])
@settings(max_examples=40, deadline=None)
@given(rows=cases.records(), cuts=CUTS, restarts=RESTARTS)
def test_one_task_before_an_exchange_gives_the_same_for_every_cut(
    build: Build, rows: list[Record], cuts: list[int], restarts: set[int]
) -> None:
    whole = run(build, rows, [], set(), record_cache=False)

    parts = run(build, rows, cuts, restarts, record_cache=False)

    assert tables(parts) == tables(whole)
    assert parts.topic("counts") == whole.topic("counts")
