"""The benchmark's records: auction bids in the form of Nexmark, seeded, and the table of auctions they join with.

Bids advance 0.1 ms of event time per record; 2 % of them are late by up to 8 s, so that some miss the 5 s of grace that
windows have. None misses the 10 s of grace that sessions have: what Kafka Streams makes of such a bid depends on the
moments of its commits (a cached store still finds sessions that the store below, kept for grace and gap, has expired;
the bid may join one of them with a session that is alive).

Nothing here knows which system will read the topics.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deltaworks.kernel.partitioning import partition_of as kafka_partition_of

BIDS = "bench-bids"
BIDS_IN_AVRO = "bench-bids-in-avro"
AUCTIONS = "bench-auctions"
PARTITIONS = 4
KEYS = 10_000
FIRST_TIME_MS = 1_700_000_000_000
"""Event time of the first bid; a multiple of 10 s."""
RECORDS_PER_SECOND = 10_000
"""Of event time: every auction gets one bid per second on average."""
LATE_SHARE = 0.02
LATEST_MS = 8_000
CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-1207", "channel-5591", "channel-8810", "channel-9423")
_CHUNK = 10_000


AVRO = """{"type": "record", "name": "Bid", "fields": [
    {"name": "auction", "type": "long"}, {"name": "bidder", "type": "long"}, {"name": "price", "type": "long"},
    {"name": "channel", "type": "string"}, {"name": "url", "type": "string"}, {"name": "dateTime", "type": "long"},
    {"name": "extra", "type": "string"}]}"""
"""The schema of a bid; its bytes have no header, so that nobody needs a registry."""


@dataclass(frozen=True, kw_only=True)
class Bid:
    """One message for the bids topic."""

    partition: int
    timestamp_ms: int
    key: bytes
    value: bytes


def partition_of(key: bytes) -> int:
    """Where Kafka's default partitioner puts a key."""
    return kafka_partition_of(key, PARTITIONS)


def bid_value(auction: int, bidder: int, price: int, channel: str, date_time_ms: int, extra: str) -> bytes:
    """A bid as compact JSON, about 293 bytes; the order of the fields is that of every system's output."""
    return (
        f'{{"auction":{auction},"bidder":{bidder},"price":{price},"channel":"{channel}",'
        f'"url":"https://www.nexmark.com/{channel.lower()}/item.htm?query={bidder}",'
        f'"dateTime":{date_time_ms},"extra":"{extra}"}}'
    ).encode()


def bids(count: int, seed: int = 7) -> Iterator[Bid]:
    """The first `count` bids of a seed, in the order they are produced."""
    source = random.Random(seed)
    keys = [str(1000 + index).encode() for index in range(KEYS)]
    partitions = [partition_of(key) for key in keys]
    filler = "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=4096))
    for index in range(count):
        auction = int(source.random() * KEYS)
        bidder = 1000 + int(source.random() * 50_000)
        price = 100 + int(10 ** (source.random() * 6))
        timestamp_ms = FIRST_TIME_MS + index * 1000 // RECORDS_PER_SECOND
        if source.random() < LATE_SHARE:
            timestamp_ms = max(FIRST_TIME_MS, timestamp_ms - int(source.random() * LATEST_MS))
        start = bidder % 3900
        value = bid_value(
            1000 + auction, bidder, price, CHANNELS[bidder & 7], timestamp_ms, filler[start : start + 128]
        )
        yield Bid(partition=partitions[auction], timestamp_ms=timestamp_ms, key=keys[auction], value=value)


def bids_in_avro(count: int, seed: int = 7) -> Iterator[Bid]:
    """The same bids in Avro."""
    schema = fastavro.parse_schema(json.loads(AVRO))
    for bid in bids(count, seed):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, json.loads(bid.value))
        yield replace(bid, value=body.getvalue())


def auctions() -> Iterator[Bid]:
    """The table: nine of ten auctions exist, all older than the first bid."""
    for index in range(KEYS):
        if index % 10 == 9:
            continue
        key = str(1000 + index).encode()
        value = (
            f'{{"id":{1000 + index},"itemName":"item-{index}","category":{10 + index % 5},'
            f'"seller":{1000 + index * 7 % 5000},"reserve":{index * 13 % 9000}}}'
        ).encode()
        yield Bid(partition=partition_of(key), timestamp_ms=FIRST_TIME_MS - KEYS + index, key=key, value=value)


def recreate(bootstrap: str, *topics: str, compacted: bool = False) -> None:
    """Empties topics by deleting and creating them; returns when they can be used."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    known = admin.list_topics(timeout=30).topics
    if old := [topic for topic in topics if topic in known]:
        for future in admin.delete_topics(old).values():
            future.result(timeout=60)
    config = {"cleanup.policy": "compact"} if compacted else {}
    for _ in range(60):
        futures = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config) for topic in topics])
        failed = [topic for topic, future in futures.items() if future.exception(timeout=60)]
        if not failed:
            return
        topics = tuple(failed)
    raise RuntimeError(f"the broker at {bootstrap} does not create {', '.join(topics)}: {futures}")


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """The end of every partition of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark-ends", "log_level": 2})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(PARTITIONS)
        ]
    finally:
        consumer.close()


def load(bootstrap: str, topic: str, messages: Iterator[Bid]) -> int:
    """Produces messages as fast as the machine allows; returns how many."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "log_level": 2,
        }
    )
    count = 0
    for message in messages:
        while True:
            try:
                producer.produce(topic, message.value, message.key, message.partition, timestamp=message.timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % _CHUNK == 0:
            producer.poll(0)
    producer.flush()
    return count
