"""The property of `test_reference.py` finds bugs: each of these is planted in the kernel, and must be found.

A bug is a place in the kernel's text and what is written there in its stead. `pytest -s` shows the smallest example
that hypothesis found for each.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from types import FunctionType

import pytest
from hypothesis import Phase, given, settings

from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.order import _Run, _run_merged, _run_one
from deltaworks.kernel.processors.windowed_aggregates import window_aggregate
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.task import Task
from deltaworks.kernel.task_times import TaskTimes
from tests.properties.test_reference import Example, examples, expected, run


@dataclass(frozen=True)
class Bug:
    """A function that is no longer what it was."""

    function: object
    right: str
    wrong: str

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gives the function other code, so that everybody who has it already gets the bug too."""
        function = self.function
        assert isinstance(function, FunctionType)
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.right) == 1, f"{function.__qualname__} has changed: plant its bug anew"
        compiled = compile(
            text.replace(self.right, self.wrong),
            f"<bug in {function.__qualname__}>",
            "exec",
            __future__.annotations.compiler_flag,
        )
        made: dict[str, FunctionType] = {}
        exec(compiled, function.__globals__, made)
        monkeypatch.setattr(function, "__code__", made[function.__name__].__code__)


ORDERING = {
    "ties are broken the wrong way": Bug(
        _Run.refill,
        "+ self._position for",
        "+ self._count - 1 - self._position for",
    ),
    "ties go to whoever had the last record": Bug(
        _run_merged,
        "runs = [_Run(partition, position, len(partitions))",
        "runs = [_Run(partition, 0, 1)",
    ),
    "merged by raw timestamp, not by the largest so far": Bug(
        _run_merged,
        "key=ranks.__getitem__",
        "key=lambda at: (rows[at][5], ranks[at] % len(partitions))",
    ),
    "one partition after the other": Bug(
        _run_merged,
        "runs = [_Run(partition, position, len(partitions)) for position, partition in enumerate(partitions)]",
        "return [_run_one(partition, context) for partition in partitions]",
    ),
    "a chunk of a partition is sorted by timestamp": Bug(
        _run_one,
        "strict=False)",
        "strict=False)\n        rows = sorted(rows, key=lambda row: row[3])",
    ),
    "within one timestamp, a partition is reversed": Bug(
        _run_merged,
        "key=ranks.__getitem__",
        "key=lambda at: (ranks[at], -at)",
    ),
    "records of an exchange are sorted by timestamp": Bug(
        ExchangeOutput.take,
        "taken = self.batches()",
        """taken = self.batches()
    for batch in taken.values():
        rows = sorted(zip(batch.timestamps_ms, batch.keys, batch.values), key=lambda row: row[0])
        batch.timestamps_ms[:], batch.keys[:], batch.values[:] = map(list, zip(*rows))""",
    ),
    "records of an exchange come task by task, not merged": Bug(
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
    "late a millisecond after the grace is over": Bug(
        window_aggregate,
        "end_ms <= closed_ms",
        "end_ms < closed_ms",
    ),
    "late by the window's start": Bug(
        window_aggregate,
        "end_ms <= closed_ms",
        "start_ms <= closed_ms",
    ),
    "late by the time at the end of the batch": Bug(
        window_aggregate,
        _MOVES_TIME,
        """\
        at_end_ms = max(max(batch.timestamps_ms) for batch in context.batches)
        clock.observed_ms = max(clock.observed_ms, at_end_ms)
        closed_ms = clock.observed_ms - grace_ms
""",
    ),
    "late by the time at the end of the batch before": Bug(
        window_aggregate,
        _MOVES_TIME,
        """\
        if getattr(process, "batch", None) is not context.metrics:
            process.batch = context.metrics
            closed_ms = clock.observed_ms - grace_ms
        clock.observed_ms = max(clock.observed_ms, timestamp_ms)
""",
    ),
    "a restart forgets the time of windows": Bug(
        TaskTimes.observed,
        "if name.startswith(_OBSERVED)",
        "if False",
    ),
    "a restart forgets the time of stores": Bug(
        Task.__init__,
        'newest_ms=self._times.get(f"newest/{spec.name}")',
        "newest_ms=-1",
    ),
    "joined after the retention is over": Bug(
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
def test_an_ordering_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

    assert falsified() is not None


@pytest.mark.parametrize("bug", LATENESS.values(), ids=LATENESS)
def test_a_lateness_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

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
