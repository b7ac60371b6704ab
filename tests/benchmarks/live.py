"""Runs on live input: latency from produce to a reader, and what an idle stream and a tiny batch cost.

A bid carries the moment it was handed to the producer (`dateTime`, milliseconds), the join passes it through, and a
reader compares it with its own clock: a consumer with `read_committed`, or a poller of a Delta table.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.benchmarks import data
from tests.benchmarks.measure import CpuClock, end_tree
from tests.benchmarks.systems import Job, Launch, System
from tests.benchmarks.throughput import RunFailed, tail

_TICK_S = 0.01
_COMMIT_S = 0.1
"""How often bids are committed that are sent in transactions."""
_LOOK_S = 0.25
"""How often ended processes are looked for."""
_START_TIMEOUT_S = 240.0
_FILLER = "x" * 128


class _Sent(msgspec.Struct, rename="camel"):
    date_time: int


_decode_sent = msgspec.json.Decoder(_Sent).decode


@dataclass
class Readings:
    """What a reader saw: when a record was sent and how long it took, in milliseconds."""

    records: list[tuple[int, float]] = field(default_factory=list)

    def add(self, sent_ms: int) -> None:
        """A record is readable now."""
        self.records.append((sent_ms, time.time() * 1000 - sent_ms))


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Distribution over the records sent in the measured time."""

    rate: int
    records: int
    missing: int
    """Sent but not seen by the reader: not 0 means that the system does not keep up."""
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    cpu_s_per_s: float
    """Of the system, while the rate was held."""
    load_average: float
    """One minute, at the end: other work on the machine."""


@dataclass(frozen=True, kw_only=True)
class IdleCost:
    """What a stream costs that has little or nothing to do."""

    idle_cpu_s_per_minute: float
    tiny_batch_records: int
    tiny_batch_cpu_s: float
    """CPU time per burst, beyond what idling costs."""
    load_average: float


