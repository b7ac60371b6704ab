"""A task seen from its host: errors, dead letters, metrics, times, final windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import Long, SessionWindows, StreamsBuilder, StreamsError, TimeWindows
from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.records import Coordinates, DeadLetter, Headers, RecordBatch, Rows
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import TASK_STORE, ErrorPolicy, Task

CONTINUE = ErrorPolicy.of("continue")


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


class Collected:
    """Everything a task produced, in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None, int, Headers]] = []
        self.written: list[tuple[Any, ...]] = []
        self.closed: list[int] = []
        self.letters: list[DeadLetter] = []
        self.hopped: list[tuple[int, bytes | None]] = []

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        self.sent.append((topic, key, value, timestamp_ms, headers))

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self.hopped.append((partition, key))

    def rows(self, sink: str) -> Rows:
        return _Rows(self)

    def dead_letter(self, letter: DeadLetter) -> None:
        self.letters.append(letter)


class _Rows:
    """The rows of the only table of a test."""

    def __init__(self, out: Collected) -> None:
        self._out = out

    def add(self, row: tuple[Any, ...]) -> None:
        self._out.written.append(row)

    def close_windows(self, before_ms: int) -> None:
        self._out.closed.append(before_ms)


class Harness:
    """The first stage of a topology as one task on memory."""

    def __init__(
        self,
        build: Callable[[StreamsBuilder], None],
        errors: ErrorPolicy | None = None,
        *,
        record_cache: bool = False,
        state: MemoryState | None = None,
        partition: int = 0,
    ) -> None:
        builder = StreamsBuilder(record_cache=record_cache)
        build(builder)
        self.out = Collected()
        self.state = state or MemoryState()
        stage = builder.build().stages[0]
        self.task = Task(
            stage,
            partition,
            state=self.state,
            collector=self.out,
            errors=errors or ErrorPolicy(),
            exchange_partitions=dict.fromkeys(stage.exchanges_out, 4),
        )
        self.offset = 0

    def run(self, *records: tuple[int, str | None, bytes | None], headers: Headers = ()) -> None:
        count = len(records)
        batch = RecordBatch(
            "in",
            0,
            list(range(self.offset, self.offset + count)),
            [timestamp_ms for timestamp_ms, _, _ in records],
            [None if key is None else key.encode() for _, key, _ in records],
            [value for _, _, value in records],
            [headers] * count if headers else None,
        )
        self.offset += count
        self.task.process([batch], 0)
        self.state.apply(self.task.commit())


def number(value: int) -> bytes:
    return Long().serialize(value)


def fail_on_two(value: int) -> int:
    if value == 2:
        raise ValueError("two is not allowed")
    return value


def checked(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).map_values(fail_on_two).to("out")


def counts(builder: StreamsBuilder) -> None:
    windows = TimeWindows(size=ms(10), grace=ms(5))
    builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows).count(store="counts").to_delta(
        "counts"
    )


def test_failing_function_stops_the_stream_and_names_record_operator_and_line() -> None:
    harness = Harness(checked)

    with pytest.raises(StreamsError) as caught:
        harness.run((7, "a", number(1)), (8, "b", number(2)))

    text = str(caught.value)
    assert "ValueError: two is not allowed" in text
    assert "in-0 offset 1 (timestamp 8), operator KSTREAM-MAPVALUES-0000000001" in text
    assert "test_task.py:" in text
    assert 'on_error="continue"' in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_record_that_fails_is_set_aside_as_it_was_read() -> None:
    harness = Harness(checked, CONTINUE)

    harness.run((7, "a", number(2)), headers=(("h", b"v"),))

    (letter,) = harness.out.letters
    assert (letter.key, letter.value, letter.headers) == (b"a", number(2), (("h", b"v"),))
    assert letter.source == Coordinates("in", 0, 0)
    assert (letter.error_class, letter.message) == ("ValueError", "two is not allowed")
    assert letter.operator == "KSTREAM-MAPVALUES-0000000001"
    assert "fail_on_two" in letter.stacktrace
    assert 'File "tests/unit/kernel/test_task.py"' in letter.stacktrace  # wherever the code lies
    assert 'File "deltaworks/kernel/' in letter.stacktrace
    assert harness.out.sent == []
    assert (harness.task.metrics.dropped, harness.task.metrics.dead_letters) == (1, 1)


