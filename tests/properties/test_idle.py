"""Time that goes on while no record comes: restarts between the micro-batches change nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from tests.properties import cases
from tests.properties.cases import SINGLE_INPUT, TOPIC, Record

_NAMES = ("closed windows", "closed sliding windows", "closed sessions", "joined streams", "waiting for versions")


@pytest.mark.parametrize("name", [*_NAMES, "punctuated", "own times"])
@settings(max_examples=30, deadline=None)
@given(
    rows=cases.records(max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=4),
    pauses_ms=st.lists(st.integers(0, 30), min_size=12, max_size=12),
    restarts=st.sets(st.integers(0, 12)),
)
def test_restarts_change_nothing_while_tasks_are_idle(
    name: str, rows: list[Record], cuts: list[int], pauses_ms: list[int], restarts: set[int]
) -> None:
    parts = cut([cases.batch(rows)], [[min(end, len(rows))] for end in sorted(cuts)])
    batches: list[MicroBatch] = []
    wall_clock_ms = 0
    for number, pause_ms in enumerate(pauses_ms):
        wall_clock_ms += pause_ms
        records = parts[number // 2] if number % 2 and number // 2 < len(parts) else ()
        batches.append(MicroBatch(wall_clock_ms, records, tick=True))

    def run(restarted: set[int], cached: int) -> Recording:
        return run_recorded(
            cases.plan(SINGLE_INPUT[name], record_cache=False),
            {TOPIC: 1},
            batches,
            errors=ErrorPolicy.of("continue"),
            restarts=lambda batch_id, task: batch_id in restarted,
            max_cached_entries=cached,
            idle_timeout=cases.ms(20),
            sink_partitions={"placed": 3},
        )

    whole, other = run(set(), 200_000), run(restarts, 1)

    assert other.tasks == whole.tasks
    assert other.stores == whole.stores
    assert other.metrics == whole.metrics
