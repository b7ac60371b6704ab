"""Records per CPU second of the kernel alone, in one process: JSON or another format in, no Kafka, no Spark, no disk.

Run `python -m tests.benchmarks.kernel_speed` (`--profile` says where the time goes). Every pipeline runs with and
without a record cache: with it a commit forwards the last update per key, without it every update is forwarded.

Where the time goes (290-byte JSON, 10,000 keys, 50,000 records a batch, CPU time on two shared cores, best batch):
a record costs 0.34 us to decode and 0.35 us to walk through the loop, a filter and half a sink. A windowed count adds
0.75 us, most of it waiting for memory (the key's slot in the window's dictionary, its entry, the numbers in it); that
is why records are decoded 256 at a time and not by the thousand. Each changed entry costs 1.1 us at the commit to
encode, 0.4 us more to forward from a record cache. A session costs 2.5 us: every record replaces a row, two updates.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from deltaworks import (
    Avro,
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Json,
    JsonSchema,
    Processor,
    ProcessorContext,
    Protobuf,
    Record,
    Serde,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from deltaworks.kernel.records import DeadLetter, Headers, RecordBatch, Rows
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import GARBAGE_THRESHOLDS, ErrorPolicy, Task
from deltaworks.topology.stages import Stage

_BATCH = 50_000
_WARM_UP = 2
"""Batches that are not measured."""
_KEYS = 10_000


class Bid(msgspec.Struct, frozen=True):
    """A bid of about 290 bytes of JSON."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


class Auction(msgspec.Struct, frozen=True):
    """What a bid is joined with."""

    seller: str
    category: int


class JoinedBid(msgspec.Struct, frozen=True):
    """A bid with its auction."""

    bid: Bid
    seller: str


JSON = Json(Bid)
PROTO = """
syntax = "proto3";
message Bid {
  int64 auction = 1; int64 bidder = 2; int64 price = 3; string channel = 4; string url = 5; int64 date_time = 6;
  string extra = 7;
}
"""
FORMATS: dict[str, Serde[Bid]] = {
    "Avro": Avro(Bid, registry=True),
    "Protobuf": Protobuf(Bid, PROTO, registry=True),
    "JSON Schema": JsonSchema(Bid, registry=True),
}
"""Formats of the bids besides `JSON`, with the header of a registry."""


class Discard:
    """A collector that only counts."""

    def __init__(self) -> None:
        self.records_out = 0
        self.sent: dict[str, RecordBatch] = {}
        """Of each exchange, what others of the cycle have not read."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        self.records_out += 1

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self.records_out += 1
        if (batch := self.sent.get(exchange)) is not None:
            batch.offsets.append(len(batch.offsets))
            batch.timestamps_ms.append(timestamp_ms)
            batch.keys.append(key)
            batch.values.append(value)

    def rows(self, sink: str) -> Rows:
        return self

    def add(self, row: tuple[Any, ...]) -> None:
        self.records_out += 1

    def close_windows(self, before_ms: int) -> None:
        pass

    def dead_letter(self, letter: DeadLetter) -> None:
        raise AssertionError(letter)


def filter_topic(builder: StreamsBuilder, value: Serde[Bid] = JSON) -> None:
    builder.stream("bids", key=str, value=value).filter(lambda _, bid: bid.price % 2 == 0).to("even")


def window_count(builder: StreamsBuilder, value: Serde[Bid] = JSON) -> None:
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=value)
    bids.group_by_key().windowed_by(windows).count(store="counts").to_delta("counts")


def window_count_to_topic(builder: StreamsBuilder) -> None:
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid))
    bids.group_by_key().windowed_by(windows).count(store="counts").to_stream().to("counts")


def hopping_sum(builder: StreamsBuilder) -> None:
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(seconds=5), advance=timedelta(seconds=2))
    bids = builder.stream("bids", key=str, value=Json(Bid))
    (
        bids.map_values(lambda bid: bid.price, value=int)
        .group_by_key()
        .windowed_by(windows)
        .reduce(lambda total, price: total + price, store="sums")
        .to_delta("sums")
    )


def session_count(builder: StreamsBuilder) -> None:
    windows = SessionWindows(gap=timedelta(seconds=2), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid))
    bids.group_by_key().windowed_by(windows).count(store="sessions").to_delta("sessions")


def stream_table_join(builder: StreamsBuilder) -> None:
    auctions = builder.table("auctions", key=str, value=Json(Auction), store="auctions")
    bids = builder.stream("bids", key=str, value=Json(Bid))
    bids.join(auctions, lambda bid, auction: JoinedBid(bid, auction.seller), value=Json(JoinedBid)).to("joined")


def stateless_chain(builder: StreamsBuilder) -> None:
    (
        builder.stream("bids", key=str, value=Json(Bid))
        .filter(lambda _, bid: bid.price % 2 == 0)
        .map_values(lambda bid: bid.price, value=int)
        .peek(lambda _, price: None)
        .map(lambda auction, price: (auction, price + 1), key=str, value=int)
        .flat_map_values(lambda price: (price, -price), value=int)
        .filter_not(lambda _, price: price > 500)
        .to("prices")
    )


def stream_stream_join(builder: StreamsBuilder) -> None:
    """About one partner per record."""
    windows = JoinWindows(difference=timedelta(milliseconds=500), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid))
    clicks = builder.stream("clicks", key=str, value=Json(Auction))
    (
        bids.left_join(
            clicks,
            lambda bid, click: JoinedBid(bid, click.seller if click else ""),
            windows,
            value=Json(JoinedBid),
            store="joined",
        ).to("joined")
    )


def table_table_join(builder: StreamsBuilder) -> None:
    bids = builder.table("bids", key=str, value=Json(Bid), store="bids")
    auctions = builder.table("auctions", key=str, value=Json(Auction), store="auctions")
    joined = bids.join(auctions, lambda bid, auction: JoinedBid(bid, auction.seller), value=Json(JoinedBid))
    joined.to_stream().to("joined")


def suppressed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows(size=timedelta(seconds=2), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid))
    counts = bids.group_by_key().windowed_by(windows).count(store="counts")
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="final")
    final.to_stream().to("final")


def emitted_on_close(builder: StreamsBuilder) -> None:
    """The same results as `suppressed_count`, by `emit_strategy`."""
    windows = TimeWindows(size=timedelta(seconds=2), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid)).group_by_key()
    counts = bids.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
    counts.to_stream().to("final")


def sliding_count(builder: StreamsBuilder) -> None:
    windows = SlidingWindows(difference=timedelta(seconds=2), grace=timedelta(seconds=5))
    bids = builder.stream("bids", key=str, value=Json(Bid)).group_by_key()
    bids.windowed_by(windows).count(store="counts").to_stream().to("counts")


class LastPrice(Processor[str, Bid, str, int]):
    """Forwards by how much the price of an auction has changed."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self._context = context
        self._prices = context.state_store("prices")

    def process(self, record: Record[str, Bid]) -> None:
        price = record.value.price
        before = self._prices.get(record.key)
        self._prices.put(record.key, price)
        self._context.forward(record.with_value(price - (before or 0)))