def test_dead_letter_record_has_the_headers_of_kafka() -> None:
    harness = Harness(checked, CONTINUE)
    harness.run((7, "a", number(2)), headers=(("h", b"v"),))

    key, value, headers = dead_letter_record(harness.out.letters[0])

    assert (key, value) == (b"a", number(2))
    assert [name for name, _ in headers] == [
        "h",
        "__streams.errors.exception",
        "__streams.errors.message",
        "__streams.errors.stacktrace",
        "__streams.errors.topic",
        "__streams.errors.partition",
        "__streams.errors.offset",
    ]
    assert dict(headers)["__streams.errors.topic"] == b"in"
    assert dict(headers)["__streams.errors.offset"] == b"0"


@pytest.mark.parametrize(
    ("record", "message"),
    [((5, "a", b"xx"), "2 bytes are not a long"), ((-1, "a", number(1)), "the timestamp -1 is negative")],
)
def test_record_that_cannot_be_read_is_set_aside_and_does_not_move_time(
    record: tuple[int, str, bytes], message: str
) -> None:
    harness = Harness(checked, CONTINUE)

    harness.run((3, "a", number(1)), record, (4, "c", number(3)))

    assert [value for _, _, value, *_ in harness.out.sent] == [number(1), number(3)]
    assert message in harness.out.letters[0].message
    assert harness.task.metrics.stream_time_ms == 4
    assert harness.task.metrics.records_in == 3


def test_record_that_cannot_be_read_stops_the_stream_by_default() -> None:
    with pytest.raises(StreamsError, match="cannot be read"):
        Harness(checked).run((5, "a", b"xx"))


def test_dead_letters_come_in_the_order_of_their_records() -> None:
    harness = Harness(checked, CONTINUE)

    harness.run((1, "a", number(2)), (2, "a", b"x"), (3, "a", number(2)), (4, "a", b"y"))

    assert [letter.source.offset for letter in harness.out.letters] == [0, 1, 2, 3]


def test_result_that_cannot_be_written_follows_the_production_policy() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).map_values(lambda value: value << 60, value=int).to("out")

    with pytest.raises(StreamsError, match="has a result that cannot be written"):
        Harness(build).run((1, "a", number(99)))

    harness = Harness(build, ErrorPolicy(production="continue"))
    harness.run((1, "a", number(99)), (2, "a", number(1)))
    assert [value for _, _, value, *_ in harness.out.sent] == [number(1 << 60)]
    assert harness.out.letters[0].operator == "KSTREAM-SINK-0000000002"


def test_what_a_generator_gave_before_it_raised_stays() -> None:
    def words(value: int) -> Iterator[int]:
        yield value
        fail_on_two(value)
        yield -value

    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).flat_map_values(words, value=int).to("out")

    harness = Harness(build, CONTINUE)
    harness.run((1, "a", number(1)), (2, "a", number(2)))

    assert [value for _, _, value, *_ in harness.out.sent] == [number(1), number(-1), number(2)]
    assert len(harness.out.letters) == 1


def test_failure_below_an_operator_does_not_reach_its_siblings() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=int)
        stream.to("before")
        stream.map_values(fail_on_two).to("checked")
        stream.to("after")

    harness = Harness(build, CONTINUE)
    harness.run((1, "a", number(2)))

    assert [topic for topic, *_ in harness.out.sent] == ["before", "after"]


def test_windows_are_final_once_stream_time_has_passed_end_and_grace() -> None:
    harness = Harness(counts)

    harness.run((14, "a", number(1)), (3, "a", number(1)))
    assert harness.out.closed == [10]
    assert harness.task.metrics.late == 0

    harness.run((15, "a", number(1)), (3, "a", number(1)))
    assert harness.out.closed == [10, 11]
    assert harness.task.metrics.late == 1

    harness.run((15, "a", number(1)))
    assert len(harness.out.closed) == 2


def test_windows_closed_before_a_restart_are_not_closed_again() -> None:
    first = Harness(counts)
    first.run((30, "a", number(1)))

    second = Harness(counts, state=first.state)
    second.run((30, "a", number(1)))

    assert first.out.closed == [26]
    assert second.out.closed == []
    assert second.out.written == [("a", 2, 30, 30, 40)]


