"""Runs a pipeline on real Kafka and Spark, kills and breaks it while records flow, and checks the end exactly.

Used by the fault tests and, at full length, by `make check-kill` (`python -m tests.system.kills`).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import psutil

from deltaworks.control import batches, fence, heartbeat, jobs
from deltaworks.control.model import DeployOptions
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.spark.streaming import request_stop
from deltaworks.testing.sample_data import SampleData, produce
from jobs.recomputed.results import Comparison, Recomputation
from tests.support.fault_hooks import HOOK, VARIABLE
from tests.support.processes import words
from tests.support.recorded_batches import StoreDifference, compare_stores

_POLL_S = 0.02
_START_S = 180.0
_POINT_S = 120.0
Report = Callable[[str], None]


@dataclass
class Outcome:
    """What happened, and whether the end is exact."""

    kills: list[tuple[str, str]] = field(default_factory=list)
    """Victim and phase of every SIGKILL that hit."""
    injected: list[str] = field(default_factory=list)
    """Points at which a failure was carried out."""
    starts: int = 0
    comparisons: list[Comparison] = field(default_factory=list)
    stores: list[StoreDifference] = field(default_factory=list)
    rebuilt_stores: list[StoreDifference] = field(default_factory=list)
    openings: Counter[str] = field(default_factory=Counter)
    skipped_transactions: int = 0

    @property
    def exact(self) -> bool:
        return all(c.equal for c in self.comparisons) and not self.stores and not self.rebuilt_stores

    @property
    def phases(self) -> Counter[str]:
        return Counter(phase for _, phase in self.kills)


def print_outcome(outcome: Outcome) -> None:
    """What was hit, and what was compared."""
    print("phases hit:", ", ".join(f"{phase} {count}" for phase, count in outcome.phases.most_common()))
    print("local stores:", dict(outcome.openings), "| transactions skipped:", outcome.skipped_transactions)
    for comparison in outcome.comparisons:
        verdict = "equal" if comparison.equal else f"DIFFERENT ({comparison.different})"
        counts = f"expected {comparison.expected}, found {comparison.found}"
        print(f"  {comparison.kind} {comparison.name}: {counts}: {verdict}")
    print(
        f"  stores: {len(outcome.stores)} entries differ; rebuilt stores: {len(outcome.rebuilt_stores)} entries differ"
    )


class StreamUnderKills:
    """The pipeline, its supervisor and its tormentor."""

    def __init__(
        self,
        settings: Settings,
        work: Path,
        report: Report = print,
        *,
        mutation: str | None = None,
        job: str = "orders",
        environment: Mapping[str, str] | None = None,
        registered: bool = False,
    ) -> None:
        """
        Args:
            settings: of a home of its own; its broker runs.
            work: where the fault orders and traces lie.
            report: receives a line per event.
            mutation: names of `tests.mutation.MUTATIONS`, with ` + ` between them.
            job: the name of the pipeline.
            environment: further variables of the driver and of all below it.
            registered: each driver is a generation of the registry, which it tells what it does.
        """
        self._job, self._environment, self._registered = job, environment or {}, registered
        self.settings = replace(settings, fault_hook=HOOK)
        self.outcome = Outcome()
        self._faults = work / "faults"
        self._report = report
        self._driver: subprocess.Popen[bytes] | None = None
        self._log = work / "driver.log"
        self._wanted = threading.Event()
        for name in ("trace", "inject", "done"):
            (self._faults / name).mkdir(parents=True, exist_ok=True)
        if mutation is not None:
            (self._faults / "mutation").write_text(mutation)

    # The stream

    @contextmanager
    def running(self) -> Iterator[None]:
        """The pipeline runs, and is started again whenever it ends."""
        self._wanted.set()
        supervisor = threading.Thread(target=self._supervise, daemon=True)
        supervisor.start()
        try:
            yield
        finally:
            self._wanted.clear()
            request_stop(self.settings, self._job)
            supervisor.join(timeout=_START_S)
            self._end()

    def lift_mutation(self) -> None:
        """Processes that start from now on have all safeguards."""
        (self._faults / "mutation").unlink(missing_ok=True)

    def catch_up(self) -> None:
        """Runs the pipeline to the end of the topics, without faults."""
        for _ in range(3):
            if self._start("--until-caught-up").wait(timeout=_START_S) == 0:
                self._note_totals()
                return
        raise AssertionError(f"the pipeline does not catch up:\n{self._tail()}")

    @contextmanager
    def alone(self) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that runs, at work, and is not started again when it ends."""
        driver = self._start()
        self._wait_for_batch()
        try:
            yield driver
        finally:
            self._end()

    def batches(self) -> int:
        """How many are recorded as committed."""
        return sum(1 for _ in batches.read(PipelinePaths.of(self.settings, self._job).batches))

    def _supervise(self) -> None:
        while self._wanted.is_set():
            code = self._start().wait()
            self._note_totals()
            if self._wanted.is_set():
                self._report(f"driver ended with {code}; starting again")

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        self.outcome.starts += 1
        environment = os.environ | {
            "DELTAWORKS_HOME": str(self.settings.home),
            "DELTAWORKS_PROJECT": str(self.settings.project),
            "DELTAWORKS_BOOTSTRAP": self.settings.bootstrap,
            "DELTAWORKS_CORES": str(self.settings.cores),
            "DELTAWORKS_FAULT_HOOK": HOOK,
            "DELTAWORKS_DRIVER_MEMORY": self.settings.driver_memory,
            "DELTAWORKS_TABLES": self.settings.tables_address or "",
            "DELTAWORKS_STORAGE": self.settings.storage_address or "",
            "PYTHONPATH": self.settings.joined_python_path,
            "DELTAWORKS_CONTROL_URL": self.settings.control_url or "",
            VARIABLE: str(self._faults),
            **self._environment,
        }
        if self._registered:
            options = (*options, "--generation", str(self._next_generation()))
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "deltaworks.cli", "run", self._job, *options],
                env=environment, cwd=self.settings.project, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self._driver

    def _next_generation(self) -> int:
        above = fence.read(PipelinePaths.of(self.settings, self._job).fence)
        return (
            Registry.of(self.settings)
            .allocate(
                self._job, DeployOptions(), above=above, request_id=None, requested_by="tests", log=str(self._log),
                healing=self.outcome.starts > 1,
            )
            .generation
        )  # fmt: skip

    def _end(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            for process in self._tree():
                process.kill()
            self._driver.wait()

    def _note_totals(self) -> None:
        beat = heartbeat.read(self.settings.pipeline(self._job) / "heartbeat.json")
        if beat is not None and self._driver is not None and beat.pid == self._driver.pid:
            self.outcome.openings.update(beat.store_openings)
            self.outcome.skipped_transactions += beat.skipped_transactions

    def _tail(self, lines: int = 30) -> str:
        log = self._log if self._log.exists() else self.settings.logs / f"{self._job}.log"  # of a supervisor's driver
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    # Its tormentor

    def kill(self, victim: str, rng: random.Random) -> None:
        """SIGKILL to `driver`, `jvm` or a `worker` somewhere within a batch of a stream that is at work."""
        self.at_work(rng)  # what it hits is read from the trace
        for process in self._victims(victim):
            phase = self._phase(process.pid if victim != "jvm" else None)
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            self.outcome.kills.append((victim, phase))
            self._report(f"kill {len(self.outcome.kills):3}: {victim:6} (pid {process.pid}) at {phase}")
            return
        self._report(f"no {victim} to kill")

    def at_work(self, rng: random.Random) -> None:
        """Until the stream is at work, and somewhere within a batch."""
        self._wait_for_batch()
        time.sleep(rng.uniform(0.0, 1.2))

    def words(self) -> list[str]:
        """What the command lines of the driver and of all below it show."""
        return words(psutil.Process(self._driver.pid)) if self._driver is not None else []

    def inject(self, point: str, action: str) -> None:
        """A failure (`raise`) or a SIGKILL (`kill`) the next time that any process reaches the point."""
        self.order(point, action)
        self.await_order(point)

    def order(self, point: str, action: str) -> None:
        """As `inject`, without waiting for it."""
        temporary = self._faults / "order"
        temporary.write_text(action)
        temporary.replace(self._faults / "inject" / point)

    def await_order(self, point: str) -> None:
        """Until an order has been carried out."""
        done = self._faults / "done" / point
        self.until(done.exists, _POINT_S, f"nobody reached {point}")
        action = done.read_text()
        done.unlink()
        self.outcome.injected.append(point)
        self._report(f"{action} at {point}")

    @contextmanager
    def cut_off(self) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that runs, and is suspended with all below it until the end of the block: what it sent may still
        arrive, and it wakes up."""
        driver = self._start()
        self._wait_for_batch()
        tree = self._tree()
        for process in tree:
            process.suspend()
        self._report(f"cut off: driver (pid {driver.pid}) and {len(tree) - 1} others, at {self._phase(None)}")
        try:
            yield driver
        finally:
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    @contextmanager
    def held_at(self, point: str) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that runs, and waits where it or a task reaches a point, until the end of the block."""
        driver = self._start()
        self._wait_for_batch()
        self.order(point, "wait")
        done = self._faults / "done" / point
        self.until(done.exists, _POINT_S, f"nobody reached {point}")
        self._report(f"held: driver (pid {driver.pid}) at {point}")
        try:
            yield driver
        finally:
            done.unlink()

    def lose_local_stores(self) -> None:
        """The executor's disk is gone; only between two runs."""
        shutil.rmtree(PipelinePaths.of(self.settings, self._job).current.local)

    def _wait_for_batch(self) -> None:
        """Until a driver has finished a batch since now, so that the kill hits a stream and not its start."""
        path, begun = self.settings.pipeline(self._job) / "heartbeat.json", time.time()

        def at_work() -> bool:
            beat = heartbeat.read(path)
            driver = self._driver
            return (
                beat is not None and driver is not None and beat.pid == driver.pid and driver.poll() is None
                and beat.state == "running" and beat.batch_id is not None and beat.at > begun
            )  # fmt: skip

        self.until(at_work, _START_S, "the stream does not run")

    def _victims(self, victim: str) -> Sequence[psutil.Process]:
        tree = self._tree()
        if victim == "driver":
            return tree[:1]
        java = [p for p in tree if _name(p).startswith("java")]
        if victim == "jvm":
            return java
        forked = [p for p in tree if _name(p).startswith("python") and p.pid in self._tracing()]
        return [p for p in forked if self._driver is None or p.pid != self._driver.pid]

    def _tree(self) -> list[psutil.Process]:
        if self._driver is None:
            return []
        try:
            root = psutil.Process(self._driver.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _tracing(self) -> set[int]:
        return {int(path.stem) for path in (self._faults / "trace").iterdir()}

    def _phase(self, pid: int | None) -> str:
        """The last point that a process (None: any) reached."""
        traces = (self._faults / "trace").iterdir() if pid is None else [self._faults / "trace" / f"{pid}.log"]
        last = max((_last_line(trace) for trace in traces), default="0 before the first batch")
        return last.split(" ", 1)[1].split(":")[0]

    def until(self, fact: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Polls for a fact; shows the end of the log if it does not come."""
        deadline = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > deadline:
                raise AssertionError(f"{otherwise} within {seconds:.0f} s; the driver's log ends:\n{self._tail()}")
            time.sleep(_POLL_S)

    # The end

    def check(self) -> Outcome:
        """Compares tables, topics and stores with their recomputation; then once more with rebuilt stores."""
        self.catch_up()
        self.compare()
        pipeline = jobs.load(self.settings, self._job)
        self.outcome.stores = compare_stores(self.settings, pipeline)
        self.lose_local_stores()
        sample: SampleData = import_module(f"jobs.sample_data.{self._job}")
        produce(self.settings.cluster, sample.records(500, seed=99))
        self.catch_up()
        self.compare()
        self.outcome.rebuilt_stores = compare_stores(self.settings, pipeline)
        return self.outcome

    def compare(self) -> None:
        """Compares tables and topics with their recomputation."""
        folder = PipelinePaths.of(self.settings, self._job).batches
        if isinstance(folder, ObjectPath):
            folder = copied(folder, self._faults.parent / "batches")
        recomputation: Recomputation = import_module(f"jobs.recomputed.{self._job}").recomputation
        self.outcome.comparisons = recomputation.check(self.settings.cluster, self.settings.tables, folder)


def copied(record: Path, to: Path) -> Path:
    """A record of batches in a folder of its own, as it lies on a disk."""
    shutil.rmtree(to, ignore_errors=True)
    for each in batches.read(record):
        batches.append(to, each)
    return to


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _last_line(trace: Path) -> str:
    try:
        lines = trace.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    return lines[-1] if lines else "0 before the first batch"
