"""`make bench-recovery`: how long nothing comes out of a stream after something was killed; Kafka Streams beside it.

    python -m tests.benchmarks.recovery                       both systems, 10,000 and 1,000,000 keys of state
    python -m tests.benchmarks.recovery --keys 10000 --repeats 1 --systems deltaworks

The topology keeps the latest bid of each auction and passes it on. Bids come at a steady rate, and a `read_committed`
consumer waits for one that was sent after the kill (for the broker: after it answers again). So the time has everything
in it: noticing, starting, state, reading, the commit interval of both systems (1 s).

deltaworks runs under its supervisor. This program starts Kafka Streams again at once, as a service manager would.
What the figures say: `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import psutil
from confluent_kafka import OFFSET_END

from deltaworks import processes
from deltaworks.control import actions
from deltaworks.control.supervisor import address
from deltaworks.kafka import admin
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.state import read_state
from tests.benchmarks import data
from tests.benchmarks.live import LiveBids, Readings, read_topic
from tests.benchmarks.measure import end_tree
from tests.benchmarks.run import BROKER_OPTIONS, describe_machine, say
from tests.benchmarks.systems import COMMIT_INTERVAL_MS, CORES, HEAP, Job, KafkaStreams, clear
from tests.benchmarks.throughput import RunFailed, tail
from tests.support.live_stack import reachable

INPUT, OUTPUT, NAME = "bench-recovery", "bench-recovered", "recovery"
_RATE = 200
_POLL_S = 0.02
_LIMIT_S = 300.0
_SETTLE_S = 5.0
_TUNED = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "2000"}
"""The shortest that a broker allows by default; Kafka Streams' own default is 45 s."""
JOB = f"""
from datetime import timedelta

import msgspec

from deltaworks import Json, Pipeline, StreamsBuilder, String, Topic


class Bid(msgspec.Struct, frozen=True, rename="camel"):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


def topology(builder: StreamsBuilder) -> None:
    bids = builder.stream("{INPUT}", key=String(), value=Json(Bid))
    bids.group_by_key().reduce(lambda _, new: new, store="latest").to_stream().to("{OUTPUT}")


pipeline = Pipeline(
    name="{NAME}",
    topology=topology,
    topics=(Topic("{INPUT}", partitions={data.PARTITIONS}), Topic("{OUTPUT}", partitions={data.PARTITIONS})),
    trigger_interval=timedelta(milliseconds={COMMIT_INTERVAL_MS}),
)
"""


class Reader(Readings):
    """When the record was sent that a consumer of committed records has seen last."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.latest_ms = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=read_topic, args=(bootstrap, OUTPUT, self, self._stop), kwargs={"begin": OFFSET_END}, daemon=True
        )
        self._thread.start()

    def add(self, sent_ms: int) -> None:
        self.latest_ms = max(self.latest_ms, sent_ms)

    def until_after(self, moment_ms: int, check: Callable[[], None]) -> float:
        """Seconds from a moment until a record that was sent after it is readable."""
        end = time.monotonic() + _LIMIT_S
        while self.latest_ms < moment_ms:
            check()
            if time.monotonic() > end:
                raise RunFailed(f"nothing came out within {_LIMIT_S:.0f} s")
            time.sleep(_POLL_S)
        return time.time() - moment_ms / 1000

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class System(Protocol):
    """Something that runs the topology, and is started again when it dies."""

    name: str
    victims: Sequence[str]

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def check(self) -> None: ...
    def kill(self, victim: str) -> Callable[[], bool]:
        """SIGKILL. Returns what says whether the end was noticed: something new was started."""
        ...


@dataclass
class Deltaworks:
    """The stream under its supervisor."""

    settings: Settings
    name: str = "deltaworks"
    victims: Sequence[str] = ("worker", "jvm", "driver", "supervisor", "supervisor and driver")

    def start(self) -> None:
        actions.deploy(self.settings, NAME, requested_by="bench-recovery", launch_s=_LIMIT_S)

    def stop(self) -> None:
        actions.stop(self.settings, NAME, requested_by="bench-recovery")

    def check(self) -> None:
        pass

    def kill(self, victim: str) -> Callable[[], bool]:
        entry = processes.find(self.settings.run, NAME)
        found = address.read(self.settings.run)
        assert entry is not None and found is not None
        members = processes.family(psutil.Process(entry.pid))
        chosen = {
            "worker": [process.pid for process in members if _is_worker(process)][:1],
            "jvm": [process.pid for process in members if process.name().startswith("java")],
            "driver": [entry.pid],
            "supervisor": [found.process.pid],
            "supervisor and driver": [found.process.pid, entry.pid],
        }[victim]
        assert chosen, f"there is no {victim}"
        for pid in chosen:
            os.kill(pid, signal.SIGKILL)

        def noticed() -> bool:
            if victim == "worker":
                return any(_is_worker(process) for process in members if process.pid not in chosen)
            if victim == "supervisor":
                now = address.read(self.settings.run)
                return now is not None and now.process != found.process
            other = processes.find(self.settings.run, NAME)
            return other is not None and other.pid != entry.pid

        return noticed


def _is_worker(process: psutil.Process) -> bool:
    """Forked by Spark's daemon, which is a Python as well."""
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return "daemon" in " ".join(process.cmdline()) and parent is not None and "daemon" in " ".join(parent.cmdline())
    return False


