"""Mutations of the kernel: the property of `tests/properties/test_reference.py` must find each of these bugs.

`pytest -s` shows the smallest example that hypothesis found for each.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.order import _Run, _run_merged, _run_one
from deltaworks.kernel.processors.windowed_aggregates import window_aggregate
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.task import Task
from deltaworks.kernel.task_times import TaskTimes
from tests.mutation.text import TextMutation
from tests.properties.test_reference import Example, examples, expected, run

ORDERING = {
    "ties are broken the wrong way": TextMutation(
        _Run.refill,
        "+ self._position for",
        "+ self._count - 1 - self._position for",
    ),
    "ties go to whoever had the last record": TextMutation(
        _run_merged,
        "runs = [_Run(partition, position, len(partitions))",
        "runs = [_Run(partition, 0, 1)",
    ),
    "merged by raw timestamp, not by the largest so far": TextMutation(
        _run_merged,
        "key=ranks.__getitem__",
        "key=lambda at: (rows[at][5], ranks[at] % len(partitions))",
    ),
    "one partition after the other": TextMutation(
        _run_merged,
        "runs = [_Run(partition, position, len(partitions)) for position, partition in enumerate(partitions)]",
        "return [_run_one(partition, context) for partition in partitions]",
    ),
    "a chunk of a partition is sorted by timestamp": TextMutation(
        _run_one,
        "strict=False)",
        "strict=False)\n        rows = sorted(rows, key=lambda row: row[3])",
    ),
    "within one timestamp, a partition is reversed": TextMutation(
        _run_merged,
        "key=ranks.__getitem__",
        "key=lambda at: (ranks[at], -at)",
    ),
    "records of an exchange are sorted by timestamp": TextMutation(
        ExchangeOutput.take,
        "taken = self.batches()",
        """taken = self.batches()
    for batch in taken.values():
        rows = sorted(zip(batch.timestamps_ms, batch.keys, batch.values), key=lambda row: row[0])
        batch.timestamps_ms[:], batch.keys[:], batch.values[:] = map(list, zip(*rows))""",
    ),
    "records of an exchange come task by task, not merged": TextMutation(
        ExchangeOutput.add,
        "RecordBatch(exchange, self._task, [], [], [], [])",
        "RecordBatch(exchange, 0, [], [], [], [])",
    ),
}

_MOVES_TIME = """\
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
            closed_ms = timestamp_ms - grace_ms
"""

LATENESS = {
    "late a millisecond after the grace is over": TextMutation(
        window_aggregate,
        "end_ms <= closed_ms",
        "end_ms < closed_ms",
    ),
    "late by the window's start": TextMutation(
        window_aggregate,
        "end_ms <= closed_ms",
        "start_ms <= closed_ms",
    ),
    "late by the time at the end of the batch": TextMutation(
        window_aggregate,
        _MOVES_TIME,
        """\
        at_end_ms = max(max(batch.timestamps_ms) for batch in context.batches)
        clock.observed_ms = max(clock.observed_ms, at_end_ms)
        closed_ms = clock.observed_ms - grace_ms
""",
    ),
    "late by the time at the end of the batch before": TextMutation(
        window_aggregate,
        _MOVES_TIME,
        """\
        if getattr(process, "batch", None) is not context.metrics:
            process.batch = context.metrics
            closed_ms = clock.observed_ms - grace_ms
        clock.observed_ms = max(clock.observed_ms, timestamp_ms)
""",
    ),
    "a restart forgets the time of windows": TextMutation(
        TaskTimes.observed,
        "if name.startswith(_OBSERVED)",
        "if False",
    ),
    "a restart forgets the time of stores": TextMutation(
        Task.__init__,
        'newest_ms=self._times.get(f"newest/{spec.name}")',
        "newest_ms=-1",
    ),
    "joined after the retention is over": TextMutation(
        JoinWindowStore.between,
        "visible_ms = self.newest_ms - self.retention_ms + 1",
        "visible_ms = 0",
    ),
}


@settings(max_examples=1_000, deadline=None, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
@given(examples())
def results_are_those_of_the_reference(example: Example) -> None:
    assert run(example) == expected(example)


@pytest.mark.parametrize("bug", ORDERING.values(), ids=ORDERING)
def test_an_ordering_bug_is_found(bug: TextMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch.setattr)

    assert falsified() is not None


@pytest.mark.parametrize("bug", LATENESS.values(), ids=LATENESS)
def test_a_lateness_bug_is_found(bug: TextMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch.setattr)

    assert falsified() is not None


def test_without_a_bug_nothing_is_found() -> None:
    assert falsified() is None


def falsified() -> str | None:
    """The smallest example found in which the property does not hold."""
    try:
        results_are_those_of_the_reference()
    except AssertionError as error:
        found = "\n".join(getattr(error, "__notes__", ()))
        print(found)
        return found
    return None
