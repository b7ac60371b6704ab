"""Punctuators, which run when stream time or the wall clock reaches a time.

First and later times, and the effect of gaps, follow Kafka Streams (`PunctuationSchedule`); so does the order of
several that are due at once (`PunctuationQueue`, a `java.util.PriorityQueue`).

Schedules made while processors are initialized are remembered in the times of the task: when it is built again they
continue where they were. Schedules made later are lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.task_times import TaskTimes
from deltaworks.topology.processors import PunctuationType, Punctuator

_CANCELLED_MS = 2**63 - 1
_NOT_IN_QUEUE = 2**63 - 1
Run = Callable[[Punctuator, int], None]
"""Runs a punctuator at a time, as the processor that scheduled it."""


class Schedule:
    """One punctuator and its next time; users get it as a `Cancellable`."""

    __slots__ = ("cancelled", "due_ms", "interval_ms", "name", "punctuator", "run")

    def __init__(self, run: Run, punctuator: Punctuator, due_ms: int, interval_ms: int, name: str | None) -> None:
        self.run = run
        self.punctuator = punctuator
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self.name = name
        """The name under which the task remembers it; None: it does not."""
        self.cancelled = False

    def cancel(self) -> None:
        """Stops the punctuator."""
        self.cancelled = True

    def go_on(self, now_ms: int) -> None:
        """Sets the next time after a run; missed runs are not made up for."""
        self.due_ms += ((now_ms - self.due_ms) // self.interval_ms + 1) * self.interval_ms


class Punctuation:
    """The schedules of one task."""

    def __init__(self) -> None:
        self._stream = _Queue()
        self._wall_clock = _Queue()
        self._lasting: list[Schedule] = []
        """The schedules made in `init`."""
        self._made: dict[str, int] = {}
        """Node -> the number of its schedules."""

    def schedule(
        self,
        node: str,
        run: Run,
        punctuator: Punctuator,
        type: PunctuationType,
        *,
        first_ms: int,
        interval_ms: int,
        lasting: bool,
    ) -> Schedule:
        """Adds a schedule; see `ProcessorContext.schedule`.

        Args:
            lasting: The processor is being initialized, so the next task makes the same schedule again.
        """
        name = None
        if lasting:
            number = self._made[node] = self._made.get(node, -1) + 1
            name = f"{node}/{number}"
        made = Schedule(run, punctuator, first_ms, interval_ms, name)
        if lasting:
            self._lasting.append(made)
        self._queue(type).add(made)
        return made

    def restore(self, times: TaskTimes) -> None:
        """Puts remembered schedules where they were; called when all processors are initialized."""
        for queue in (self._stream, self._wall_clock):
            ranked: list[tuple[int, Schedule]] = []
            for position, schedule in enumerate(queue.take_all()):
                due_ms = times.get(f"punctuator/{schedule.name}")
                turn = times.get(f"turn/{schedule.name}")
                if due_ms == _CANCELLED_MS:
                    schedule.cancelled = True
                elif due_ms != NEVER:
                    schedule.due_ms = due_ms
                if turn != _NOT_IN_QUEUE:
                    ranked.append((turn if turn != NEVER else _NOT_IN_QUEUE + position, schedule))
            for _, schedule in sorted(ranked, key=lambda each: each[0]):
                queue.add(schedule)

    def remember(self, times: TaskTimes) -> None:
        """Records when each lasting schedule is due, for the commit."""
        turns = {schedule: turn for queue in (self._stream, self._wall_clock) for turn, schedule in enumerate(queue)}
        for schedule in self._lasting:
            due_ms = _CANCELLED_MS if schedule.cancelled else schedule.due_ms
            times.set(f"punctuator/{schedule.name}", due_ms)
            times.set(f"turn/{schedule.name}", turns.get(schedule, _NOT_IN_QUEUE))

    def stream_time(self, now_ms: int) -> None:
        """Runs punctuators that are due in stream time; before the first record none is."""
        if now_ms != NEVER:
            self._stream.punctuate(now_ms)

    def wall_clock(self, now_ms: int) -> None:
        """Runs punctuators that are due on the wall clock."""
        self._wall_clock.punctuate(now_ms)

    @property
    def next_wall_clock_ms(self) -> int | None:
        """The time when the next one is due on the wall clock; None if there is none."""
        return min((schedule.due_ms for schedule in self._wall_clock if not schedule.cancelled), default=None)

    def _queue(self, type: PunctuationType) -> _Queue:
        match type:
            case PunctuationType.STREAM_TIME:
                return self._stream
            case PunctuationType.WALL_CLOCK_TIME:
                return self._wall_clock
            case _:
                assert_never(type)


class _Queue:
    """Schedules by time, as a binary heap that breaks ties as Java's does."""

    def __init__(self) -> None:
        self._heap: list[Schedule] = []

    def __iter__(self) -> Iterator[Schedule]:
        return iter(self._heap)

    def take_all(self) -> list[Schedule]:
        taken, self._heap = self._heap, []
        return taken

    def add(self, schedule: Schedule) -> None:
        heap = self._heap
        heap.append(schedule)
        at = len(heap) - 1
        while at > 0:
            above = (at - 1) // 2
            if schedule.due_ms >= heap[above].due_ms:
                break
            heap[at] = heap[above]
            at = above
        heap[at] = schedule

    def punctuate(self, now_ms: int) -> None:
        """Runs each schedule that is due, once."""
        while self._heap and self._heap[0].due_ms <= now_ms:
            schedule = self._poll()
            if not schedule.cancelled:
                schedule.run(schedule.punctuator, now_ms)
                if not schedule.cancelled:
                    schedule.go_on(now_ms)
                    self.add(schedule)

    def _poll(self) -> Schedule:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        at, size = 0, len(heap)
        while (child := 2 * at + 1) < size:
            if child + 1 < size and heap[child].due_ms > heap[child + 1].due_ms:
                child += 1
            if last.due_ms <= heap[child].due_ms:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first
