"""All pipelines at once on the whole stack, under SIGKILLs: `make check-jobs`.

Every job of `jobs/` that has sample data is deployed, except those that need a schema registry, which is not started;
its data flows. Drivers, their JVMs, their Python workers and the supervisor are killed at random, alone and in pairs;
the supervisor brings back what has ended. Then everything dies at once, as in a reboot, and `up` brings it back. At the
end every table and topic of every job is compared with its recomputation, and memory and cost of the idle streams are
measured.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import psutil

from deltaworks import processes
from deltaworks.control import actions, batches, heartbeat, jobs
from deltaworks.control.registry import Registry
from deltaworks.control.supervisor import address
from deltaworks.control.topics import prepare
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.quality import validate
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from jobs.recomputed.results import Comparison, Recomputation
from tests.benchmarks.measure import CpuClock, memory_bytes, tree
from tests.support.live_stack import has_read, reachable, settled_end_offsets
from tests.system.sample_data import flowing

_POLL_S = 0.2
_WAIT_S = 600.0
_VICTIMS = ("driver", "jvm", "worker", "worker", "supervisor")
_PAIRS = 0.3
"""How often two are killed at the same moment."""
T = TypeVar("T")


@dataclass
class JobsUnderKills:
    """The streams, and what happens to them."""

    settings: Settings
    names: Sequence[str]
    rng: random.Random
    kills: list[tuple[str, str]] = field(default_factory=list)
    """Job and victim of every SIGKILL that hit."""

    def __post_init__(self) -> None:
        self.pipelines: dict[str, Pipeline] = {name: jobs.load(self.settings, name) for name in self.names}

    def deploy(self) -> None:
        """Starts every stream."""
        for name, pipeline in self.pipelines.items():
            prepare(self.settings.cluster, pipeline, pipeline.plan(), begun=False)
            begun = time.monotonic()
            actions.deploy(self.settings, name, requested_by="check-jobs", launch_s=_WAIT_S)
            print(f"{name:12} runs after {time.monotonic() - begun:.0f} s", flush=True)

    def kill(self) -> None:
        """SIGKILL to one process of one stream that is at work, to the supervisor, or to two of them at once."""
        name = self.rng.choice(self.names)
        count = 2 if self.rng.random() < _PAIRS else 1
        found = {victim: self._one(name, victim) for victim in self.rng.sample(_VICTIMS, count)}
        for victim, process in found.items():
            if process is None:
                continue
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            self.kills.append((name, victim))
            print(f"kill {len(self.kills):3}: {victim} of {name}", flush=True)

    def _one(self, name: str, victim: str) -> psutil.Process | None:
        if victim == "supervisor":
            found = address.read(self.settings.run)
            return None if found is None else found.process.alive()
        driver = self.driver(name)
        if driver is None:
            return None
        candidates = [process for process in _tree(driver) if _kind(process, driver) == victim]
        return self.rng.choice(candidates) if candidates else None

    def reboot(self) -> None:
        """Everything dies at the same moment, as with the machine; `up` is all that brings it back."""
        entries = processes.registered(self.settings.run)
        below = [member for entry in entries for leader in entry.members() for member in processes.family(leader)]
        before = {name: self.driver(name) for name in self.names}
        processes.kill(list(dict.fromkeys(below)), timeout_s=30.0)
        begun = time.monotonic()
        up(self.settings, tethered=True)
        print(
            f"reboot: {len(below)} processes killed, the stack is up after {time.monotonic() - begun:.0f} s", flush=True
        )
        for name in self.names:
            self.until(lambda name=name: self._runs_again(name, before[name]), f"{name} runs again")  # type: ignore[misc]
        print(f"reboot: all streams commit after {time.monotonic() - begun:.0f} s", flush=True)

    def _runs_again(self, name: str, before: int | None) -> bool:
        beat, driver = heartbeat.read(self.settings.pipeline(name) / "heartbeat.json"), self.driver(name)
        at_work = beat is not None and beat.state == "running" and beat.batch_id is not None
        return at_work and beat is not None and driver not in (None, before) and beat.pid == driver

    def driver(self, name: str) -> int | None:
        """The process id of a stream's driver; None while none runs."""
        entry = processes.find(self.settings.run, name)
        return entry.pid if entry is not None and entry.alive else None

    def settle(self) -> None:
        """Waits until every record is in the tables of the live streams."""
        for name in self.names:
            self.until(lambda name=name: self._caught_up(name), f"{name} has caught up")  # type: ignore[misc]

    def compare(self) -> dict[str, list[Comparison]]:
        """Everything against its recomputation."""
        found = {}
        for name in self.names:
            recomputation: Recomputation = import_module(f"jobs.recomputed.{name}").recomputation
            record = self.settings.pipeline(name) / "batches"
            found[name] = recomputation.check(self.settings.cluster, self.settings.tables, record)
        return found

    def judge(self) -> dict[str, list[str]]:
        """What the quality suites do not find as it should be."""
        found = {}
        for name in self.names:
            suites = import_module(f"jobs.quality.{name}").suites
            tables = {table: self.settings.tables / table for table in suites}
            verdicts = validate(tables, suites)
            found[name] = [str(verdict) for verdict in verdicts if verdict.blocks]
            print(f"{name:12} {len(verdicts)} expectations, {len(found[name])} not met", flush=True)
        return found

    def measure(self, seconds: float = 30.0) -> None:
        """Memory and cost of each stream while none has anything to do."""
        drivers = {name: pid for name in self.names if (pid := self.driver(name)) is not None}
        clocks = {name: CpuClock(pid) for name, pid in drivers.items()}
        begun, before = time.monotonic(), {name: clock.seconds() for name, clock in clocks.items()}
        time.sleep(seconds)
        minutes = (time.monotonic() - begun) / 60
        print(f"{'idle':12} {'memory MB':>10} {'CPU s/min':>10}  generation, batches")
        for name, pid in drivers.items():
            megabytes = memory_bytes(list(tree(pid))) / 1e6
            cpu = (clocks[name].seconds() - before[name]) / minutes
            record = Registry.of(self.settings).pipeline(name)
            count = sum(1 for _ in batches.read(self.settings.pipeline(name) / "batches"))
            print(f"{name:12} {megabytes:10.0f} {cpu:10.2f}  {record.generation if record else 0}, {count}", flush=True)

    def until(self, fact: Callable[[], T | None], what: str) -> T:
        """Polls."""
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            if answer := fact():
                return answer
            time.sleep(_POLL_S)
        raise AssertionError(f"{what}: not after {_WAIT_S:.0f} s")

    def _caught_up(self, name: str) -> bool:
        beat = heartbeat.read(self.settings.pipeline(name) / "heartbeat.json")
        if beat is None or beat.state != "running" or beat.pid != self.driver(name) or beat.stale_snapshots:
            return False
        plan = self.pipelines[name].plan()
        ends = settled_end_offsets(self.settings.cluster, (*plan.source_topics, *plan.global_topics))
        return has_read(beat, ends)


