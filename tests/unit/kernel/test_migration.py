"""State whose values have another type now: read, converted, or refused; never misread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks import (
    IncompatibleCheckpointError,
    Json,
    Long,
    Materialized,
    Serde,
    SessionWindows,
    StreamsBuilder,
    String,
    TimeWindows,
)
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import TASK_STORE, Task
from tests.unit.kernel.test_task import Collected

Migrate = tuple[Serde[Any], Callable[[Any], Any]]


class Total(msgspec.Struct):
    amount: int


class TotalAndTier(msgspec.Struct):
    amount: float
    tier: str = "STANDARD"


class Text(msgspec.Struct):
    amount: str


class Pipelines:
    """Tasks one after the other over the same state; each is thrown away after its batch."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.offset = 0
        self.task: Any = None

    def run(
        self, build: Callable[[StreamsBuilder], None], *records: tuple[int, str, bytes], commit: bool = True
    ) -> None:
        builder = StreamsBuilder(record_cache=False)
        build(builder)
        self.task = Task(
            builder.build().stages[0],
            0,
            state=self.state,
            collector=Collected(),
            errors=ErrorPolicy(),
            exchange_partitions={},
        )
        offsets = [self.offset + position for position in range(len(records))]
        self.offset += len(records)
        batch = RecordBatch(
            "in",
            0,
            offsets,
            [time for time, *_ in records],
            [k.encode() for _, k, _ in records],
            [v for *_, v in records],
        )
        self.task.process([batch], 0)
        if commit:
            self.state.apply(self.task.commit())

    def rows(self, store: str = "t") -> list[tuple[Any, ...]]:
        return list(self.task.stores[store].all())


def table(value: Any, migrate: Migrate | None = None, **options: Any) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=value, store=Materialized("t", migrate=migrate, **options)).to_stream().to(
            "out"
        )

    return build


ONE, TWO = b'{"amount":1}', b'{"amount":2}'


def test_field_with_a_default_and_a_float_need_no_word() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))

    pipelines.run(table(TotalAndTier), (2, "b", b'{"amount":2.5,"tier":"GOLD"}'))

    assert pipelines.rows() == [("a", TotalAndTier(1.0), 1), ("b", TotalAndTier(2.5, "GOLD"), 2)]


def test_type_that_cannot_read_old_values_is_refused_with_the_reason_and_what_to_do() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))

    with pytest.raises(IncompatibleCheckpointError) as caught:
        pipelines.run(table(Text))

    assert "store 't' holds values that cannot be read any more: field 'amount' was integer, is string." in str(
        caught.value
    )
    assert "Materialized('t', migrate=(old_serde, old_to_new))" in str(caught.value)


def test_another_serde_is_refused_though_its_bytes_would_pass() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Long()), (1, "a", Long().serialize(1)))

    with pytest.raises(IncompatibleCheckpointError, match="it was long, is string"):
        pipelines.run(table(String()))


def test_values_that_an_older_version_wrote_count_as_well() -> None:
    """The first version's entry still holds a number where the third one expects a text."""

    class First(msgspec.Struct):
        amount: int
        note: int = 0

    class Third(msgspec.Struct):
        amount: int
        note: str = ""

    pipelines = Pipelines()
    pipelines.run(table(First), (1, "a", b'{"amount":1,"note":7}'))
    pipelines.run(table(Total), (2, "b", TWO))

    with pytest.raises(IncompatibleCheckpointError, match="field 'note' was integer, is string"):
        pipelines.run(table(Third))
    pipelines.run(table(First))
    assert pipelines.rows() == [("a", First(1, 7), 1), ("b", First(2), 2)]


def to_text(total: Total) -> Text | None:
    return None if total.amount == 2 else Text(str(total.amount))


def test_function_converts_every_value_once_with_the_next_commit() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE), (2, "b", TWO), (3, "c", b'{"amount":3}'))
    before = pipelines.state.contents()

    pipelines.run(table(Text, (Json(Total), to_text)), (9, "c", b'{"amount":"c"}'), commit=False)
    assert pipelines.rows() == [("a", Text("1"), 1), ("c", Text("c"), 9)]
    assert pipelines.state.contents() == before

    pipelines.state.apply(pipelines.task.commit())
    assert pipelines.rows() == [("a", Text("1"), 1), ("c", Text("c"), 9)]
    pipelines.run(table(Text), (10, "d", b'{"amount":"d"}'))
    assert pipelines.rows() == [("a", Text("1"), 1), ("c", Text("c"), 9), ("d", Text("d"), 10)]


