"""Publishes and rollbacks under a stream to which records arrive at a steady rate, and what they do to its batches."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import msgspec
from deltalake import DeltaTable

from deltaworks.control import commands, heartbeat
from deltaworks.control.commands import Answer
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import LeaseError
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.replay import runs
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import SampleRecord, produce
from jobs.orders import pipeline
from jobs.sample_data.kafka import DAY
from tests.benchmarks.measure import end_tree
from tests.benchmarks.throughput import RunFailed, tail

_START_S = 300.0
_WARM_UP_BATCHES = 5
_BETWEEN = 3
"""Batches from a command to the next one: what its own is compared with, and those before it."""
_POLL_S = 0.01

Kind = Literal["publish", "rollback"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch: from the start of its tasks to the heartbeat after its commit."""

    number: int
    ended_s: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Command:
    """A publish or a rollback."""

    kind: Kind
    rows: int
    """That it put in the place of others."""
    files: int
    """Removed and added."""
    answered_s: float
    """From asking to the answer."""
    seconds: float
    """Of work; no batch commits meanwhile."""
    batch_s: float
    """Of the longest batch that it overlapped; 0: it fell between two."""
    usual_batch_s: float
    """Median of the batches before and after."""
    delay_s: float
    """How much longer the overlapped one took."""


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """The batches that no command overlapped."""

    batches: int
    p50_s: float
    p90_s: float
    max_s: float


def cells(settings: Settings, run_id: str) -> Mapping[str, PublicationRequest]:
    """What to publish of a replay: all days, and the first quarter of them."""
    request = runs.resume(settings, run_id).publication_request()
    assert request.to_ms is not None, "no day is complete"
    first_ms = _first_day_ms(settings)
    quarter_ms = first_ms + (request.to_ms - first_ms) // DAY // 4 * DAY
    return {"all": request, "quarter": msgspec.structs.replace(request, to_ms=quarter_ms)}