def _tree(driver: int) -> list[psutil.Process]:
    try:
        return processes.family(psutil.Process(driver))
    except psutil.NoSuchProcess:
        return []


def _kind(process: psutil.Process, driver: int) -> str:
    try:
        name, command = process.name(), " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
    if process.pid == driver:
        return "driver"
    if name.startswith("java"):
        return "jvm"
    return "worker" if "daemon" in command and process.ppid() != driver else ""


def run(settings: Settings, seconds: float, rate: float, seed: int) -> bool:
    """Whether everything was equal."""
    names = jobs.with_sample_data(settings)
    under_kills = JobsUnderKills(settings, names, random.Random(seed))
    with ExitStack() as data:
        under_kills.deploy()
        for name in names:
            data.enter_context(flowing(settings, rate, job=name))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(under_kills.rng.uniform(3.0, 9.0))
            under_kills.kill()
        under_kills.reboot()
    under_kills.settle()
    under_kills.measure()
    compared, judged = under_kills.compare(), under_kills.judge()
    for name, comparisons in compared.items():
        for comparison in comparisons:
            verdict = "equal" if comparison.equal else f"DIFFERENT ({comparison.different}) {comparison.differences}"
            counts = f"expected {comparison.expected:,}, found {comparison.found:,}"
            print(f"{name:12} {comparison.kind} {comparison.name}: {counts}: {verdict}")
        for line in judged[name]:
            print(f"{name:12} {line}")
    print(f"{len(under_kills.kills)} kills over {len(names)} streams")
    everything = [comparison for comparisons in compared.values() for comparison in comparisons]
    return all(comparison.equal for comparison in everything) and not any(judged.values())


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-jobs-") as folder:
        settings = own_settings(reachable(Path(folder)) / "home")
        up(settings, print, tethered=True)
        try:
            equal = run(settings, seconds, rate=25.0, seed=1)
        finally:
            down(settings)
    print(f"{'EQUAL' if equal else 'NOT EQUAL'} after {time.monotonic() - begun:.0f} s")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