def test_session_is_final_once_no_record_can_join_it() -> None:
    def build(builder: StreamsBuilder) -> None:
        windows = SessionWindows(gap=ms(10), grace=ms(5))
        builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows).count(store="s").to_delta("s")

    harness = Harness(build)
    harness.run((20, "a", number(1)), (36, "b", number(1)))

    # Ends before 36 - 5 - 10 = 21, so the session of `a` that ended at 20 is final.
    assert harness.out.closed == [21]
    harness.run((20, "a", number(1)))
    assert harness.task.metrics.late == 1


def test_lateness_is_remembered_across_a_restart() -> None:
    first = Harness(counts)
    first.run((100, "a", number(1)))

    second = Harness(counts, state=first.state)
    second.run((89, "a", number(1)), (90, "a", number(1)))

    assert second.task.metrics.late == 1
    assert second.out.written == [("a", 1, 90, 90, 100)]


def test_record_cache_forwards_the_last_update_per_key_at_the_commit() -> None:
    harness = Harness(counts, record_cache=True)

    harness.run((1, "a", number(1)), (2, "b", number(1)), (3, "a", number(1)))

    assert harness.out.written == [("a", 2, 3, 0, 10), ("b", 1, 2, 0, 10)]


def test_row_of_a_record_cache_carries_the_record_that_wrote_it() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=int, store="t").to_delta("t")

    harness = Harness(build, record_cache=True)
    harness.run((1, "a", number(1)), (2, "b", number(2)), (3, "a", number(3)))

    assert harness.out.written == [
        ("a", 3, 3, Coordinates("in", 0, 2)),
        ("b", 2, 2, Coordinates("in", 0, 1)),
    ]


def test_delete_of_a_row_that_never_was_is_not_forwarded_by_a_record_cache() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=int, store="t").to_delta("t")

    harness = Harness(build, record_cache=True)
    harness.run((1, "a", number(1)), (2, "a", None), (3, "b", None))
    assert harness.out.written == []

    harness.run((4, "a", number(1)))
    harness.run((5, "a", None))
    assert [row[:2] for row in harness.out.written] == [("a", 1), ("a", None)]


def test_commit_hands_over_each_key_once_and_only_if_something_changed() -> None:
    harness = Harness(counts)
    harness.task.process([RecordBatch("in", 0, [0, 1], [5, 6], [b"a", b"a"], [number(1)] * 2)], 0)

    changes = harness.task.commit()

    assert {name: len(change.entries) for name, change in changes.items()} == {"counts": 1, TASK_STORE: 5}
    assert harness.task.commit() == {}


def test_metrics_are_those_of_the_batch() -> None:
    harness = Harness(counts)
    harness.run((1, None, number(1)), (2, "a", None))
    assert (harness.task.metrics.records_in, harness.task.metrics.dropped) == (2, 1)

    harness.run((3, "a", number(1)))

    assert (harness.task.metrics.records_in, harness.task.metrics.dropped) == (1, 0)
    assert harness.task.metrics.stream_time_ms == 3


def rekeyed(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=int)
    stream.group_by(lambda _, value: str(value), key=str, name="by-value").count(store="c").to_delta("c")


def test_exchange_sends_equal_keys_to_equal_tasks() -> None:
    harness = Harness(rekeyed)
    harness.run(*((n, "x", number(n % 10)) for n in range(100)))

    tasks: dict[bytes | None, set[int]] = {}
    for task, key in harness.out.hopped:
        tasks.setdefault(key, set()).add(task)
    assert len(tasks) == 10
    assert all(len(each) == 1 for each in tasks.values())
    assert len(set().union(*tasks.values())) > 1


def test_topic_that_no_source_reads_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no source reads topic 'other'; this stage reads \['in'\]"):
        Harness(checked).task.process([RecordBatch("other", 0, [0], [0], [None], [None])], 0)


def test_batches_larger_than_a_chunk_are_processed_in_order() -> None:
    harness = Harness(checked)
    harness.run(*((n, "a", number(n)) for n in range(3, 6000)))

    assert [timestamp_ms for *_, timestamp_ms, _ in harness.out.sent] == list(range(3, 6000))
