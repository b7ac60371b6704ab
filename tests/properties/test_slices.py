"""A task that holds few records at a time takes them in the same order, with the same results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from deltaworks import StreamsBuilder
from deltaworks.kernel.records import RecordBatch
from tests.unit.kernel.test_task import CONTINUE, Harness

TIMES = st.lists(st.integers(0, 20), max_size=12)


def build(builder: StreamsBuilder) -> None:
    table = builder.table("users", key=str, value=str, store="users")
    orders = builder.stream("orders", key=str, value=int)
    orders.left_join(table, lambda order, user: f"{order}-{user}", value=str).to("joined")
    orders.group_by_key().count(store="counts").to_stream().to("counted")


def columns(topic: str, partition: int, times: Sequence[int]) -> RecordBatch:
    keys = [f"k{time % 3}".encode() for time in times]
    values = [
        str(time).encode() if topic == "users" else b"bad" if time % 7 == 6 else time.to_bytes(8) for time in times
    ]
    return RecordBatch(topic, partition, list(range(len(times))), list(times), list(keys), list(values), None)


def cut(batch: RecordBatch, size: int, held: list[int]) -> Iterator[RecordBatch]:
    """Slices, and how many of them were asked for."""
    for at in range(0, len(batch.offsets), size):
        held.append(at)
        part = slice(at, at + size)
        yield RecordBatch(
            batch.topic, batch.partition, batch.offsets[part], batch.timestamps_ms[part], batch.keys[part],
            batch.values[part], None,
        )  # fmt: skip


@given(orders=TIMES, users=TIMES, size=st.integers(1, 5), record_cache=st.booleans())
def test_slices_give_the_same_as_everything_at_once(
    orders: list[int], users: list[int], size: int, record_cache: bool
) -> None:
    batches = [columns("orders", 0, orders), columns("users", 0, users)]
    whole, sliced = (Harness(build, CONTINUE, record_cache=record_cache) for _ in range(2))

    whole.task.process(batches, 0)
    sliced.task.process_slices({(b.topic, b.partition): cut(b, size, []) for b in batches}, 0)

    assert sliced.task.commit() == whole.task.commit()
    assert sliced.out.sent == whole.out.sent
    assert [(each.source, each.error_class) for each in sliced.out.letters] == [
        (each.source, each.error_class) for each in whole.out.letters
    ]
    assert sliced.task.metrics == whole.task.metrics


def test_a_slice_is_asked_for_when_the_one_before_was_processed() -> None:
    harness = Harness(build)
    held: list[int] = []
    sent_when_asked: list[int] = []

    def slices() -> Iterator[RecordBatch]:
        for each in cut(columns("orders", 0, [0, 1, 2, 3]), 2, held):
            sent_when_asked.append(len(harness.out.sent))
            yield each

    harness.task.process_slices({("orders", 0): slices()}, 0)

    assert sent_when_asked == [0, 4]
