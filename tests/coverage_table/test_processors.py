"""Processors, their contexts and punctuators, one claim each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Topology,
    ValueTransformer,
)
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.clocks import EPOCH
from deltaworks.topology.nodes import Source

SECOND = timedelta(seconds=1)
SEEN: list[Any] = []
"""What the processors below were told; emptied by `seen`."""


class Shout(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class ShoutOfAKey(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Opening(Shout):
    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        SEEN.append("open")


class Closing(Shout):
    def close(self) -> None:
        SEEN.append("closed")


class OpeningOfAKey(ShoutOfAKey):
    def init(self, context: Any) -> None:
        super().init(context)
        SEEN.append("open")


class ClosingOfAKey(ShoutOfAKey):
    def close(self) -> None:
        SEEN.append("closed")


class Asking(Processor[str, str, str, str]):
    """Tells what its context answers."""

    member = ""

    def process(self, record: Record[str, str]) -> None:
        SEEN.append(getattr(self.context, self.member))


def counts() -> StoreBuilder[Any]:
    return Stores.key_value("counts", key=str, value=int)


class Counting(Processor[str, str, str, str]):
    """Brings its store along."""

    stores = (counts(),)

    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("counts")
        store.put(record.key, (store.get(record.key) or 0) + 1)


class CountingIn(Processor[str, str, str, str]):
    """Uses a store that is connected to it."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("counts")
        store.put(record.key, (store.get(record.key) or 0) + 1)


class Ticking(Processor[str, str, str, str]):
    """Tells each tick; `stop` as a value ends them."""

    kind = PunctuationType.STREAM_TIME

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self._schedule = context.schedule(SECOND, self.kind, SEEN.append)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "stop":
            self._schedule.cancel()


class TickingByTheClock(Ticking):
    kind = PunctuationType.WALL_CLOCK_TIME


