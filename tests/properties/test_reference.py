"""Partitions, tasks, exchanges, cuts and restarts: the kernel does what the plain words of the semantics say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import JoinWindows, KStream, Plan, StreamsBuilder, TimeWindows
from deltaworks.kernel import order
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from tests.properties import reference
from tests.properties.cases import ms
from tests.properties.reference import LEFT, RIGHT, TASKS, Entry, Row, Shape

PARTITIONS = [(topic, number) for topic in (LEFT, RIGHT) for number in range(TASKS)]


@cache
def plan(shape: Shape) -> Plan:
    builder = StreamsBuilder(record_cache=False)
    stream = entering(shape, builder)
    stream.to("seen")
    if shape.exchange:
        stream = stream.select_key(lambda _, value: reference.new_key(value), key=str)
    windows = TimeWindows(size=ms(shape.size_ms), grace=ms(shape.grace_ms), advance=ms(shape.advance_ms))
    texts = stream.group_by_key(name="exchange").windowed_by(windows)
    table = texts.aggregate(str, lambda _, value, text: reference.added(text, value), value=str, store="texts")
    named = table.to_stream().map(lambda window, text: (f"{window.key}@{window.start_ms}", text), key=str, value=str)
    named.to("windows")
    return builder.build()


def entering(shape: Shape, builder: StreamsBuilder) -> KStream[str, str]:
    match shape.entry:
        case Entry.MERGED:
            return builder.stream(LEFT, RIGHT, key=str, value=str)
        case Entry.TABLE:
            table = builder.table(RIGHT, key=str, value=str, store="rows")
            return builder.stream(LEFT, key=str, value=str).left_join(table, reference.pair, value=str)
        case Entry.STREAMS:
            left, right = builder.stream(LEFT, key=str, value=str), builder.stream(RIGHT, key=str, value=str)
            near = JoinWindows(difference=ms(shape.size_ms), grace=ms(shape.grace_ms))
            return left.join(right, reference.pair, near, value=str, store="pairs")


@dataclass(frozen=True)
class Example:
    """A topology, what is in its topics, and how that is run."""

    shape: Shape
    rows: tuple[list[Row], ...]
    """Per partition, as in `PARTITIONS`."""
    cuts: list[tuple[int, ...]]
    """After each micro-batch, how many records of each partition have been read."""
    restarts: set[int]
    """The micro-batches before which all tasks are built again."""


TIMES = st.integers(0, 9)
SHAPES = st.builds(
    Shape,
    entry=st.sampled_from(Entry),
    exchange=st.booleans(),
    size_ms=st.sampled_from([2, 5]),
    advance_ms=st.sampled_from([2, 1]),
    grace_ms=st.sampled_from([0, 2]),
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Every value says where it comes from, so that no two records are alike."""
    keys = st.sampled_from(["a", "a", "b", None])
    rows = [
        [
            Row(time_ms, key, None if letter is None else f"{letter}:{topic}-{number}-{offset}")
            for offset, (time_ms, key, letter) in enumerate(
                draw(st.lists(st.tuples(TIMES, keys, st.sampled_from(["a", "c", "c", None])), max_size=6))
            )
        ]
        for topic, number in PARTITIONS
    ]
    cuts = draw(st.lists(st.tuples(*[st.integers(0, len(each)) for each in rows]), max_size=3))
    return Example(draw(SHAPES), tuple(rows), sorted(cuts), draw(st.sets(st.integers(1, 3))))


def run(example: Example) -> tuple[dict[tuple[str, int], list[Row]], list[int]]:
    """`(topic, task)` -> records, and how many were late per micro-batch; on the kernel."""
    rows = zip(PARTITIONS, example.rows, strict=True)
    batches = cut([_batch(topic, number, each) for (topic, number), each in rows], example.cuts)
    with mock.patch.object(order, "_CHUNK", 3):
        recording = run_recorded(
            plan(example.shape),
            {LEFT: TASKS, RIGHT: TASKS},
            [MicroBatch(0, batch) for batch in batches],
            restarts=lambda batch_id, task: batch_id in example.restarts,
            max_cached_entries=2,
        )
    return _topics(recording), [sum(task.late for task in tasks.values()) for tasks in recording.metrics]


def _batch(topic: str, number: int, rows: list[Row]) -> RecordBatch:
    return RecordBatch(
        topic,
        number,
        list(range(len(rows))),
        [row.time_ms for row in rows],
        [None if row.key is None else row.key.encode() for row in rows],
        [None if row.value is None else row.value.encode() for row in rows],
    )


def _topics(recording: Recording) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for (_, task), output in recording.tasks.items():
        for topic, records in output.topics.items():
            found[topic, task] = [
                Row(each.timestamp_ms, each.key and each.key.decode(), each.value and each.value.decode())  # type: ignore[arg-type]
                for each in records
            ]
    return found


def expected(example: Example) -> tuple[dict[tuple[str, int], list[Row]], list[int]]:
    """The counterpart of `run`."""
    batches: list[dict[tuple[str, int], list[Row]]] = []
    read = [0] * len(PARTITIONS)
    for upto in [*example.cuts, tuple(len(each) for each in example.rows)]:
        batch: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for position, (name, rows) in enumerate(zip(PARTITIONS, example.rows, strict=True)):
            batch[name] += rows[read[position] : upto[position]]
            read[position] = max(read[position], upto[position])
        batches.append(batch)
    result = reference.results(example.shape, batches)
    return {name: rows for name, rows in result.topics.items() if rows}, result.late


@settings(max_examples=200, deadline=None)
@given(examples())
def test_results_are_those_of_the_reference(example: Example) -> None:
    assert run(example) == expected(example)
