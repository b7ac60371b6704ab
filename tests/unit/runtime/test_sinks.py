"""When the writers of a task's own sinks are called, and with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deltaworks import (
    Pipeline,
    RefusedRecord,
    SinkBatch,
    SinkError,
    SinkRecord,
    SinkTask,
    StreamsBuilder,
    TopologyError,
)
from deltaworks.errors import IntentError
from deltaworks.runtime.sinks import AuthorSinks, kept, sinks_of
from deltaworks.testing import TopologyTestDriver

FIRST, SECOND = SinkBatch(0, "a"), SinkBatch(1, "b")


class Recorder:
    """A sink and its writer: what was called, and what is committed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.done: SinkBatch | None = None
        self.fails: str | None = None
        self.values: list[Any] = []
        self._written: tuple[SinkBatch, list[Any]] | None = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails == name:
            self.fails = None
            raise OSError(f"{name} went wrong")

    def open(self, task: SinkTask) -> Recorder:
        self._call(f"open {task.id}")
        return self

    def committed(self) -> SinkBatch | None:
        return self.done

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[Any, Any]]) -> None:
        self._call("write")
        self._written = batch, [record.value for record in records]

    def prepare(self) -> None:
        self._call("prepare")

    def commit(self) -> None:
        self._call("commit")
        assert self._written is not None
        self.done = self._written[0]
        self.values += self._written[1]

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")


def topology(first: Recorder, second: Recorder) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=str)
        stream.sink(first, name="first")
        stream.filter(lambda _, value: value != "only first").sink(second, name="second", in_replay=True)

    return build


def sinks(first: Recorder, second: Recorder, *, replay: bool = False) -> AuthorSinks:
    (stage,) = Pipeline(name="p", topology=topology(first, second)).plan().stages
    return AuthorSinks(
        sinks_of(stage, replay=replay),
        lambda sink: SinkTask(pipeline="p", sink=sink, task=3, checkpoint="c"),
    )


def batch(sinks: AuthorSinks, which: SinkBatch, *values: str) -> None:
    sinks.begin(which, which.batch)
    for value in values:
        sinks.rows("first").add(("k", value, 0, ()))
        if value != "only first":
            sinks.rows("second").add(("k", value, 0, ()))
    sinks.prepare()
    sinks.commit()


def test_all_are_prepared_before_one_commits_and_those_without_records_are_left_alone() -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)

    batch(both, FIRST, "x", "y")
    batch(both, SECOND, "only first")
    both.close()

    assert first.values == ["x", "y", "only first"] and second.values == ["x", "y"]
    assert first.calls == ["open p/first/3/c", *["write", "prepare", "commit"] * 2, "close"]
    assert second.calls == ["open p/second/3/c", "write", "prepare", "commit", "close"]


@pytest.mark.parametrize("call", ["write", "prepare"])
def test_where_one_cannot_be_prepared_none_commits_and_the_batch_runs_again(call: str) -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)
    second.fails = call

    with pytest.raises(SinkError, match=rf"Sink 'second' failed in batch 0: OSError: {call} went wrong"):
        batch(both, FIRST, "x")
    both.abort()

    assert first.values == second.values == [] and first.calls[-1] == second.calls[-1] == "abort"
    batch(both, FIRST, "x")
    assert first.values == second.values == ["x"]


def test_what_is_committed_already_is_recognised_and_let_go_of() -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)
    second.fails = "commit"
    with pytest.raises(SinkError):
        batch(both, FIRST, "x")
    both.abort()

    batch(both, FIRST, "x")

    assert first.values == second.values == ["x"]
    assert first.calls[-1] == "abort", "it may hold a lock"


def test_something_else_under_the_same_batch_is_refused() -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)
    batch(both, FIRST, "x")

    with pytest.raises(IntentError, match="p/first/3/c"):
        batch(both, SinkBatch(0, "another"), "y")


def test_a_writer_that_cannot_abort_is_replaced() -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)
    both.begin(FIRST, 0)
    both.rows("first").add(("k", "x", 0, ()))
    both.prepare()
    first.fails = "abort"

    both.abort()
    batch(both, FIRST, "x")

    assert first.calls.count("open p/first/3/c") == 2 and first.values == ["x"]


