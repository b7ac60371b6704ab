"""The benchmark's topologies in this project's DSL; `java/StreamsPeer.java` says the same to Kafka Streams.

The topics and the trigger come from the harness through the environment, so that each run has topics of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec

from deltaworks import Avro, Json, KStream, Pipeline, Serde, SessionWindows, StreamsBuilder, String, TimeWindows, Topic
from tests.benchmarks.data import AVRO

INPUT = os.environ.get("BENCHMARK_INPUT", "bench-bids")
OUTPUT = os.environ.get("BENCHMARK_OUTPUT", "bench-output")
AUCTIONS = "bench-auctions"
TRIGGER = timedelta(milliseconds=int(os.environ.get("BENCHMARK_TRIGGER_MS", "1000")))


class Bid(msgspec.Struct, frozen=True, rename="camel"):
    """One bid; every field is decoded, as Jackson does on the other side."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


class Auction(msgspec.Struct, frozen=True, rename="camel"):
    """A row of the table."""

    id: int
    item_name: str
    category: int
    seller: int
    reserve: int


class EnrichedBid(msgspec.Struct, frozen=True, rename="camel"):
    """A bid with what is known of its auction."""

    auction: int
    bidder: int
    price: int
    date_time: int
    seller: int
    category: int


JSON = Json(Bid)


def _bids(builder: StreamsBuilder, value: Serde[Bid] = JSON) -> KStream[str, Bid]:
    return builder.stream(INPUT, key=String(), value=value)


def _enrich(bid: Bid, auction: Auction) -> EnrichedBid:
    return EnrichedBid(bid.auction, bid.bidder, bid.price, bid.date_time, auction.seller, auction.category)


def _joined(builder: StreamsBuilder) -> KStream[str, EnrichedBid]:
    auctions = builder.table(AUCTIONS, key=String(), value=Json(Auction), store="auctions")
    return _bids(builder).join(auctions, _enrich)


def filter_topology(builder: StreamsBuilder, value: Serde[Bid] = JSON) -> None:
    """About half of the bids."""
    _bids(builder, value).filter(lambda _, bid: bid.price % 2 == 0).to(OUTPUT)


def count_topology(builder: StreamsBuilder, value: Serde[Bid] = JSON) -> None:
    """Bids per auction in windows of 10 s, with 5 s of grace."""
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(seconds=5))
    _bids(builder, value).group_by_key().windowed_by(windows).count(store="bid-counts").to_stream().to(OUTPUT)


def key_count_topology(builder: StreamsBuilder) -> None:
    """Records per key, for ever."""
    builder.stream(INPUT, key=String(), value=String()).group_by_key().count(store="counts").to_stream().to(OUTPUT)


def session_topology(builder: StreamsBuilder) -> None:
    """Bids per auction in sessions that end after 2 s without a bid, with 10 s of grace."""
    windows = SessionWindows(gap=timedelta(seconds=2), grace=timedelta(seconds=10))
    _bids(builder).group_by_key().windowed_by(windows).count(store="bid-sessions").to_stream().to(OUTPUT)


def join_topology(builder: StreamsBuilder) -> None:
    """Bids with the auction they are for."""
    _joined(builder).to(OUTPUT, value=Json(EnrichedBid))


def join_delta_topology(builder: StreamsBuilder) -> None:
    """The join, into a Delta table instead of a topic."""
    _joined(builder).to_delta("enriched_bids")


def _pipeline(name: str, topology: Callable[[StreamsBuilder], None], *, record_cache: bool = True) -> Pipeline:
    return Pipeline(
        name=name,
        topology=topology,
        topics=(Topic(INPUT, partitions=4), Topic(OUTPUT, partitions=4), Topic(AUCTIONS, partitions=4)),
        record_cache=record_cache,
        trigger_interval=TRIGGER,
    )


filter = _pipeline("filter", filter_topology)
count = _pipeline("count", count_topology)
filter_avro = _pipeline("filter-avro", partial(filter_topology, value=Avro(Bid, AVRO)))
count_avro = _pipeline("count-avro", partial(count_topology, value=Avro(Bid, AVRO)))
count_uncached = _pipeline("count-uncached", count_topology, record_cache=False)
session = _pipeline("session", session_topology)
session_uncached = _pipeline("session-uncached", session_topology, record_cache=False)
key_counts = _pipeline("key-counts", key_count_topology)
join = _pipeline("join", join_topology)
join_delta = _pipeline("join-delta", join_delta_topology)