def processor(builder: StreamsBuilder) -> None:
    builder.add_state_store(Stores.key_value("prices", key=str, value=int))
    builder.stream("bids", key=str, value=Json(Bid)).process(LastPrice, "prices", key=str, value=int).to("changes")


def rekeyed(builder: StreamsBuilder) -> None:
    bids = builder.stream("bids", key=str, value=Json(Bid))
    bids.select_key(lambda _, bid: str(bid.bidder % _KEYS), key=str).repartition(name="by-bidder").to("by-bidder")


def foreign_key_join(builder: StreamsBuilder) -> None:
    """Bids are rows with keys of their own, each joined with its auction; a row sends a subscription and gets an answer
    through exchanges."""
    bids = builder.table("bids", key=str, value=Json(Bid), store="bids")
    auctions = builder.table("auctions", key=str, value=Json(Auction), store="auctions")
    joined = bids.join(
        auctions,
        lambda bid, auction: JoinedBid(bid, auction.seller),
        foreign_key=lambda _, bid: f"auction-{bid.bidder % _KEYS}",
        value=Json(JoinedBid),
        name="of-auction",
    )
    joined.to_stream().to("joined")


TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {
    "stateless filter": filter_topic,
    "stateless chain (6 operators)": stateless_chain,
    "windowed count": window_count,
    "windowed count to a topic": window_count_to_topic,
    "hopping reduce (5 windows)": hopping_sum,
    "session count": session_count,
    "sliding count": sliding_count,
    "stream-table join": stream_table_join,
    "stream-stream left join": stream_stream_join,
    "table-table join": table_table_join,
    "foreign-key join": foreign_key_join,
    "suppress until windows close": suppressed_count,
    "emit on window close": emitted_on_close,
    "processor with a store": processor,
    "select_key and exchange (first stage)": rekeyed,
    **{f"stateless filter, {name}": partial(filter_topic, value=serde) for name, serde in FORMATS.items()},
    **{f"windowed count, {name}": partial(window_count, value=serde) for name, serde in FORMATS.items()},
}


@dataclass(frozen=True)
class Speed:
    """One measurement."""

    records: int
    seconds: float
    best_seconds: float
    """As if every batch had taken as long as the quickest one: leaves out what other processes take away."""
    records_out: int
    changed: int

    def __str__(self) -> str:
        rate, best = self.records / self.seconds / 1e6, self.records / self.best_seconds / 1e6
        return f"{rate:5.2f} M records/CPU-s, best {best:5.2f}   {self.records_out:>9} out {self.changed:>8} committed"


