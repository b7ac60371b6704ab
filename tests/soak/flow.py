"""Records for the soak's pipelines, in a steady flow that can be paused: late ones, out of order, malformed, deletes.

What is in the topics is what counts (`models.py` reads it from there), so a record that a broker took before it was
killed may be there although nobody said so.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException, Producer

START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
_STEP_MS = 20_000
_ACCOUNTS, _ARTICLES, _PARCELS, _DEPOTS, _RATES = 60, 24, 40, 6, 5
_FLUSH_S = 240.0


class Flow:
    """Writes until it is closed."""

    def __init__(self, bootstrap: str, rate: float, seed: int, report: Callable[[str], None]) -> None:
        """
        Args:
            bootstrap: address of the broker.
            rate: entries per second; others come along.
            seed: of the data.
            report: gets a line for what is wrong.
        """
        self.records = 0
        self._rate, self._rng, self._report = rate, random.Random(seed), report
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "message.timeout.ms": 0,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        self._seqs: Counter[str] = Counter()
        self._number = 0
        self._flowing, self._closed = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._anew = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="flow")
        self._thread.start()

    @property
    def days(self) -> int:
        """Full days of the records' own time that were written so far."""
        return self._number * _STEP_MS // 86_400_000

    def resume(self) -> None:
        self._flowing.set()

    def pause(self) -> None:
        """Returns when everything that was written is in the topics."""
        self._flowing.clear()
        with self._turn:
            if left := self._producer.flush(_FLUSH_S):
                raise AssertionError(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")

    def without_notes(self) -> None:
        """Nothing for the topic that is made anew, until `with_notes`."""
        with self._turn:
            self._anew = False
            self._producer.flush(_FLUSH_S)

    def with_notes(self) -> None:
        self._anew = True

    def close(self) -> None:
        self._flowing.clear()
        self._closed.set()
        self._thread.join(timeout=10)
        with suppress(KafkaException):
            self._producer.purge()

    def _run(self) -> None:
        next_at = time.monotonic()
        while not self._closed.is_set():
            if not self._flowing.wait(0.05):
                next_at = time.monotonic()
                continue
            with self._turn:
                if self._flowing.is_set():
                    self._step()
                    self._producer.poll(0)
            next_at = max(next_at + 1 / self._rate, time.monotonic() - 1.0)
            self._closed.wait(max(0.0, next_at - time.monotonic()))

    def _step(self) -> None:
        """One entry, and now and then something for the other topics."""
        rng, number = self._rng, self._number
        self._number += 1
        at_ms = START_MS + number * _STEP_MS + 7
        if number % 50 == 0:
            self._send("soak-rates", f"rate-{rng.randrange(_RATES)}", at_ms, version=self._next("rates"))
        self._entry(at_ms, rng)
        if number % 3 == 0:
            self._offers(at_ms, rng)
        if number % 4 == 0:
            self._parcels(at_ms, rng)
        if self._anew and number % 10 == 0:
            writer = f"writer-{rng.randrange(4)}"
            self._send("soak-notes", writer, at_ms, seq=self._next(f"note {writer}"))

    def _entry(self, at_ms: int, rng: random.Random) -> None:
        if rng.random() < 0.02:
            self._raw("soak-entries", b"nobody", f"malformed {self._next('malformed')}".encode(), at_ms)
            return
        account = f"account-{rng.randrange(_ACCOUNTS)}"
        late = rng.random() < 0.03
        behind_ms = 3 * 3_600_000 if late else rng.randrange(300_000) if rng.random() < 0.1 else 0
        content = {"amount": rng.randrange(1, 1_000), "group": f"group-{rng.randrange(12)}"}
        for _ in range(2 if rng.random() < 0.02 else 1):  # twice the same, with another number
            self._send(
                "soak-entries", account, max(START_MS, at_ms - behind_ms), late=late, rate=f"rate-{rng.randrange(5)}",
                seq=self._next(account), **content,
            )  # fmt: skip

    def _offers(self, at_ms: int, rng: random.Random) -> None:
        article = f"article-{rng.randrange(_ARTICLES)}"
        self._send("soak-asks", article, at_ms, seq=self._next("asks"))
        if rng.random() < 0.6:
            near_ms = max(START_MS, at_ms + rng.randrange(-240_000, 240_000))
            self._send("soak-bids", article, near_ms, seq=self._next("bids"))

    def _parcels(self, at_ms: int, rng: random.Random) -> None:
        parcel, depot = f"parcel-{rng.randrange(_PARCELS)}", f"depot-{rng.randrange(_DEPOTS)}"
        if rng.random() < 0.05:
            self._raw("soak-parcels", parcel.encode(), None, at_ms)
        else:
            self._send("soak-parcels", parcel, at_ms, seq=self._next("parcels"), depot=depot)
        if rng.random() < 0.1:
            depot = f"depot-{rng.randrange(_DEPOTS)}"
            if rng.random() < 0.1:
                self._raw("soak-depots", depot.encode(), None, at_ms)
            else:
                self._send("soak-depots", depot, at_ms, seq=self._next("depots"))

    def _next(self, counter: str) -> int:
        self._seqs[counter] += 1
        return self._seqs[counter] - 1

    def _send(self, topic: str, key: str, at_ms: int, **content: Any) -> None:
        self._raw(topic, key.encode(), json.dumps(content).encode(), at_ms)

    def _raw(self, topic: str, key: bytes, value: bytes | None, at_ms: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, timestamp=at_ms)
            except BufferError:
                self._producer.poll(0.5)
                continue
            self.records += 1
            return
