"""A store that cannot be read is no fault of the record: the task stops whatever the policy says."""

from __future__ import annotations

import pytest

from deltaworks import StreamsBuilder
from deltaworks.errors import StateError
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StateReader
from deltaworks.kernel.task import ErrorPolicy, Task
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.memory_tables import TablesInMemory


class BrokenState(MemoryState):
    """One store on a broken disk."""

    def reader(self, store: str) -> StateReader:  # type: ignore[override]
        reader = super().reader(store)
        if store == "rows":
            reader.get = unreadable  # type: ignore[method-assign]
        return reader


def unreadable(key: bytes) -> bytes | None:
    raise StateError("the disk is gone")


def task_of(builder: StreamsBuilder, state: MemoryState) -> Task:
    plan = builder.build()
    return Task(
        plan.stages[0],
        0,
        state=state,
        collector=Capture(Topics(), TablesInMemory(()), None),
        errors=ErrorPolicy.of("continue"),
        exchange_partitions={},
    )


def records(topic: str) -> list[RecordBatch]:
    return [RecordBatch(topic, 0, [0], [0], [b"k"], [b"v"])]


@pytest.mark.parametrize("topic", ["in", "other"])
def test_a_broken_store_stops_joins(topic: str) -> None:
    builder = StreamsBuilder(record_cache=False)
    rows = builder.table("rows", key=str, value=str, store="rows")
    builder.stream("in", key=str, value=str).join(rows, str.__add__, value=str).to("out")
    builder.table("other", key=str, value=str, store="other").join(rows, str.__add__, value=str).to_stream().to("out")

    with pytest.raises(StateError, match="the disk is gone"):
        task_of(builder, BrokenState()).process(records(topic), 0)


def test_a_broken_store_stops_a_table_that_sends_old_values() -> None:
    builder = StreamsBuilder(record_cache=False)
    rows = builder.table("rows", key=str, value=str, store="rows")
    rows.filter(lambda _, value: value != "").to_stream().to("out")

    with pytest.raises(StateError, match="the disk is gone"):
        task_of(builder, BrokenState()).process(records("rows"), 0)


def test_a_task_without_memory_stops_and_makes_no_dead_letter() -> None:
    def greedy(value: str) -> str:
        raise MemoryError

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(greedy, value=str).to("out")

    with pytest.raises(MemoryError):
        task_of(builder, MemoryState()).process(records("in"), 0)
