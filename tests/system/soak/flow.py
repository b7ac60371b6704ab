"""The records of the soak (`sample.py`), in a steady flow that can be paused.

What is in the topics is what counts (`models.py` reads it from there), so a record that a broker took before it was
killed may be there although nobody said so.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from confluent_kafka import KafkaException, Producer

from tests.system.soak.sample import Sample, Written

_FLUSH_S = 240.0


class Flow:
    """Writes until it is closed."""

    def __init__(self, bootstrap: str, rate: float, seed: int) -> None:
        """
        Args:
            bootstrap: address of the broker.
            rate: entries per second; others come along.
            seed: of the data.
        """
        self.records = 0
        self.sample = Sample(seed)
        self._rate = rate
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
        self._flowing, self._closed = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="flow")
        self._thread.start()

    def resume(self) -> None:
        self._flowing.set()

    def pause(self) -> None:
        """Returns when everything that was written is in the topics."""
        self._flowing.clear()
        with self._turn:
            if left := self._producer.flush(_FLUSH_S):
                raise AssertionError(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")

    def without_notes(self) -> None:
        """Nothing for the topic that is recreated, until `with_notes`."""
        with self._turn:
            self.sample.with_notes = False
            self._producer.flush(_FLUSH_S)

    def with_notes(self) -> None:
        self.sample.with_notes = True

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
                    for written in self.sample.step():
                        self._write(written)
                    self._producer.poll(0)
            next_at = max(next_at + 1 / self._rate, time.monotonic() - 1.0)
            self._closed.wait(max(0.0, next_at - time.monotonic()))

    def _write(self, record: Written) -> None:
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, timestamp=record.timestamp_ms)
            except BufferError:
                self._producer.poll(0.5)
                continue
            self.records += 1
            return