@dataclass
class Streams:
    """Kafka Streams, started again at once when it ends."""

    peer: KafkaStreams
    folder: Path
    options: dict[str, str]
    name: str
    victims: Sequence[str] = ("process",)
    _process: subprocess.Popen[bytes] | None = None
    _wanted: bool = False
    _thread: threading.Thread | None = None
    _started: int = 0

    def start(self) -> None:
        job = Job(topology="latest", record_cache=True, input=INPUT, output=OUTPUT, folder=self.folder, name=self.name)
        launch = self.peer.launch(job)
        launch.close()
        command = [*launch.command, *(f"{key}={value}" for key, value in self.options.items())]
        self._wanted = True
        self._thread = threading.Thread(target=self._keep, args=(command,), daemon=True)
        self._thread.start()

    def _keep(self, command: list[str]) -> None:
        while self._wanted:
            with (self.folder / "log.txt").open("ab") as output:
                self._process = subprocess.Popen(
                    command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            self._started += 1
            self._process.wait()

    def stop(self) -> None:
        self._wanted = False
        if self._process is not None:
            end_tree(self._process.pid)
        if self._thread is not None:
            self._thread.join(30)

    def check(self) -> None:
        if self._started > 50:
            raise RunFailed(f"{self.name} ends again and again:\n{tail(self.folder / 'log.txt')}")

    def kill(self, victim: str) -> Callable[[], bool]:
        assert self._process is not None
        before = self._started
        self._process.kill()
        return lambda: self._started > before


@dataclass
class Bench:
    """One state size: what was found, by system and victim."""

    settings: Settings
    keys: int
    repeats: int
    found: dict[tuple[str, str], list[dict[str, float]]] = field(default_factory=dict)

    def run(self, system: System) -> None:
        """Everything that can be killed, in turn."""
        bids = LiveBids(self.settings.bootstrap, INPUT)
        reader = Reader(self.settings.bootstrap)
        try:
            with bids.at_rate(_RATE):
                begun_ms = _now_ms()
                system.start()
                self._add(system, "first start", {"back s": reader.until_after(begun_ms, system.check)})
                self._await_state(reader, system)
                for _ in range(self.repeats):
                    system.stop()
                    begun_ms = _now_ms()
                    system.start()
                    self._add(system, "start after a stop", {"back s": reader.until_after(begun_ms, system.check)})
                    self._quiet(reader, system)
                    for victim in system.victims:
                        self._kill(system, victim, reader)
                    self._broker(system, reader)
        finally:
            system.stop()
            reader.close()

    def _kill(self, system: System, victim: str, reader: Reader) -> None:
        begun_ms = _now_ms()
        noticed = system.kill(victim)
        found = {}
        while not noticed():
            system.check()
            if _now_ms() - begun_ms > _LIMIT_S * 1000:
                raise RunFailed(f"nobody noticed the end of the {victim}")
            if victim == "worker" and reader.latest_ms >= begun_ms:
                break
            time.sleep(_POLL_S)
        else:
            found["noticed s"] = (_now_ms() - begun_ms) / 1000
        found["back s"] = reader.until_after(begun_ms, system.check)
        self._add(system, victim, found)
        self._quiet(reader, system)

    def _broker(self, system: System, reader: Reader) -> None:
        state = read_state(self.settings.run)
        broker = state.find("kafka") if state is not None else None
        assert broker is not None
        begun_ms = _now_ms()
        os.kill(broker.pid, signal.SIGKILL)
        while not _answers(self.settings.bootstrap):
            time.sleep(_POLL_S)
        answered_ms = _now_ms()
        back_s = reader.until_after(answered_ms, system.check)
        self._add(system, "broker", {"away s": (answered_ms - begun_ms) / 1000, "back s": back_s})
        self._quiet(reader, system)

    def _await_state(self, reader: Reader, system: System) -> None:
        """Until the backlog that makes the state is done: what comes out is recent."""
        end = time.monotonic() + _LIMIT_S
        while reader.latest_ms < _now_ms() - 3 * COMMIT_INTERVAL_MS:
            system.check()
            assert time.monotonic() < end, "the backlog is not done"
            time.sleep(_POLL_S)
        self._quiet(reader, system)

    def _quiet(self, reader: Reader, system: System) -> None:
        """A stream that is at work, some seconds after its last trouble."""
        time.sleep(_SETTLE_S)
        reader.until_after(_now_ms(), system.check)

    def _add(self, system: System, what: str, figures: dict[str, float]) -> None:
        self.found.setdefault((system.name, what), []).append(figures)
        text = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        say(f"{self.keys:,} keys, {system.name}, {what}: {text}")

    def table(self) -> str:
        """Medians."""
        lines = []
        for (system, what), rounds in self.found.items():
            names = dict.fromkeys(name for each in rounds for name in each)
            figures = (
                f"{name} {statistics.median(each[name] for each in rounds if name in each):.2f}" for name in names
            )
            lines.append(f"{self.keys:>9,} keys  {system:22} {what:22} {', '.join(figures)}  (of {len(rounds)})")
        return "\n".join(lines)


def _answers(bootstrap: str) -> bool:
    try:
        admin.end_offsets(bootstrap, (INPUT,))
    except Exception:
        return False
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def backlog(keys: int) -> Iterator[data.Bid]:
    """One bid for each of the auctions."""
    for index in range(keys):
        key = str(1000 + index).encode()
        value = data.bid_value(1000 + index, 1000, 100, "Google", data.FIRST_TIME_MS, "x" * 128)
        yield data.Bid(partition=data.partition_of(key), timestamp_ms=data.FIRST_TIME_MS, key=key, value=value)


@contextmanager
def stack(folder: Path) -> Iterator[Settings]:
    """A project with the one job, and a broker, registry and supervisor of its own."""
    project = folder / "project"
    (project / "jobs").mkdir(parents=True)
    (project / "jobs" / f"{NAME}.py").write_text(JOB)
    own = own_settings(folder / "home")
    settings = replace(
        own,
        project=project,
        python_path=(own.python_path[0], project),
        broker_options=BROKER_OPTIONS,
        cores=CORES,
        driver_memory=HEAP,
    )
    up(settings, say, only=("supervisor",), tethered=True)
    try:
        yield settings
    finally:
        down(settings, say, delete_data=True)


def systems(settings: Settings, folder: Path, chosen: Sequence[str]) -> list[System]:
    """Each with empty topics yet to come."""
    found: list[System] = []
    if "deltaworks" in chosen:
        found.append(Deltaworks(settings))
    if "kafka-streams" in chosen:
        peer = KafkaStreams(settings, folder / "peer", "-XX:+UseParallelGC")
        for name, options in (("streams, 6 s session", _TUNED), ("streams, 45 s session", {})):
            identifier = name.replace(", ", "-").replace(" ", "-")
            found.append(Streams(peer, clear(folder / identifier), options, identifier))
    return found


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="10000,1000000", help="Keys in the state, several separated by commas.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--systems", default="deltaworks,kafka-streams")
    given = parser.parse_args(arguments)
    tables = []
    for keys in map(int, given.keys.split(",")):
        with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as name:
            folder = reachable(Path(name))
            with stack(folder) as settings:
                bench = Bench(settings, keys, given.repeats)
                for system in systems(settings, folder, given.systems.split(",")):
                    data.recreate(settings.bootstrap, INPUT)
                    data.recreate(settings.bootstrap, OUTPUT)
                    data.load(settings.bootstrap, INPUT, backlog(keys))
                    bench.run(system)
                tables.append(bench.table())
    print(describe_machine())
    print("\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