def bids(count: int) -> list[RecordBatch]:
    """Seeded bids: 10 per millisecond, 2 % up to 4 s late."""
    rng = random.Random(7)
    batches: list[RecordBatch] = []
    now_ms = 1_700_000_000_000
    for first in range(0, count, _BATCH):
        batch = RecordBatch("bids", 0, [], [], [], [])
        for offset in range(first, min(first + _BATCH, count)):
            now_ms += rng.random() < 0.1
            timestamp_ms = now_ms - (rng.randrange(4000) if rng.random() < 0.02 else 0)
            bid = Bid(
                offset, offset * 7, offset % 1000, "Google", "https://www.nexmark.com/a/b?x=1", timestamp_ms, "x" * 150
            )
            batch.offsets.append(offset)
            batch.timestamps_ms.append(timestamp_ms)
            batch.keys.append(f"auction-{rng.randrange(_KEYS)}".encode())
            batch.values.append(msgspec.json.encode(bid))
        batches.append(batch)
    return batches


def in_format(name: str, batches: list[RecordBatch]) -> list[RecordBatch]:
    """Bids as the pipeline of that name reads them."""
    if (serde := FORMATS.get(name.rpartition(", ")[2])) is None:
        return batches
    return [
        msgspec.structs.replace(batch, values=[serde.serialize(JSON.deserialize(value)) for value in batch.values])
        for batch in batches
    ]


def auctions() -> RecordBatch:
    keys: list[bytes | None] = [f"auction-{number}".encode() for number in range(_KEYS)]
    values: list[bytes | None] = [msgspec.json.encode(Auction(f"seller-{n % 100}", n % 10)) for n in range(_KEYS)]
    return RecordBatch("auctions", 0, list(range(_KEYS)), [0] * _KEYS, keys, values)


def clicks(bids: RecordBatch) -> RecordBatch:
    """One per bid, at the same times, of other auctions."""
    rng = random.Random(len(bids.offsets))
    keys: list[bytes | None] = [f"auction-{rng.randrange(_KEYS)}".encode() for _ in bids.offsets]
    value = msgspec.json.encode(Auction("seller", 1))
    return RecordBatch("clicks", 0, bids.offsets, bids.timestamps_ms, keys, [value] * len(keys))


class Hosted:
    """One task of a stage; its commits take effect at once."""

    def __init__(self, stage: Stage, collector: Discard) -> None:
        self.stage, self._state = stage, MemoryState()
        self._task = Task(
            stage,
            0,
            state=self._state,
            collector=collector,
            errors=ErrorPolicy(),
            exchange_partitions=dict.fromkeys(stage.exchanges_out, 4),
        )

    def turn(self, given: list[RecordBatch]) -> tuple[float, int]:
        """CPU seconds of `process` and `commit`, without applying the commit, and how many entries that has."""
        start = time.process_time()
        self._task.process(given, 0)
        changes = self._task.commit()
        seconds = time.process_time() - start
        self._state.apply(changes)
        return seconds, sum(len(change.entries) for change in changes.values())


def measure(topology: Callable[[StreamsBuilder], None], batches: list[RecordBatch], *, record_cache: bool) -> Speed:
    """CPU time of the first stage, or of all of a cycle; without the first batches."""
    builder = StreamsBuilder(record_cache=record_cache)
    topology(builder)
    plan, collector = builder.build(), Discard()
    group = plan.groups[0]
    tasks = [Hosted(plan.stages[number], collector) for number in group.stages]
    if group.cyclic:
        collector.sent = {name: _empty(name) for task in tasks for name in task.stage.exchanges_out}
    for task in tasks:
        if "auctions" in task.stage.topics:
            task.turn([auctions()])
    has_clicks = "clicks" in tasks[0].stage.topics
    inputs = [[batch, clicks(batch)] if has_clicks else [batch] for batch in batches]
    turns: list[list[tuple[float, int]]] = []
    for number, given in enumerate(inputs):
        if number == _WARM_UP:
            collector.records_out, turns = 0, []
        taken = [tasks[0].turn(given)]
        while found := [(task, name) for task in tasks for name in task.stage.exchanges_in
                        if collector.sent.get(name, _NOTHING).offsets]:  # fmt: skip
            task, name = found[0]
            sent, collector.sent[name] = collector.sent[name], _empty(name)
            taken.append(task.turn([sent]))
        turns.append(taken)
    measured = sum(len(batch.offsets) for given in inputs[_WARM_UP:] for batch in given)
    seconds = [sum(each for each, _ in taken) for taken in turns]
    changed = sum(each for taken in turns for _, each in taken)
    return Speed(measured, sum(seconds), min(seconds) * len(seconds), collector.records_out, changed)


def _empty(topic: str) -> RecordBatch:
    return RecordBatch(topic, 0, [], [], [], [])


_NOTHING = _empty("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=800_000)
    parser.add_argument("--only", default="", help="part of the name of a pipeline")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    batches = bids(arguments.records)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    for name, topology in TOPOLOGIES.items():
        if arguments.only in name:
            given = in_format(name, batches)
            for record_cache in (True, False):
                profile = cProfile.Profile() if arguments.profile else None
                if profile:
                    profile.enable()
                speed = measure(topology, given, record_cache=record_cache)
                if profile:
                    profile.disable()
                    pstats.Stats(profile).sort_stats("tottime").print_stats(12)
                print(f"{name:34} {'cached  ' if record_cache else 'uncached'} {speed}")


if __name__ == "__main__":
    main()