class LiveBids:
    """Sends bids at a rate from a thread of its own, each for itself or in transactions, as another pipeline does."""

    def __init__(self, bootstrap: str, topic: str, *, transactions: bool = False) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
            | {"reconnect.backoff.max.ms": 100, "log_level": 0}
            | ({"transactional.id": topic} if transactions else {})
        )
        self._transactions = transactions
        if transactions:
            self._producer.init_transactions(30)
            self._producer.begin_transaction()
        self._committed = time.monotonic()
        self._topic = topic
        self._index = 0
        self._stop = threading.Event()
        self.sent_ms: list[int] = []

    def send(self, count: int) -> None:
        """Sends `count` bids for auctions that exist, stamped with the present."""
        now_ms = time.time_ns() // 1_000_000
        for _ in range(count):
            self._index += 1
            auction = self._index * 7919 % data.KEYS
            auction -= auction % 10 == 9
            key = str(1000 + auction).encode()
            value = data.bid_value(1000 + auction, 1000, 100 + self._index % 1000, "Google", now_ms, _FILLER)
            self._producer.produce(self._topic, value, key, data.partition_of(key), timestamp=now_ms)
            self.sent_ms.append(now_ms)
        self._producer.poll(0)
        if self._transactions and time.monotonic() - self._committed >= _COMMIT_S:
            self.flush()

    def flush(self) -> None:
        """Waits until all are acknowledged, and committed."""
        if self._transactions:
            self._producer.commit_transaction(30)
            self._producer.begin_transaction()
            self._committed = time.monotonic()
        else:
            self._producer.flush()

    @contextmanager
    def at_rate(self, rate: int) -> Iterator[None]:
        """Sends all the time, in ticks of 10 ms."""
        thread = threading.Thread(target=self._run, args=(rate,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            self.flush()

    def _run(self, rate: int) -> None:
        begin, sent = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            due = int((time.monotonic() - begin) * rate) - sent
            self.send(due)
            sent += due


def read_topic(
    bootstrap: str, topic: str, readings: Readings, stop: threading.Event, *, begin: int = OFFSET_BEGINNING
) -> None:
    """Consumes committed records as they come, from the beginning or from `OFFSET_END`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark-latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, begin) for partition in range(data.PARTITIONS)])
    while not stop.is_set():
        for message in consumer.consume(1_000, timeout=0.02):
            if message.error() is None and (value := message.value()) is not None:
                readings.add(_decode_sent(value).date_time)
    consumer.close()


def read_table(path: Path, readings: Readings, stop: threading.Event) -> None:
    """Polls the version of an append-only Delta table and reads the files that are new."""
    table: DeltaTable | None = None
    known: set[str] = set()
    while not stop.wait(0.02):
        try:
            if table is None:
                table = DeltaTable(str(path))
            else:
                before = table.version()
                table.update_incremental()
                if table.version() == before:
                    continue
        except TableNotFoundError:
            continue
        files = set(table.file_uris())
        for file in files - known:
            if Path(file).name.startswith("merged"):
                continue  # rows that were there before, in fewer files
            columns = pq.read_table(file)
            name = "dateTime" if "dateTime" in columns.column_names else "date_time"
            for sent_ms in columns.column(name).to_pylist():
                readings.add(sent_ms)
        known = files


def measure_latency(
    system: System,
    job: Job,
    bootstrap: str,
    *,
    rate: int,
    warm_up_s: float,
    measured_s: float,
    transactions: bool = False,
    table: str | None = None,
) -> Latency:
    """Holds a rate and measures how old records are when a reader gets them.

    Args:
        transactions: the records come in transactions of 0.1 s.
        table: read this Delta table of a deltaworks job instead of the output topic.
    """
    readings, stop = Readings(), threading.Event()
    target = (
        (read_topic, (bootstrap, job.output, readings, stop))
        if table is None
        else (read_table, (job.folder / "home" / "tables" / table, readings, stop))
    )
    data.recreate(bootstrap, job.input)
    data.recreate(bootstrap, job.output)
    bids = LiveBids(bootstrap, job.input, transactions=transactions)
    with _running(system.launch(job), job) as (_, cpu_s, check):
        reader = threading.Thread(target=target[0], args=target[1], daemon=True)
        reader.start()
        try:
            with bids.at_rate(rate):
                _wait(lambda: bool(readings.records), check, "its first result")
                time.sleep(warm_up_s)
                begin_ms, begin_cpu_s, begin_s = int(time.time() * 1000), cpu_s(), time.monotonic()
                time.sleep(measured_s)
                end_ms, used_s = int(time.time() * 1000), cpu_s() - begin_cpu_s
                elapsed_s = time.monotonic() - begin_s
                time.sleep(2.0)
            expected = sum(begin_ms <= sent < end_ms for sent in bids.sent_ms)
            deadline = time.monotonic() + 15
            while len(_ages(readings, begin_ms, end_ms)) < expected and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            stop.set()
            reader.join()
    ages = _ages(readings, begin_ms, end_ms)
    if not ages:
        log = tail(job.folder / "log.txt")
        raise RunFailed(f"{job.name}: no record of the measured time was seen within 15 s:\n{log}")
    return Latency(
        rate=rate,
        records=len(ages),
        missing=expected - len(ages),
        p50_ms=round(ages[len(ages) // 2], 1),
        p90_ms=round(ages[len(ages) * 90 // 100], 1),
        p99_ms=round(ages[len(ages) * 99 // 100], 1),
        max_ms=round(ages[-1], 1),
        cpu_s_per_s=round(used_s / elapsed_s, 3),
        load_average=round(os.getloadavg()[0], 2),
    )


def measure_idle(
    system: System, job: Job, bootstrap: str, *, settle_s: float, idle_s: float, bursts: int, burst_records: int = 1_000
) -> IdleCost:
    """CPU time of a started stream without input, then with one burst every two seconds."""
    data.recreate(bootstrap, job.input)
    data.recreate(bootstrap, job.output)
    bids = LiveBids(bootstrap, job.input)
    launch = system.launch(job)
    with _running(launch, job) as (_, cpu_s, check):
        for total in range(1, 6):
            bids.send(burst_records)
            bids.flush()
            wanted = total * burst_records
            _wait(lambda wanted=wanted: launch.progress() >= wanted, check, "its first records")  # type: ignore[misc]
        time.sleep(settle_s)
        begin_cpu_s, begin_s = cpu_s(), time.monotonic()
        while time.monotonic() - begin_s < idle_s:
            time.sleep(_LOOK_S)
            cpu_s()
        idle_rate = (cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s)
        begin_cpu_s, begin_s = cpu_s(), time.monotonic()
        for _ in range(bursts):
            bids.send(burst_records)
            bids.flush()
            next_s = time.monotonic() + 2.0
            while time.monotonic() < next_s:
                time.sleep(_LOOK_S)
                cpu_s()
        burst_cpu_s = cpu_s() - begin_cpu_s - idle_rate * (time.monotonic() - begin_s)
    return IdleCost(
        idle_cpu_s_per_minute=round(idle_rate * 60, 2),
        tiny_batch_records=burst_records,
        tiny_batch_cpu_s=round(burst_cpu_s / bursts, 4),
        load_average=round(os.getloadavg()[0], 2),
    )


@contextmanager
def _running(launch: Launch, job: Job) -> Iterator[tuple[Launch, Callable[[], float], Callable[[], None]]]:
    """The system as a process tree: its CPU time so far, and a check that it has not ended."""
    log = job.folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            launch.command,
            env=dict(launch.environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def check() -> None:
        if process.poll() is not None:
            raise RunFailed(f"{job.name} ended with {process.returncode}:\n{tail(log)}")

    try:
        yield launch, CpuClock(process.pid).seconds, check
    finally:
        launch.close()
        end_tree(process.pid)
        process.wait(timeout=30)


def _wait(condition: Callable[[], bool], check: Callable[[], None], what: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise RunFailed(f"{what} did not come within {_START_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def _ages(readings: Readings, begin_ms: int, end_ms: int) -> list[float]:
    return sorted(age for sent, age in list(readings.records) if begin_ms <= sent < end_ms)
