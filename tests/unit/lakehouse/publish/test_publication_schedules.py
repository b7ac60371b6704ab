"""Whatever happens in whatever order, the tables hold what a model in plain Python says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltaworks import faults
from deltaworks.errors import TableError
from deltaworks.lakehouse import checkpoints, compaction, snapshot_files
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.publish.publication import PublicationRequest
from tests.unit.lakehouse.publication_lake import (
    ALL,
    DAY_MS,
    FIRST_MS,
    Rows,
    Stream,
    check,
    closed_ms,
    replaced,
    request_for,
)

STEPS = 9
MAX_BATCHES = 18


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(None)


@dataclass
class Published:
    """A publication that stands."""

    request: PublicationRequest
    before: Rows
    next_batch: int


class Schedule:
    """A stream, and what has been published under it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.choose = random.Random(seed)
        self.root, self.publications = root, root / "publications"
        self.live = Stream(root / "tables")
        self.standing: list[Published] = []
        self.runs = self.crashes = self.refused = 0

    def step(self) -> None:
        """Anything."""
        choices = [self.go_on] * 3 + [self.publish] * 3 + [self.roll_back] * 2
        choices += [self.live.restart, self.refresh, self.clean]
        self.choose.choice(choices)()

    def go_on(self) -> None:
        if self.live.next_batch < MAX_BATCHES:
            self.live.run(self.choose.randrange(1, 4), refresh=self.choose.random() < 0.5)

    def refresh(self) -> None:
        self.live.committer.refresh_snapshots(eager=True)
        if self.choose.random() < 0.5:
            self.live.committer.settle()

    def clean(self) -> None:
        """Time passes: replaced files go, and checkpoints know of none that are long gone."""
        self.live.committer.settle()  # what is under way has read its files
        for table in self.live.committer.tables.values():
            table.log.expire(1 << 60)
            if self.choose.random() < 0.5:
                checkpoints.write(table.log.path, table.log.state())
        if self.choose.random() < 0.5:
            self.live.restart()

    def publish(self) -> None:
        self.runs += 1
        batches = self.live.next_batch
        staging = self.live.replay(
            self.root / f"staging-{self.runs}", f"run-{self.runs}", self.runs, chunk=self.choose.randrange(1, 5)
        )
        self.live.run(self.choose.randrange(2))
        complete = (closed_ms(batches - 1) - 1 - FIRST_MS) // DAY_MS
        if complete < 1:
            return
        first = self.choose.randrange(complete)
        days = (first, self.choose.randrange(first, complete) + 1)
        tables = tuple(self.choose.sample(ALL, self.choose.randrange(1, len(ALL) + 1)))
        request = request_for(staging, days=days, tables=tables)
        before, next_batch = deepcopy(self.live.rows), self.live.next_batch
        self.repeat(
            "publication", lambda: publication.publish(self.live.committer, staging.root, request, self.publications)
        )
        since = self.live.next_batch
        self.live.rows = replaced(self.live, staging, request)
        assert next_batch <= since
        self.standing.append(Published(request, before, next_batch))

    def roll_back(self) -> None:
        if not self.standing:
            return
        if len(self.standing) > 1 and self.choose.random() < 0.3:
            self.roll_back_too_early()
        last = self.standing.pop()
        run_id = last.request.run_id
        self.repeat("rollback", lambda: publication.rollback(self.live.committer, self.publications, run_id))
        first, end = last.request.from_ms or 0, last.request.to_ms or 0
        self.live.rows = self.live.rows.restored(last.before, last.request.tables, first, end, last.next_batch)

    def roll_back_too_early(self) -> None:
        """One that a later one has replaced some of."""
        mine, last = self.standing[-2].request, self.standing[-1].request
        overlaps = (mine.from_ms or 0) < (last.to_ms or 0) and (last.from_ms or 0) < (mine.to_ms or 0)
        tables = set(mine.tables) & set(last.tables)
        if "users" in tables or (overlaps and tables):
            self.refused += 1
            with pytest.raises(TableError, match=rf"Run {last.run_id} has replaced some of what"):
                publication.rollback(self.live.committer, self.publications, mine.run_id)

    def repeat(self, kind: str, call: object) -> None:
        """The call, with crashes at points of its own; the stream goes on in between."""
        assert callable(call)
        while True:
            left = self.choose.choice([None, 0, 1, 3, 6, 9])

            def hook(reached: str) -> None:
                nonlocal left
                if left is not None and reached.startswith(f"{kind}."):
                    left -= 1
                    if left < 0:
                        raise Crash(reached)

            faults.arm(hook if left is not None else None)
            try:
                call()
                return
            except Crash:
                self.crashes += 1
                faults.arm(None)
                if self.choose.random() < 0.8:
                    self.live.restart()
                if self.choose.random() < 0.5:
                    self.live.run(1)
            finally:
                faults.arm(None)


@pytest.mark.parametrize("seed", range(4))
def test_the_tables_hold_what_the_model_says(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_FAN_IN", (4, 4, 4))
    monkeypatch.setattr(snapshot_files, "RANGE_ROWS", 4)
    schedule = Schedule(tmp_path, seed)
    schedule.live.run(7)
    for _ in range(STEPS):
        schedule.step()
        check(schedule.live)
    while schedule.standing:
        schedule.roll_back()
    check(schedule.live)

    schedule.live.restart()
    check(schedule.live)
    assert schedule.live.rows.windows == schedule.live.written.windows
    assert schedule.runs
