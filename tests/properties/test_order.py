"""The order contract: taking the lowest head again and again, whatever the cut into batches of one call."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import Plan, StreamsBuilder
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import ErrorPolicy, Task
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.memory_tables import TablesInMemory

Name = tuple[str, int]


def plan() -> Plan:
    builder = StreamsBuilder()
    builder.stream("x", "y", key=str, value=str).to("out")
    return builder.build()


def by_heads(partitions: dict[Name, list[int]]) -> list[str]:
    """The contract, word by word."""
    queues = {name: list(enumerate(times)) for name, times in partitions.items()}
    taken: list[str] = []
    while heads := [(queue[0][1], name) for name, queue in queues.items() if queue]:
        _, name = min(heads)
        offset, _ = queues[name].pop(0)
        taken.append(f"{name[0]}-{name[1]}-{offset}")
    return taken


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("xy"), st.integers(0, 3)), st.lists(st.integers(0, 12), max_size=30), max_size=5
    ),
    st.integers(min_value=1, max_value=10),
)
def test_the_lowest_head_goes_first(partitions: dict[Name, list[int]], batch_size: int) -> None:
    topics, the_plan = Topics(), plan()
    task = Task(
        the_plan.stages[0],
        0,
        state=MemoryState(),
        collector=Capture(topics, TablesInMemory(()), None),
        errors=ErrorPolicy(),
        exchange_partitions={},
    )
    batches = [
        RecordBatch(
            name,
            number,
            list(range(start, min(start + batch_size, len(times)))),
            times[start : start + batch_size],
            [b"k"] * len(times[start : start + batch_size]),
            [f"{name}-{number}-{n}".encode() for n in range(start, min(start + batch_size, len(times)))],
        )
        for (name, number), times in partitions.items()
        for start in range(0, len(times), batch_size)
    ]

    task.process(batches, 0)

    assert [(record.value or b"").decode() for record in topics.of("out")] == by_heads(partitions)
