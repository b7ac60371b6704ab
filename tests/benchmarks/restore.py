"""`make bench-restore`: how fast a task's local store is made again from the checkpoint, and what a start waits for it.

    python -m tests.benchmarks.restore
    python -m tests.benchmarks.restore --repeats 1 --entries 100000     does it work? not a measurement

In one process: the store of a count (keys of 16 bytes, values of 8 to 30) from the changelog that batches have left,
the same with an index by time, the same from an initial state; and, as a baseline, a loop that puts the same entries
into LMDB in the order of the changelog, one by one. With a stream on Spark, of which the last batch is committed: the
time from its start to its next committed batch, with its local stores and without them.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import lmdb

from deltaworks.control import heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import GARBAGE_THRESHOLDS
from deltaworks.runtime.state import changelog, initial_state
from deltaworks.runtime.state.local_store import LocalStore
from deltaworks.runtime.state.recovery import NOTHING, CheckpointState, append, next_version, open_store
from deltaworks.settings import Settings
from tests.benchmarks import data, pipelines
from tests.benchmarks.run import broker, broker_settings, describe_machine, say
from tests.benchmarks.start import Clone, Driver, home
from tests.support.task_state import TaskState

_BATCHES = 50
_KEY_BYTES, _VALUE_BYTES = 16, (8, 30)
_MAP_SIZE = 1 << 38
_STORE = "counts"
_JOB, _TOPIC = "key-counts", "bench-keys"
_MORE = 1_000
"""Records that wait at a start."""
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Filled:
    """A task's state as its batches have left it."""

    state: TaskState
    entries: list[tuple[bytes, bytes | None]]
    """In the order of the changelog."""