def test_whoever_closes_in_the_middle_of_a_batch_drops_it() -> None:
    first, second = Recorder(), Recorder()
    both = sinks(first, second)
    both.begin(FIRST, 0)
    both.rows("first").add(("k", "x", 0, ()))
    both.prepare()

    both.close()

    assert first.calls[-2:] == ["abort", "close"] and first.values == []


def test_a_replay_calls_those_that_allow_it() -> None:
    first, second = Recorder(), Recorder()

    batch(sinks(first, second, replay=True), FIRST, "x")

    assert first.calls == [] and second.values == ["x"]


def test_a_test_sees_what_arrives_and_opens_no_sink() -> None:
    first, second = Recorder(), Recorder()
    driver = TopologyTestDriver(Pipeline(name="p", topology=topology(first, second)))

    driver.create_input_topic("in").pipe_input("k", "only first", timestamp_ms=17)

    assert driver.sink("first") == [SinkRecord("k", "only first", 17, ())] and driver.sink("second") == []
    assert first.calls == second.calls == []
    with pytest.raises(KeyError, match="first"):
        driver.sink("third")


def test_it_is_in_the_description() -> None:
    description = Pipeline(name="p", topology=topology(Recorder(), Recorder())).plan().describe()

    assert "Sink: first (sink class: Recorder)" in description


@pytest.mark.parametrize("given", ["first", Recorder, None])
def test_what_opens_nothing_is_refused_where_it_is_written(given: Any) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).sink(given, name="first")

    with pytest.raises(TopologyError, match=r"sink needs an object with open\(task\)"):
        Pipeline(name="p", topology=build).plan()


def test_a_publication_says_which_of_the_authors_own_sinks_it_leaves_as_they_were() -> None:
    def topology_of(count: int) -> Callable[[StreamsBuilder], None]:
        def build(builder: StreamsBuilder) -> None:
            stream = builder.stream("in", key=str, value=str)
            stream.sink(Recorder(), name="in replays, too", in_replay=True)
            stream.to_search("index", url="http://h:9200")
            for number in range(count):
                stream.sink(Recorder(), name=f"own-{number}")

        return build

    told = [kept(Pipeline(name="p", topology=topology_of(count)).plan()) for count in range(3)]

    assert told == [
        "",
        "; sink 'own-0' keeps what was there before (docs/sinks.md#tests-and-replays)",
        "; sinks 'own-0', 'own-1' keep what was there before (docs/sinks.md#tests-and-replays)",
    ]


class Refusing(Recorder):
    """Refuses what is bad."""

    may_refuse = True

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[Any, Any]]) -> list[RefusedRecord[Any, Any]]:  # type: ignore[override]
        super().write(batch, [record for record in records if record.value != "bad"])
        return [RefusedRecord(record, "it is bad") for record in records if record.value == "bad"]


def refusing(sink: Recorder, *, as_read: object) -> AuthorSinks:
    (stage,) = Pipeline(name="p", topology=topology(sink, Recorder())).plan().stages
    found = AuthorSinks(sinks_of(stage), lambda sink: SinkTask(pipeline="p", sink=sink, task=0, checkpoint="c"))
    found.begin(FIRST, 0)
    for value in ("good", "bad"):
        found.rows("first").add(("k", value, 0, (), as_read))
    return found


def test_what_a_sink_refuses_is_told_and_the_rest_is_written() -> None:
    sink = Refusing()
    found = refusing(sink, as_read=object())

    found.prepare()
    found.commit()

    assert [(each.record.value, each.reason) for each in found.refused] == [("bad", "it is bad")]
    assert sink.values == ["good"]


def test_a_sink_that_is_transactional_or_does_not_say_so_may_refuse_nothing() -> None:
    with pytest.raises(SinkError, match="Sink 'first' refuses records, which it may not"):
        refusing(Refusing(), as_read=None).prepare()
    transactional = Refusing()
    transactional.done = SinkBatch(-1, "")
    with pytest.raises(SinkError, match="Sink 'first' refuses records, which it may not"):
        refusing(transactional, as_read=object()).prepare()