class Committing(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.commit()
        SEEN.append("asked")


def driver_of(supplier: Callable[[], Any], *stores: str, fixed_key: bool = False) -> TopologyTestDriver:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    if fixed_key:
        words.process_values(supplier, value=str).to("out")
    else:
        for _ in stores:
            builder.add_state_store(counts())
        words.process(supplier, *stores, key=str, value=str).to("out")
    return TopologyTestDriver(builder.build(), initial_wall_clock=EPOCH + timedelta(milliseconds=7))


def seen(driver: TopologyTestDriver, *timestamps_ms: int, value: str = "a") -> list[Any]:
    """What its processor was told by records at these times."""
    SEEN.clear()
    for timestamp_ms in timestamps_ms:
        driver.create_input_topic("words").pipe_input("ann", value, timestamp_ms=timestamp_ms)
    return [*SEEN]


def results(supplier: Callable[[], Any], *, fixed_key: bool = False) -> list[Any]:
    driver = driver_of(supplier, fixed_key=fixed_key)
    driver.create_input_topic("words").pipe_input("ann", "a")
    return driver.create_output_topic("out").read_values_to_list()


def test_a_processor_forwards() -> None:
    assert results(Shout) == ["A"]


def test_a_processor_that_keeps_the_key_forwards() -> None:
    assert results(ShoutOfAKey, fixed_key=True) == ["A"]


@pytest.mark.parametrize("kind", ["any key", "fixed key"])
def test_a_processor_is_told_that_it_begins(kind: str) -> None:
    SEEN.clear()
    driver_of(*([Opening] if kind == "any key" else [OpeningOfAKey]), fixed_key=kind == "fixed key")

    assert SEEN == ["open"]


@pytest.mark.parametrize("kind", ["any key", "fixed key"])
def test_a_processor_is_told_that_it_ends(kind: str) -> None:
    driver = driver_of(*([Closing] if kind == "any key" else [ClosingOfAKey]), fixed_key=kind == "fixed key")
    SEEN.clear()
    driver.close()

    assert SEEN == ["closed"]


CONTEXT = {"task_id": "0_0", "current_stream_time_ms": 5, "current_system_time_ms": 7}


@pytest.mark.parametrize("member", CONTEXT)
def test_a_context_knows(member: str) -> None:
    class Asks(Asking):
        pass

    Asks.member = member

    assert seen(driver_of(Asks), 5) == [CONTEXT[member]]


METADATA = {"topic": "words", "partition": 0, "offset": 0}


@pytest.mark.parametrize("member", METADATA)
def test_a_record_in_process_was_read_from(member: str) -> None:
    class Asks(Asking):
        member = "record_metadata"

    (metadata,) = seen(driver_of(Asks), 5)

    assert getattr(metadata, member) == METADATA[member]


def test_a_processor_has_its_stores() -> None:
    driver = driver_of(CountingIn, "counts")
    driver.create_input_topic("words").pipe_input("ann", "a")

    assert driver.store("counts").get("ann") == 1


def test_a_processor_brings_its_stores_along() -> None:
    driver = driver_of(Counting)
    driver.create_input_topic("words").pipe_input("ann", "a")

    assert driver.store("counts").get("ann") == 1


def test_a_punctuator_follows_stream_time() -> None:
    assert seen(driver_of(Ticking), 0, 500, 1_000) == [0, 1_000]


def test_a_punctuator_follows_the_wall_clock() -> None:
    driver = driver_of(TickingByTheClock)
    SEEN.clear()
    driver.advance_wall_clock_time(SECOND)

    assert SEEN == [1_007]


def test_a_punctuator_can_be_cancelled() -> None:
    driver = driver_of(Ticking)
    driver.create_input_topic("words").pipe_input("ann", "stop", timestamp_ms=0)

    assert seen(driver, 5_000) == []


def test_a_commit_can_be_asked_for() -> None:
    assert seen(driver_of(Committing), 5) == ["asked"]


def test_a_processor_wired_by_hand_has_its_stores() -> None:
    topology = Topology().add_source("words", "words", key=str, value=str).add_processor("count", CountingIn, "words")
    topology.add_state_store(counts()).connect_processor_and_state_stores("count", "counts")
    driver = TopologyTestDriver(topology.build())
    driver.create_input_topic("words").pipe_input("ann", "a")

    assert driver.store("counts").get("ann") == 1


class Reading(Processor[str, str, str, str]):
    """Tells what the store has under its key."""

    def process(self, record: Record[str, str]) -> None:
        SEEN.append(self.context.state_store("counts").get(record.key))


def read_by(topology: Topology, *stores: str) -> list[Any]:
    """What a processor reads, after a record has come to the store from the topic `counted`."""
    topology.add_source("words", "words", key=str, value=str).add_processor("read", Reading, "words")
    if stores:
        topology.connect_processor_and_state_stores("read", *stores)
    driver = TopologyTestDriver(topology.build())
    driver.create_input_topic("counted").pipe_input("ann", "a")
    return seen(driver, 5)


def test_a_global_store_is_read_by_every_processor() -> None:
    topology = Topology().add_global_store(counts(), "from", "counted", "fill", CountingIn, key=str, value=str)

    assert read_by(topology) == [1]


def test_a_store_can_be_filled_from_a_topic() -> None:
    topology = Topology()
    topology.add_read_only_state_store(counts(), "from", "counted", "fill", CountingIn, key=str, value=str)

    assert read_by(topology, "counts") == [1]


def test_a_topology_wired_by_hand_is_described() -> None:
    topology = Topology().add_source("words", "words", key=str, value=str).add_processor("shout", Shout, "words")

    assert "Processor: shout (stores: [])" in topology.describe()


def test_a_source_wired_by_hand_knows_where_to_begin() -> None:
    topology = Topology().add_source("words", "words", key=str, value=str, offset_reset="latest")
    topology.add_processor("shout", Shout, "words")

    assert [node.offset_reset for node in topology.build().nodes if isinstance(node, Source)] == ["latest"]


class Length(ValueTransformer[str, str | None, int]):
    def transform(self, key: str, value: str | None) -> int:
        return len(value or "")


class Timed(Length):
    """Tells the stream time."""

    def transform(self, key: str, value: str | None) -> int:
        return self.context.current_stream_time_ms


class OpeningLength(Length):
    def init(self, context: Any) -> None:
        super().init(context)
        SEEN.append("open")


class ClosingLength(Length):
    def close(self) -> None:
        SEEN.append("closed")


def table_of(supplier: Callable[[], ValueTransformer[str, str | None, int]]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.table("words", key=str, value=str, store="words").transform_values(supplier).to_stream().to("out")
    return TopologyTestDriver(builder.build())


def test_a_transformer_of_values_is_told_that_it_begins() -> None:
    SEEN.clear()
    table_of(OpeningLength)

    assert SEEN == ["open"]


def test_a_transformer_of_values_is_told_that_it_ends() -> None:
    driver = table_of(ClosingLength)
    SEEN.clear()
    driver.close()

    assert SEEN == ["closed"]


def test_a_transformer_of_values_has_a_context() -> None:
    driver = table_of(Timed)
    driver.create_input_topic("words").pipe_input("ann", "a", timestamp_ms=5)

    assert driver.create_output_topic("out").read_value() == 5
