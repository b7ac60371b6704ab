"""Recorded micro-batches on several tasks."""

from __future__ import annotations

import pytest

from deltaworks import Long, Plan, StreamsBuilder, String
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.recorded import MicroBatch, cut, part_of, run_recorded
from deltaworks.testing.topics import RawRecord


def totals() -> Plan:
    """Two partitions in, re-keyed by the first letter of the value."""
    builder = StreamsBuilder(record_cache=False)
    stream = builder.stream("in", key=str, value=str)
    counts = stream.group_by(lambda _, value: value[0], key=str, name="by-letter").count(store="counts")
    counts.to_stream().to("counts")
    counts.to_delta("counts")
    return builder.build()


def records(partition: int, *rows: tuple[int, str], first: int = 0) -> RecordBatch:
    count = len(rows)
    return RecordBatch(
        "in",
        partition,
        list(range(first, first + count)),
        [timestamp_ms for timestamp_ms, _ in rows],
        [b"k"] * count,
        [value.encode() for _, value in rows],
    )


BATCHES = [
    MicroBatch(1_000, (records(0, (1, "a"), (5, "b")), records(1, (2, "a"), (3, "c")))),
    MicroBatch(2_000, (records(1, (9, "a"), first=2),)),
    MicroBatch(3_000, ()),
    MicroBatch(4_000, (records(0, (4, "c"), first=2), records(1, (8, "b"), first=3))),
]


def test_exchange_is_one_batch_per_upstream_task_with_offsets_of_the_micro_batch() -> None:
    result = run_recorded(totals(), {"in": 2}, BATCHES, first_batch_id=7)

    arrived = {task: batches for task, batches in result.exchanges[0].items() if task[0] == 1}
    assert {batch.topic for batches in arrived.values() for batch in batches} == {"by-letter-repartition"}
    for batches in arrived.values():
        assert [batch.partition for batch in batches] == sorted(batch.partition for batch in batches)
        for batch in batches:
            assert batch.offsets == list(range(7 << 32, (7 << 32) + len(batch.offsets)))
    assert sum(len(batch.offsets) for batches in arrived.values() for batch in batches) == 4


def test_records_of_all_tasks_are_counted() -> None:
    result = run_recorded(totals(), {"in": 2}, BATCHES)

    assert result.tables.by_name["counts"].rows == {"a": 3, "b": 2, "c": 2}
    last = {record.key: record.value for record in result.topic("counts")}
    assert {String().deserialize(key or b""): Long().deserialize(value or b"") for key, value in last.items()} == {
        "a": 3,
        "b": 2,
        "c": 2,
    }


def test_task_without_input_does_not_run() -> None:
    result = run_recorded(totals(), {"in": 2}, BATCHES)

    assert (0, 0) not in result.metrics[1]
    assert result.metrics[1][0, 1].records_in == 1
    assert result.metrics[2] == {}


def test_restarts_change_nothing() -> None:
    whole = run_recorded(totals(), {"in": 2}, BATCHES)

    restarted = run_recorded(totals(), {"in": 2}, BATCHES, restarts=lambda batch_id, task: True)

    assert restarted.tasks == whole.tasks
    assert restarted.stores == whole.stores


def test_cut_leaves_no_record_out() -> None:
    left, right = records(0, (1, "a"), (2, "b"), (3, "c")), records(1, (4, "d"))

    batches = cut([left, right], [[2, 0], [1, 1]])

    assert batches == [(part_of(left, 0, 2),), (right,), (part_of(left, 2, 3),)]


def test_rows_of_a_task_are_kept_in_order() -> None:
    result = run_recorded(totals(), {"in": 2}, BATCHES)

    rows = [row for output in result.tasks.values() for row in output.rows.get("counts", ()) if row.key == "a"]
    assert [row.value for row in rows] == [1, 2, 3]
    assert all(row.source is not None and row.source.topic == "by-letter-repartition" for row in rows)


@pytest.mark.parametrize("partitions", [1, 3])
def test_record_keeps_its_timestamp_and_headers_across_an_exchange(partitions: int) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).repartition(name="r").to("out")
    batch = RecordBatch("in", 0, [0, 1], [5, 6], [b"a", b"b"], [b"1", b"2"], [(("h", b"x"),), ()])

    result = run_recorded(builder.build(), {"in": partitions}, [MicroBatch(0, (batch,))])

    assert sorted(result.topic("out"), key=lambda record: record.timestamp_ms) == [
        RawRecord(b"a", b"1", 5, (("h", b"x"),)),
        RawRecord(b"b", b"2", 6),
    ]
