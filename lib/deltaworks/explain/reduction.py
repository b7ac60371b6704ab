"""Finds few records that make a row again, by trying: each set is run and the row compared.

First the sets of `candidates`, from small to large, until one reproduces the row: in the test driver, or else in the
micro-batches of the stream. Then records beside the core are left
out, as long as the row stays the same (delta debugging). Both end at a limit of records that are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import StreamsError
from deltaworks.explain.candidates import Candidates
from deltaworks.explain.tracing import InputRecord
from deltaworks.testing.cases import CaseRecord, Clock, Host, RecordedCase, written
from deltaworks.topology.plan import Plan

RUN_RECORDS = 500_000
"""Records that all attempts together may run."""


Way = tuple[Host, Clock]
"""How a case is run."""


@dataclass(frozen=True)
class Reduced:
    """The result of trying."""

    records: tuple[int, ...]
    """In the order of processing."""
    case: RecordedCase
    found: dict[str, Any] | None
    """The row that the case gives; None: it gives none."""
    is_minimal: bool
    """Whether each record beside the core is needed: without it, the row is another."""
    level: str
    """Which set was enough, or the largest that was tried."""

    @property
    def reproduced(self) -> bool:
        return self.found == self.case.row


@dataclass
class Attempts:
    """Runs sets of records.

    Args:
        pipeline: with the code to test.
        plan: of the pipeline.
        records: of the trace.
        empty: the case without records.
        ways: in the order in which they are tried.
        budget: records that may be run.
    """

    pipeline: Pipeline
    plan: Plan
    records: Sequence[InputRecord]
    empty: RecordedCase
    ways: tuple[Way, ...]
    budget: int = RUN_RECORDS
    _spent: int = field(default=0, init=False)

    @property
    def is_exhausted(self) -> bool:
        return self._spent >= self.budget

    def case(self, chosen: Sequence[int], way: Way) -> RecordedCase:
        """The case of some records."""
        return msgspec.structs.replace(
            self.empty,
            records=tuple(case_record(self.records[number]) for number in chosen),
            host=way[0],
            clock=way[1],
        )

    def run(self, case: RecordedCase) -> dict[str, Any] | None:
        """The row that a case gives."""
        self._spent += len(case.records) + 1
        try:
            return case.found(self.pipeline, self.plan)
        except StreamsError:  # without a record that it needs, another one may fail
            return None


def reduced(candidates: Candidates, attempts: Attempts) -> Reduced:
    """The smallest case that was found."""
    orders = [candidates.order(by_last_step=last) for last in (True, False)]
    best: Reduced | None = None
    for level in candidates.levels():
        chosen = level.records
        for order in orders if len(chosen) > 1 else orders[:1]:
            for way in attempts.ways:
                if way[0] == "recorded" and order is not orders[0]:
                    continue  # it has an order of its own
                if best is not None and attempts.is_exhausted:
                    return best
                numbers = tuple(sorted(chosen, key=order.__getitem__))
                case = attempts.case(numbers, way)
                best = Reduced(numbers, case, attempts.run(case), chosen == candidates.needed, level.what)
                if best.reproduced:
                    small = best if best.is_minimal else _smaller(best, candidates, attempts)
                    return _simplest(small, candidates, attempts)
    assert best is not None
    return best


def _simplest(best: Reduced, candidates: Candidates, attempts: Attempts) -> Reduced:
    """The same with an earlier way, if few records give the row there as well; some may then be left out."""
    for way in attempts.ways[: attempts.ways.index((best.case.host, best.case.clock))]:
        if attempts.is_exhausted:
            break
        case = attempts.case(best.records, way)
        if (found := attempts.run(case)) == case.row:
            same = Reduced(best.records, case, found, best.is_minimal, best.level)
            return _smaller(same, candidates, attempts)
    return best


def _smaller(best: Reduced, candidates: Candidates, attempts: Attempts) -> Reduced:
    """Leaves out records beside the core."""
    rest = [number for number in best.records if number not in candidates.needed]

    def reproduces(kept: Sequence[int]) -> bool:
        chosen = {*kept, *candidates.needed}
        numbers = [number for number in best.records if number in chosen]
        case = attempts.case(numbers, (best.case.host, best.case.clock))
        return attempts.run(case) == case.row

    kept, is_minimal = _least(rest, reproduces, lambda: attempts.is_exhausted)
    chosen = {*kept, *candidates.needed}
    numbers = tuple(number for number in best.records if number in chosen)
    case = attempts.case(numbers, (best.case.host, best.case.clock))
    return Reduced(numbers, case, best.found, is_minimal, best.level)


def _least(
    items: list[int], reproduces: Callable[[Sequence[int]], bool], stopped: Callable[[], bool]
) -> tuple[list[int], bool]:
    """Zeller's ddmin: leaves out parts, then smaller parts; returns the rest, and whether each of it is needed."""
    parts = 2
    while items:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            if stopped():
                return items, False
            without = items[:start] + items[start + size :]
            if reproduces(without):
                items, parts = without, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return items, True
            parts = min(parts * 2, len(items))
    return items, True


def case_record(record: InputRecord) -> CaseRecord:
    """A record as a case has it."""
    return CaseRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        batch=record.batch,
        wall_clock_ms=record.wall_ms,
        key=written(record.key),
        value=written(record.value),
        headers=tuple((name, written(value)) for name, value in record.headers),
    )