class Stream:
    """A stream that has caught up, while records arrive."""

    def __init__(self, settings: Settings, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._settings, self._log, self._process = settings, log, process
        self._heartbeat = PipelinePaths.of(settings, pipeline.name).heartbeat
        self._batches: list[Batch] = []
        self._disturbed: set[int] = set()
        self._random = random.Random(7)
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._watch_batches, daemon=True)
        self._watch.start()

    def publish_and_roll_back(self, request: PublicationRequest) -> Iterator[Command]:
        """Each between batches that nothing disturbs."""
        staging = runs.resume(self._settings, request.run_id).paths.tables
        yield self._measure("publish", request, {"staging": str(staging), "request": msgspec.to_builtins(request)})
        yield self._measure("rollback", request, {})

    def await_batches(self, count: int) -> None:
        """Until so many more have ended."""
        wanted = len(self._batches) + count
        self.until(lambda: len(self._batches) >= wanted, f"{count} batches")

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Polls."""
        deadline = time.monotonic() + _START_S
        while not fact():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"{what} did not come; the log ends:\n{tail(self._log)}")
            time.sleep(_POLL_S)

    def undisturbed(self) -> Undisturbed:
        """What batches take without commands; the first ones, of the backlog, are not among them."""
        seconds = sorted(batch.seconds for batch in self._calm(self._batches[_WARM_UP_BATCHES:]))
        return Undisturbed(
            batches=len(seconds),
            p50_s=round(statistics.median(seconds), 3),
            p90_s=round(seconds[len(seconds) * 9 // 10], 3),
            max_s=round(seconds[-1], 3),
        )

    def lag(self) -> int | None:
        """Records that no committed batch covers."""
        beat = heartbeat.read(self._heartbeat)
        return None if beat is None or beat.state != "running" else beat.lag_records

    def close(self) -> None:
        """Looks no more."""
        self._stop.set()
        self._watch.join()

    def _measure(self, kind: Kind, request: PublicationRequest, arguments: Mapping[str, Any]) -> Command:
        first = len(self._batches) - _BETWEEN
        # A command that always followed a batch at once would always meet the pause before the next one.
        time.sleep(self._random.uniform(0, self._batches[-1].ended_s - self._batches[-2].ended_s))
        asked_s = time.time()
        said = self._ask(kind, {"run_id": request.run_id, **arguments}, int(asked_s * 1000))
        answered_s = time.time()
        if said.result is None:
            raise RunFailed(f"{kind} of {request.run_id}: {said.error}")
        self.await_batches(_BETWEEN)
        around = self._batches[first:]
        work = answered_s - 0.05 - said.seconds, answered_s  # who asks looks every 50 ms
        met = [batch for batch in around if batch.ended_s > work[0] and batch.ended_s - batch.seconds < work[1]]
        self._disturbed |= {batch.number for batch in met}
        longest = max((batch.seconds for batch in met), default=0.0)
        usual = statistics.median(batch.seconds for batch in self._calm(around))
        tables = msgspec.convert(said.result, Publication).tables.values()
        rows = sum(table.added_rows for table in tables)
        if not rows:
            raise RunFailed(f"{kind} of {request.run_id} was about no row")
        return Command(
            kind=kind,
            rows=rows,
            files=sum(table.added_files + table.removed_files for table in tables),
            answered_s=round(answered_s - asked_s, 3),
            seconds=round(said.seconds, 3),
            batch_s=round(longest, 3),
            usual_batch_s=round(usual, 3),
            delay_s=round(max(0.0, longest - usual), 3),
        )

    def _ask(self, kind: Kind, arguments: dict[str, Any], at_ms: int) -> Answer:
        """As `publication` does, but with the answer's own seconds."""
        folder = PipelinePaths.of(self._settings, pipeline.name).commands
        name = f"{kind}-benchmark-{at_ms}"
        command = commands.Command(id=name, kind=kind, arguments=arguments, requested_by="benchmark", at_ms=at_ms)
        commands.put(folder, command)
        return commands.wait(folder, command, act=_nobody_else, timeout_s=_START_S)

    def _calm(self, batches: Sequence[Batch]) -> list[Batch]:
        return [batch for batch in batches if batch.number not in self._disturbed]

    def _watch_batches(self) -> None:
        while not self._stop.wait(_POLL_S):
            beat = heartbeat.read(self._heartbeat)
            if beat is None or beat.batch_id is None or beat.pid != self._process.pid:
                continue
            if not self._batches or self._batches[-1].number != beat.batch_id:
                self._batches.append(Batch(number=beat.batch_id, ended_s=beat.at, seconds=beat.batch_seconds))


@contextmanager
def stream(settings: Settings, later: Iterator[SampleRecord], rate: int) -> Iterator[Stream]:
    """The stream of a home, and records that arrive as long as the block lasts."""
    log = settings.home / "publish.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deltaworks.cli", "run", pipeline.name],
            env={**os.environ, **settings.process_environment()},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    enough = threading.Event()
    records = takewhile(lambda _: not enough.is_set(), later)
    arriving = threading.Thread(
        target=produce, args=(settings.bootstrap, records), kwargs={"records_per_second": rate}, daemon=True
    )
    found = Stream(settings, log, process)
    try:
        found.until(lambda: found.lag() == 0, "the end of the backlog")
        arriving.start()
        found.await_batches(_WARM_UP_BATCHES)
        yield found
    finally:
        enough.set()
        found.close()
        end_tree(process.pid, timeout_s=120)
        process.wait(timeout=30)


def _nobody_else() -> None:
    raise LeaseError("the stream runs")


def _first_day_ms(settings: Settings) -> int:
    """Of the oldest window."""
    days = DeltaTable(settings.tables / "order_counts").partitions()
    first = date.fromisoformat(min(str(day["window_date"]) for day in days))
    return (first - date(1970, 1, 1)).days * DAY
