"""Records while something is killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import Producer

from tests.support.repeated import repeated

TOPIC = "asked"
KEYS = tuple(f"word-{number:03}" for number in range(300))
USERS = tuple(f"user-{number:02}" for number in range(50))
SIZE_MS = 60_000
_BEGIN_MS = 1_764_547_200_000


def flowing(bootstrap: str, rng: random.Random, rate: float) -> AbstractContextManager[None]:
    """Writes so many records per second in the background until the end of the block."""
    return repeated(_writing(bootstrap, rng), 1 / rate)


@contextmanager
def _writing(bootstrap: str, rng: random.Random) -> Iterator[Callable[[], object]]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "topic.metadata.refresh.interval.ms": 1_000,  # it sees partitions that a topic gets
        }
    )
    written = 0

    def write() -> None:
        nonlocal written
        written += 1
        if rng.random() < 0.1:
            name = None if rng.random() < 0.2 else f"name {written}"
            producer.produce("asked-users", name, rng.choice(USERS), timestamp=_BEGIN_MS + written * 100)
        else:  # a third of them in disorder
            at_ms = _BEGIN_MS + written * 100 - (rng.randrange(600_000) if rng.random() < 0.3 else 0)
            producer.produce(TOPIC, "x", rng.choice(KEYS), timestamp=at_ms)
        producer.poll(0)

    try:
        yield write
    finally:
        producer.flush()
