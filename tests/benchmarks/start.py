"""`make bench-start`: what a start costs, a tiny batch, an idle minute, many small batches; all streams at once.

    python -m tests.benchmarks.start                          this clone
    python -m tests.benchmarks.start --against ../old         beside another one, in turn
    python -m tests.benchmarks.start --repeats 1 --quick      does it work? not a measurement

A stream is one of `jobs/`, started as `deltaworks run` with a home of its own from a broker that has its sample data.
The start lasts from the command to the first committed batch. What the figures say: `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import psutil

from deltaworks.control import batches, heartbeat, jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import all_topics, prepare
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import SampleRecord, produce
from tests.benchmarks.measure import CpuClock, end_tree, memory_bytes, tree
from tests.benchmarks.run import CONTROL_TOPICS, broker, broker_settings, describe_machine, drop_topics, say
from tests.benchmarks.systems import HEAP
from tests.benchmarks.throughput import RunFailed, tail
from tests.support.live_stack import has_read, settled_end_offsets

_LOOK_S = 0.05
_TIMEOUT_S = 600.0
_FIRST = 5_000
"""Records of the main topic that are there when a stream starts, and of each burst."""
_ENDLESS = 1 << 40
_BURST = 1_000
_BURST_EVERY_S = 2.0
_SETTLE_S = 5.0
_QUICKLY = ("--trigger-interval", "0.3")
_ALONE_PER_S, _EACH_PER_S = 1_000, 200
"""Records of the main topic: of a stream that commits quickly, and of each of many."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Clone:
    """Code that is measured; both run with the Python of this one."""

    name: str
    root: Path

    def environment(self, settings: Settings) -> dict[str, str]:
        """Of its drivers."""
        paths = os.pathsep.join(map(str, (self.root / "lib", self.root)))
        own = {"PYTHONPATH": paths, "DELTAWORKS_PROJECT": str(self.root)}
        return {**os.environ, **settings.process_environment(), **own}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line decides."""

    repeats: int
    bursts: int
    idle_s: float
    fed_s: float
    jobs: tuple[str, ...]
    clones: tuple[Clone, ...]


class Driver:
    """`deltaworks run` of one job, or another command that runs it."""

    def __init__(self, clone: Clone, settings: Settings, job: str, *options: str, command: Sequence[str] = ()) -> None:
        self._paths = PipelinePaths.of(settings, job)
        self._log = settings.home / f"{job}.log"
        self._job = job
        self._begun = time.monotonic()
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command or [sys.executable, "-m", "deltaworks.cli", "run", job, *options],
                env=clone.environment(settings),
                cwd=clone.root,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._clock = CpuClock(self._process.pid)
        self._watching = threading.Event()
        self._used_s = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._watching.wait(_LOOK_S):
            self._used_s = self._clock.seconds()

    @property
    def cpu_s(self) -> float:
        """Of all its processes since the start."""
        return self._used_s

    @property
    def python_cpu_s(self) -> float:
        """Of its Python process, without JVM and workers."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    @property
    def up_s(self) -> float:
        return time.monotonic() - self._begun

    def memory_mb(self) -> float:
        """Shared pages counted once."""
        return memory_bytes(list(tree(self._process.pid))) / 1e6

    def batches(self) -> int:
        """Committed ones."""
        with suppress(FileNotFoundError):
            return sum(1 for _ in batches.read(self._paths.batches))
        return 0

    def caught_up(self, bootstrap: str, *, snapshots: bool = True) -> bool:
        """Whether all that is in the topics has been committed, and all snapshots are up to date."""
        beat = heartbeat.read(self._paths.heartbeat)
        if beat is None or beat.pid != self._process.pid or beat.state != "running":
            return False
        if snapshots and beat.stale_snapshots:
            return False
        ends = settled_end_offsets(bootstrap, [*beat.next_offsets])
        return bool(ends) and has_read(beat, ends)

    def until(self, fact: Callable[[], bool]) -> None:
        """Waits; refuses a driver that has ended."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not fact():
            if self._process.poll() is not None:
                raise RunFailed(f"{self._job} ended with {self._process.returncode}:\n{tail(self._log)}")
            if time.monotonic() > deadline:
                raise RunFailed(f"{self._job}: nothing within {_TIMEOUT_S:.0f} s:\n{tail(self._log)}")
            time.sleep(_LOOK_S)

    def end(self, *, kill: bool = False) -> None:
        self._watching.set()
        self._thread.join()
        if kill:
            for pid in tree(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
        end_tree(self._process.pid)
        self._process.wait()


@dataclass
class Sample:
    """Sample data of a job, continued from call to call."""

    bootstrap: str
    records: Iterator[SampleRecord]

    @classmethod
    def of(cls, settings: Settings, job: str) -> Sample:
        """With empty topics."""
        pipeline = jobs.load(settings, job)
        plan = pipeline.plan()
        drop_topics(settings.bootstrap, *all_topics(pipeline, plan))
        prepare(settings.bootstrap, pipeline, plan, begun=False)
        return cls(settings.bootstrap, jobs.load_module(settings, f"sample_data.{job}").records(_ENDLESS))

    def more(self, count: int, per_s: float | None = None) -> None:
        produce(self.bootstrap, islice(self.records, count), records_per_second=per_s)


def feed(samples: Sequence[Sample], per_s: float, seconds: float) -> float:
    """All of them at once, each that many records per second; returns how long it really took, in seconds."""
    begun = time.monotonic()
    with ThreadPoolExecutor(len(samples)) as threads:
        for fed in [threads.submit(sample.more, round(per_s * seconds), per_s) for sample in samples]:
            fed.result()
    return time.monotonic() - begun


def quickly(clone: Clone, settings: Settings, job: str, options: Options) -> dict[str, float]:
    """One stream with a short interval and a steady flow."""
    sample = Sample.of(settings, job)
    sample.more(_FIRST)
    driver = Driver(clone, settings, job, *_QUICKLY)
    try:
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        feed([sample], _ALONE_PER_S, options.fed_s)  # classes, compiled code
        before, committed = driver.cpu_s, driver.batches()
        took_s = feed([sample], _ALONE_PER_S, options.fed_s)
        used_s, done, fed_at = driver.cpu_s - before, driver.batches() - committed, time.monotonic()
        driver.until(lambda: driver.caught_up(settings.bootstrap, snapshots=False))
        behind_s = time.monotonic() - fed_at
        return {"s/commit": took_s / max(1, done), "cores": used_s / took_s, "then behind s": behind_s}
    finally:
        driver.end()


def alone(clone: Clone, settings: Settings, job: str, options: Options) -> dict[str, float]:
    """One stream: its start, idle, and with a burst now and then."""
    sample = Sample.of(settings, job)
    sample.more(_FIRST)
    driver = Driver(clone, settings, job)
    try:
        driver.until(lambda: driver.batches() > 0)
        found = {"start CPU s": driver.cpu_s, "start s": driver.up_s}
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        for _ in range(3):
            sample.more(_BURST)
            driver.until(lambda: driver.caught_up(settings.bootstrap))
        time.sleep(_SETTLE_S)
        before, begun = driver.cpu_s, time.monotonic()
        time.sleep(options.idle_s)
        rate = (driver.cpu_s - before) / (time.monotonic() - begun)
        found |= {"idle CPU s/min": 60 * rate, "idle MB": driver.memory_mb()}
        before, begun, committed = driver.cpu_s, time.monotonic(), driver.batches()
        for _ in range(options.bursts):
            sample.more(_BURST)
            time.sleep(_BURST_EVERY_S)
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        used = driver.cpu_s - before - rate * (time.monotonic() - begun)
        return found | {"CPU s/batch": used / max(1, driver.batches() - committed)}
    finally:
        driver.end()


def all_at_once(clone: Clone, settings: Settings, names: Sequence[str], options: Options) -> dict[str, float]:
    """All streams, all killed, all started again: until each has committed what has come since; then fed steadily."""
    samples = {name: Sample.of(settings, name) for name in names}
    for sample in samples.values():
        sample.more(_FIRST)
    with ExitStack() as opened:
        for name in names:
            driver = Driver(clone, settings, name)
            opened.callback(driver.end, kill=True)
            driver.until(lambda driver=driver: driver.caught_up(settings.bootstrap))  # type: ignore[misc]
    for sample in samples.values():
        sample.more(_BURST)
    with ExitStack() as opened:
        drivers = []
        for name in names:
            drivers.append(Driver(clone, settings, name))
            opened.callback(drivers[-1].end)
        for driver in drivers:
            driver.until(lambda driver=driver: driver.caught_up(settings.bootstrap))  # type: ignore[misc]
        up_s = drivers[0].up_s
        time.sleep(_SETTLE_S)
        used_s, memory_mb = sum(driver.cpu_s for driver in drivers), sum(driver.memory_mb() for driver in drivers)
        fed_s = feed([*samples.values()], _EACH_PER_S, options.fed_s)
        return {
            "all caught up s": up_s,
            "all CPU s": used_s,
            "all MB": memory_mb,
            "fed: cores": (sum(driver.cpu_s for driver in drivers) - used_s) / fed_s,
        }


@contextmanager
def home(settings: Settings, name: str) -> Iterator[Settings]:
    """Settings of a home that nobody has used, at a broker that knows of no other."""
    drop_topics(settings.bootstrap, CONTROL_TOPICS)
    own = replace(settings, home=settings.home.parent / name, driver_memory=HEAP)
    own.home.mkdir()
    try:
        yield own
    finally:
        shutil.rmtree(own.home, ignore_errors=True)


def measure(settings: Settings, options: Options) -> dict[tuple[str, str], list[dict[str, float]]]:
    """Cell and clone -> what each round has measured."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}

    def add(cell: str, clone: Clone, figures: dict[str, float]) -> None:
        found.setdefault((cell, clone.name), []).append(figures)
        say(f"{cell} {clone.name}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))

    everything = jobs.with_sample_data(settings)
    for number in range(options.repeats):
        for job in options.jobs:
            for clone in options.clones:
                with home(settings, f"{clone.name}-{job}-{number}") as own:
                    add(job, clone, alone(clone, own, job, options))
            for clone in options.clones:
                with home(settings, f"{clone.name}-{job}-quickly-{number}") as own:
                    add(f"{job}, 300 ms", clone, quickly(clone, own, job, options))
    for clone in options.clones:
        with home(settings, f"{clone.name}-all") as own:
            add(f"{len(everything)} streams", clone, all_at_once(clone, own, everything, options))
    return found


def table(found: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    """Medians, one line per cell and clone."""
    lines = []
    for (cell, clone), rounds in found.items():
        medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        figures = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
        lines.append(f"{cell:18} {clone:6} of {len(rounds)}: {figures}")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> Options:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", default="wordcount,orders", help="Streams that are measured alone.")
    parser.add_argument("--against", type=Path, default=None, help="Another clone, such as a worktree of older code.")
    parser.add_argument("--quick", action="store_true")
    found = parser.parse_args(arguments)
    clones = [Clone(name="this", root=ROOT)]
    if found.against is not None:
        clones.append(Clone(name="other", root=found.against.resolve()))
    return Options(
        repeats=found.repeats,
        bursts=3 if found.quick else 15,
        idle_s=5.0 if found.quick else 30.0,
        fed_s=5.0 if found.quick else 20.0,
        jobs=tuple(found.jobs.split(",")),
        clones=tuple(clones),
    )


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        settings = broker_settings(Path(folder), None)
        with broker(settings):
            found = measure(settings, options)
    print(describe_machine())
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