def filled(count: int, *, timed: bool) -> Filled:
    """Batches with new keys, as many in each."""
    source, state, header = random.Random(count), TaskState(), NOTHING
    made: list[tuple[bytes, bytes | None]] = []
    for _ in range(_BATCHES):
        batch: list[tuple[bytes, bytes | None]] = [
            (_key(source, timed=timed), source.randbytes(source.randint(*_VALUE_BYTES)))
            for _ in range(count // _BATCHES)
        ]
        header = append(state, header, next_version(header), changelog.ordered({_STORE: StoreChanges(batch)}))
        made += batch
    return Filled(state, made)


def _key(source: random.Random, *, timed: bool) -> bytes:
    key = source.randbytes(_KEY_BYTES)
    return key + (source.randrange(20) * 10_000).to_bytes(8, "big") if timed else key


def in_process(count: int, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is measured, by name; each call works in a new folder."""
    plain, timed = filled(count, timed=False), filled(count, timed=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with closing(LocalStore(folder / "source", {_STORE: False})) as local:
        open_store(local, plain.state)
        initial_state.write(initial_state.path_of(folder, 0, 0), local, {_STORE: False}, _BATCHES)
    begun = initial_state.with_initial_state(TaskState(), folder, 0, 0)

    def rebuild(name: str, committed: CheckpointState, stores: Mapping[str, bool]) -> None:
        with closing(LocalStore(folder / name, stores)) as local:
            open_store(local, committed)
            assert local.entry_count() == len(plain.entries)

    yield "puts, one by one", lambda: _puts(folder / "puts", plain.entries)
    yield "rebuild", lambda: rebuild("plain", plain.state, {_STORE: False})
    yield "rebuild, with times", lambda: rebuild("timed", timed.state, {_STORE: True})
    yield "initial state", lambda: rebuild("initial", begun, {_STORE: False})


def _puts(path: Path, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
    with lmdb.open(str(path), map_size=_MAP_SIZE, max_dbs=1, sync=False, metasync=False) as environment:
        database = environment.open_db(_STORE.encode())
        with environment.begin(write=True, db=database) as transaction:
            for key, value in entries:
                assert value is not None
                transaction.put(key, value)


def measure_in_process(count: int, folder: Path) -> dict[str, float]:
    """Entries per second of CPU, by name."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)  # as workers do
    found: dict[str, float] = {}
    for name, work in in_process(count, folder):
        gc.collect()
        before = time.process_time()
        work()
        found[name] = count / (time.process_time() - before)
    shutil.rmtree(folder)
    return found


class Stream:
    """A count per key on Spark, started and ended; each of its keys is in its store."""

    def __init__(self, settings: Settings) -> None:
        os.environ["BENCHMARK_INPUT"] = _TOPIC
        self._settings = settings
        self._paths = PipelinePaths.of(settings, _JOB)

    def fill(self, count: int) -> None:
        """Loads the topic, and runs the stream until it has read it."""
        data.recreate(self._settings.bootstrap, _TOPIC, pipelines.OUTPUT)
        data.load(self._settings.bootstrap, _TOPIC, _records(range(count)))
        driver = self._start()
        driver.until(lambda: driver.caught_up(self._settings.bootstrap))
        time.sleep(3.0)  # a thread brings the last batch to the local stores
        driver.end()

    def start(self, *, without_stores: bool) -> dict[str, float]:
        """Starts it with some records waiting; figures of the first committed batch."""
        if without_stores:
            shutil.rmtree(self._paths.current.local)
        data.load(self._settings.bootstrap, _TOPIC, _records(range(_MORE)))
        driver = self._start()
        try:
            before = driver.batches()
            driver.until(lambda: driver.batches() > before)
            found = {"start s": driver.up_s, "CPU s": driver.cpu_s}
            driver.until(lambda: driver.caught_up(self._settings.bootstrap))
            beat = heartbeat.read(self._paths.heartbeat)
            assert beat is not None
            assert without_stores == bool(beat.store_openings.get("rebuild")), beat.store_openings
            rate = beat.restored_entries / beat.restore_seconds if beat.restore_seconds else 0.0
            time.sleep(3.0)
            return found | {"restored": beat.restored_entries, "restored/s and task": rate}
        finally:
            driver.end()

    def _start(self) -> Driver:
        command = [sys.executable, "-m", "tests.benchmarks.host", "key_counts"]
        return Driver(Clone(name="this", root=_ROOT), self._settings, _JOB, command=command)


def _records(numbers: range) -> Iterator[data.Bid]:
    for number in numbers:
        key = b"key-%012d" % (number * 7_919 % 1_000_003 + number // 1_000_003 * 1_000_003)
        yield data.Bid(partition=data.partition_of(key), timestamp_ms=data.FIRST_TIME_MS, key=key, value=b"x")


def measure_stream(count: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Starts in turn, with local stores and without."""
    found: dict[str, list[dict[str, float]]] = {"kept": [], "removed": []}
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        settings = broker_settings(Path(folder), None)
        with broker(settings), home(settings, "restored") as own:
            stream = Stream(own)
            stream.fill(count)
            stream.start(without_stores=False)  # classes
            for _ in range(repeats):
                for name, rounds in found.items():
                    figures = stream.start(without_stores=name == "removed")
                    rounds.append(figures)
                    told = ", ".join(f"{each} {value:,.1f}" for each, value in figures.items())
                    say(f"local stores {name}: {told}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--without-spark", action="store_true")
    options = parser.parse_args(arguments)
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        for _ in range(options.repeats):
            rounds.append(measure_in_process(options.entries, Path(folder) / "stores"))
            say(", ".join(f"{name} {value:,.0f}/s" for name, value in rounds[-1].items()))
    started = {} if options.without_spark else measure_stream(options.entries, options.repeats)
    print(describe_machine(), "load", os.getloadavg())
    for name in rounds[0]:
        rate = statistics.median(each[name] for each in rounds)
        ratio = statistics.median(each[name] / each["puts, one by one"] for each in rounds)
        print(f"{name:20} {rate:12,.0f} entries per second and core, {ratio:.2f} of puts; median of {len(rounds)}")
    for name, figures in started.items():
        medians = {each: statistics.median(one[each] for one in figures) for each in figures[0]}
        told = ", ".join(f"{each} {value:,.1f}" for each, value in medians.items())
        print(f"local stores {name:8} {told}; median of {len(figures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
