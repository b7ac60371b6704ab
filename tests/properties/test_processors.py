"""Processors of users: a restart between two micro-batches changes nothing, wall-clock punctuators included."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from tests.properties import cases
from tests.properties.cases import TOPIC, Record
from tests.properties.processors import alarms


@settings(max_examples=60, deadline=None)
@given(
    rows=cases.records(max_size=20),
    cuts=st.lists(st.integers(min_value=0, max_value=20), max_size=8),
    clock=st.lists(st.integers(min_value=0, max_value=15), min_size=9, max_size=9),
    restarts=st.sets(st.integers(min_value=0, max_value=8)),
)
def test_wall_clock_punctuators_go_on_after_a_restart(
    rows: list[Record], cuts: list[int], clock: list[int], restarts: set[int]
) -> None:
    parts = cut([cases.batch(rows)], [[min(end, len(rows))] for end in sorted(cuts)])
    times = [1_000 + sum(clock[: index + 1]) for index in range(len(parts))]
    batches = [MicroBatch(now_ms, records, tick=True) for now_ms, records in zip(times, parts, strict=True)]

    def run(restarted: set[int]) -> Recording:
        return run_recorded(
            cases.plan(alarms, record_cache=False),
            {TOPIC: 1},
            batches,
            errors=ErrorPolicy.of("continue"),
            restarts=lambda batch_id, task: batch_id in restarted,
        )

    whole, other = run(set()), run(restarts)

    assert other.tasks == whole.tasks
    assert other.stores == whole.stores
