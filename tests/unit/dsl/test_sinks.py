"""Sinks whose topic or partition a function decides, and print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltaworks import Long, RecordContext, StreamsBuilder, StreamsError
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import Task
from deltaworks.testing import TestRecord, TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded
from tests.unit.kernel.test_task import Collected


def by_tier(key: str, value: int, context: RecordContext) -> str:
    return f"{context.topic}-{'high' if value > 9 else 'low'}-{context.offset}"


def test_function_names_the_topic_of_each_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to_extracted(by_tier)
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 10)])

    assert [*driver.produced] == ["in-high-1", "in-low-0"]
    assert driver.create_output_topic("in-high-1").read_record() == TestRecord("b", 10, 0)
    assert driver.create_output_topic("never-written").is_empty


def test_function_that_names_no_topic_fails_its_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to_extracted(lambda key, value, context: None)  # type: ignore[arg-type, return-value]

    with pytest.raises(StreamsError, match="returned None, which is not a name"):
        TopologyTestDriver(builder.build()).create_input_topic("in").pipe_input("a", 1)


class Partitioned(Collected):
    """A host whose topics have three partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.placed: list[tuple[str, int, bytes | None]] = []

    def partitions(self, topic: str) -> int:
        return 3

    def send_to(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Any
    ) -> None:
        self.placed.append((topic, partition, key))


def placed(partitioner: Callable[..., Any], errors: ErrorPolicy | None = None) -> Partitioned:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out", partitioner=partitioner)
    out = Partitioned()
    task = Task(
        builder.build().stages[0],
        0,
        state=MemoryState(),
        collector=out,
        errors=errors or ErrorPolicy(),
        exchange_partitions={},
    )
    values: list[bytes | None] = [Long().serialize(value) for value in (0, 1, 2)]
    task.process([RecordBatch("in", 0, [0, 1, 2], [0, 0, 0], [b"a", b"b", b"c"], values)], 0)
    return out


def test_partitioner_places_a_record_or_leaves_it_to_kafka() -> None:
    out = placed(lambda topic, key, value, partitions: None if value == 1 else partitions - 1 - value)

    assert out.placed == [("out", 2, b"a"), ("out", 0, b"c")]
    assert [key for _, key, *_ in out.sent] == [b"b"]


def test_partitioner_may_copy_and_drop() -> None:
    out = placed(lambda topic, key, value, partitions: set(range(value)))

    assert out.placed == [("out", 0, b"b"), ("out", 0, b"c"), ("out", 1, b"c")]


def test_partition_that_does_not_exist_fails_the_record() -> None:
    with pytest.raises(StreamsError, match="topic 'out' has no partition 3; it has 3"):
        placed(lambda topic, key, value, partitions: 3)


@pytest.mark.parametrize("chosen", [1.5, "1", [0, None], iter([0])])
def test_what_is_no_partition_fails_the_record(chosen: object) -> None:
    with pytest.raises(StreamsError, match=r"partitioner of topic 'out' returned .*, neither a partition nor a set"):
        placed(lambda *_: chosen)


def test_a_copy_goes_to_each_partition_once() -> None:
    out = placed(lambda *_: [2, 0, 2])

    assert [partition for _, partition, key in out.placed if key == b"a"] == [0, 2]


def test_record_whose_partitioner_fails_becomes_a_dead_letter() -> None:
    out = placed(lambda topic, key, value, partitions: partitions // value, ErrorPolicy.of("continue"))

    assert [(letter.key, letter.error_class) for letter in out.letters] == [
        (b"a", "ZeroDivisionError"),
        (b"b", "ValueError"),
    ]
    assert out.placed == [("out", 1, b"c")]


def test_partitioner_of_a_repartition_chooses_the_task() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.repartition(partitions=3, partitioner=lambda exchange, key, value, count: value % count, name="by-value").to(
        "out"
    )
    values: list[bytes | None] = [Long().serialize(value) for value in (2, 0, 4)]
    batch = MicroBatch(0, (RecordBatch("in", 0, [0, 1, 2], [0, 0, 0], [b"k"] * 3, values),))

    recording = run_recorded(builder.build(), {"in": 1}, [batch])

    written = {task: [r.value for r in output.topics.get("out", ())] for (_, task), output in recording.tasks.items()}
    assert {task: rows for task, rows in written.items() if rows} == {0: [values[1]], 1: [values[2]], 2: [values[0]]}


def test_host_that_cannot_choose_partitions_says_so() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out", partitioner=lambda *_: 0)

    with pytest.raises(Exception, match="has a partitioner of its own, which this host does not know"):
        Task(
            builder.build().stages[0],
            0,
            state=MemoryState(),
            collector=Collected(),
            errors=ErrorPolicy(),
            exchange_partitions={},
        )


def test_print_shows_the_records_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.print()
    stream.print("orders")
    stream.print("total", mapper=lambda key, value: f"{key} has {value}")

    TopologyTestDriver(builder.build()).create_input_topic("in").pipe_input("a", 1)

    assert capsys.readouterr().out.splitlines() == [
        "[KSTREAM-SOURCE-0000000000]: a, 1",
        "[orders]: a, 1",
        "[total]: a has 1",
    ]