def test_task_that_lives_on_after_a_migration_reads_what_it_has_committed() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))
    pipelines.run(table(Text, (Json(Total), to_text)), (2, "b", b'{"amount":"b"}'))

    pipelines.task.process([RecordBatch("in", 0, [7], [3], [b"a"], [b'{"amount":"new"}'])], 0)
    pipelines.state.apply(pipelines.task.commit())
    pipelines.task.process([], 0)

    assert pipelines.rows() == [("a", Text("new"), 3), ("b", Text("b"), 2)]


def test_migration_is_over_when_it_is_committed() -> None:
    def never(total: Total) -> Text:
        raise AssertionError("converted again")

    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))
    pipelines.run(table(Text, (Json(Total), to_text)))

    pipelines.run(table(Text, (Json(Total), never)), (2, "b", b'{"amount":"b"}'))

    assert pipelines.rows() == [("a", Text("1"), 1), ("b", Text("b"), 2)]


def test_migration_from_another_type_than_the_store_has_is_refused() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Long()), (1, "a", Long().serialize(1)))

    with pytest.raises(IncompatibleCheckpointError, match=r"reads json\(Total\), which is not what the store holds"):
        pipelines.run(table(Text, (Json(Total), to_text)))


def test_migration_that_fails_changes_nothing() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))

    with pytest.raises(IncompatibleCheckpointError, match="migrate= failed for an entry: ZeroDivisionError"):
        pipelines.run(table(Text, (Json(Total), lambda total: 1 // 0)))

    pipelines.run(table(Total))
    assert pipelines.rows() == [("a", Total(1), 1)]


def test_keys_of_another_type_are_refused() -> None:
    def build(key: Any) -> Callable[[StreamsBuilder], None]:
        return lambda builder: builder.table("in", key=key, value=str, store="t").to_stream().to("out")

    pipelines = Pipelines()
    pipelines.run(build(str), (1, "a", b"x"))

    with pytest.raises(IncompatibleCheckpointError, match="has keys of string; now they are bytes"):
        pipelines.run(build(bytes))


def windowed(value: Any, migrate: Migrate | None = None) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        group = builder.stream("in", key=str, value=str).group_by_key()
        group.windowed_by(TimeWindows(size=timedelta(milliseconds=10), grace=timedelta(0))).aggregate(
            lambda: None,
            lambda _, new, old: new if migrate else Total(len(new)),
            value=value,
            store=Materialized("t", migrate=migrate),
        )

    return build


def sessions(value: Any, migrate: Migrate | None = None) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        group = builder.stream("in", key=str, value=str).group_by_key()
        group.windowed_by(SessionWindows(gap=timedelta(milliseconds=10), grace=timedelta(0))).aggregate(
            lambda: None,
            lambda _, new, old: Total(len(new)),
            lambda _, one, other: other,
            value=value,
            store=Materialized("t", migrate=migrate),
        )

    return build


@pytest.mark.parametrize(
    ("build", "rows"),
    [
        (windowed, [("a", 0, "3", 5)]),
        (sessions, [("a", 5, 5, "3")]),
        (lambda value, migrate=None: table(value, migrate, history=timedelta(hours=1)), [("a", "3", 5)]),
    ],
    ids=["windows", "sessions", "versions"],
)
def test_values_of_every_kind_of_store_are_converted(build: Callable[..., Any], rows: list[tuple[Any, ...]]) -> None:
    pipelines = Pipelines()
    value = b'{"amount":3}' if rows[0] == ("a", "3", 5) else b"abc"
    pipelines.run(build(Json(Total)), (5, "a", value))

    pipelines.run(build(String(), (Json(Total), lambda total: str(total.amount))))

    assert pipelines.rows() == rows


def test_schema_is_written_once() -> None:
    pipelines = Pipelines()
    pipelines.run(table(Total), (1, "a", ONE))

    pipelines.run(table(Total), (2, "a", TWO), commit=False)

    entries = pipelines.task.commit()[TASK_STORE].entries
    assert [name for name, _ in entries if name.startswith(b"schema/")] == []
