"""A custom store that holds writes back until `flush`, on the driver, in recorded batches and on the streaming host."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deltaworks import (
    ErrorPolicy,
    OrderedBytes,
    Pipeline,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsError,
)
from deltaworks.kernel.records import RecordBatch
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka


class Counts:
    """Counts in memory, and writes what has changed once per commit; it numbers its flushes."""

    order: ClassVar[list[str]] = []

    def __init__(self, name: str, entries: OrderedBytes) -> None:
        self._name = name
        self._entries = entries
        self._changed: dict[bytes, int] = {}

    def add(self, key: str) -> int:
        data = key.encode()
        count = self._changed.get(data, int.from_bytes(self._entries.get(data) or b"", "big")) + 1
        self._changed[data] = count
        return count

    def flush(self) -> None:
        self.order.append(self._name)
        for key, count in self._changed.items():
            self._entries.put(key, count.to_bytes(8, "big"))
        self._changed = {}


class Count(Processor[str, str, str, int]):
    stores = (
        Stores.custom("second", lambda entries: Counts("second", entries)),
        Stores.custom("first", lambda entries: Counts("first", entries)),
    )

    def process(self, record: Record[str, str]) -> None:
        counts: Any = self.context.state_store("first")
        self.context.forward(record.with_value(counts.add(record.key)))


def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).process(Count, name="count").to("out")


def test_the_driver_flushes_at_each_commit_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counts, "order", [])
    with TopologyTestDriver(Pipeline(name="p", topology=topology)) as driver:
        driver.create_input_topic("in").pipe_key_value_list([("a", ""), ("a", "")])

        assert driver.create_output_topic("out").read_values_to_list() == [1, 2]
        assert Counts.order == ["first", "second"] * 2


@pytest.mark.parametrize("restarts", [True, False])
def test_a_batch_is_one_flush_and_a_rebuilt_task_goes_on_from_it(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counts, "order", [])
    batches = [
        MicroBatch(0, (RecordBatch("in", 0, [at, at + 1], [0, 0], [b"a", b"a"], [b"", b""]),)) for at in (0, 2, 4)
    ]

    recording = run_recorded(
        Pipeline(name="p", topology=topology).plan(), {"in": 1}, batches, restarts=lambda batch_id, task: restarts
    )

    assert [record.value[-1] for record in recording.topic("out") if record.value] == [1, 2, 3, 4, 5, 6]
    assert Counts.order == ["first", "second"] * 3
    (stores,) = recording.stores.values()
    assert stores["first"] == [(b"a", (6).to_bytes(8, "big"))]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_held_back_survives_failures_on_the_streaming_host(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    settings = replace(Settings.from_environment({}), home=tmp_path)
    kafka = MemoryKafka({"in": 2, "out": 1})
    keys = [rng.choice("abc") for _ in range(40)]
    for key in keys:
        kafka.write("in", RawRecord(key.encode(), b"", 1))
    stream = InProcessStream(Pipeline(name="p", topology=topology), settings, kafka=kafka)
    points = ["task.processed", "store.after_apply", "store.after_append", "driver.after_tables", "task.flushed"]

    stream.run_to_the_end(rng, 8, lambda _: rng.sample(points, 2))

    counted = [(record.key, (record.value or b"")[-1]) for _, _, record in kafka.read("out")]
    assert sorted(counted) == sorted((key.encode(), n + 1) for key in set(keys) for n in range(keys.count(key)))
    stream.close()


class Broken(Counts):
    def flush(self) -> None:
        raise OSError("full")


class CountBroken(Processor[str, str, str, int]):
    stores = (Stores.custom("first", lambda entries: Broken("first", entries)),)

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(1))


def test_a_flush_that_fails_ends_the_stream_whatever_the_policy() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(CountBroken, name="count").to("out")
    driver = TopologyTestDriver(builder.build(), errors=ErrorPolicy("continue", "continue", "continue"))

    with pytest.raises(StreamsError, match=r"flush\(\) of the custom store 'first' failed: OSError: full"):
        driver.create_input_topic("in").pipe_input("a", "")
