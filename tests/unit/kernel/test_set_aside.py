"""Records that somebody has set aside: dead letters whatever the policy says, on every host the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deltaworks import DeadLetters, ErrorPolicy, Pipeline, StreamsBuilder, StreamsError
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded
from deltaworks.topology.records import Coordinates
from deltaworks.topology.timestamps import ConsumedRecord


def fail_on_bad(value: str) -> str:
    if value == "bad":
        raise ValueError("it is bad")
    return value


def lines(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).map_values(fail_on_bad, value=str).to("out")


def counts(builder: StreamsBuilder) -> None:
    """The second stage fails."""
    words = builder.stream("in", key=str, value=str)
    by_word = words.select_key(lambda _, word: word, key=str).repartition(name="by-word")
    by_word.map_values(fail_on_bad, value=str).to("out")


def pipe(driver: TopologyTestDriver, *values: str) -> list[Any]:
    topic = driver.create_input_topic("in")
    for value in values:
        topic.pipe_input("k", value)
    return driver.create_output_topic("out").read_values_to_list()


@pytest.mark.parametrize("on_error", ["fail", "continue"])
def test_a_record_that_is_set_aside_is_a_dead_letter_whatever_the_policy_says(on_error: Any) -> None:
    pipeline = Pipeline(name="p", topology=lines, on_error=on_error, dead_letters=DeadLetters(topic="letters"))
    driver = TopologyTestDriver(pipeline, set_aside=["in-0@1"])

    assert pipe(driver, "one", "bad", "three") == ["one", "three"]
    (letter,) = driver.dead_letters
    assert (letter.key, letter.value, letter.source) == (b"k", b"bad", Coordinates("in", 0, 1))
    assert letter.error_class == "deltaworks.errors.SetAsideError"
    assert "deltaworks set-aside" in letter.message


def test_no_error_handler_is_asked() -> None:
    def never(*_: object) -> Any:
        raise AssertionError("nobody has a choice")

    pipeline = Pipeline(name="p", topology=lines, deserialization_handler=never)

    assert pipe(TopologyTestDriver(pipeline, set_aside=["in-0@0", "in-0@2"]), "bad", "two", "bad") == ["two"]


def test_other_records_fail_as_before() -> None:
    driver = TopologyTestDriver(Pipeline(name="p", topology=lines), set_aside=["in-0@1", "other-0@0"])

    with pytest.raises(StreamsError):
        pipe(driver, "bad")


def test_a_record_that_is_set_aside_never_reaches_a_timestamp_extractor() -> None:
    seen = []

    def extractor(record: ConsumedRecord, newest_ms: int) -> int:
        seen.append(record.value)
        return record.timestamp_ms

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str, timestamp_extractor=extractor).to("out")

    plan = Pipeline(name="p", topology=topology).plan()
    policy = ErrorPolicy(set_aside=frozenset({Coordinates("in", 0, 1)}))
    found = run_recorded(plan, {"in": 1}, [MicroBatch(0, (batch("a", "b", "c"),))], errors=policy)

    assert [record.value for record in found.topic("out")] == [b"a", b"c"]
    assert seen == ["a", "c"]


def batch(*values: str, first: int = 0, partition: int = 0) -> RecordBatch:
    offsets = list(range(first, first + len(values)))
    keys: list[bytes | None] = [b"k"] * len(values)
    return RecordBatch("in", partition, offsets, [o * 10 for o in offsets], keys, [v.encode() for v in values])


def test_any_cut_into_batches_sets_the_same_records_aside() -> None:
    plan = Pipeline(name="p", topology=lines).plan()
    policy = ErrorPolicy(set_aside=frozenset({Coordinates("in", 0, 1), Coordinates("in", 1, 300)}))
    left, right = ["one", "bad", "three"], [*(str(n) for n in range(300)), "bad", "last"]

    def outputs(*cuts: tuple[RecordBatch, ...]) -> tuple[list[bytes | None], int]:
        found = run_recorded(plan, {"in": 2}, [MicroBatch(0, cut) for cut in cuts], errors=policy)
        letters = sum(len(task.dead_letters) for task in found.tasks.values())
        return [record.value for record in found.topic("out")], letters

    whole = outputs((batch(*left), batch(*right, partition=1)))
    cut = outputs(
        (batch(*left[:1]), batch(*right[:300], partition=1)),
        (batch(*left[1:], first=1), batch(*right[300:], first=300, partition=1)),
    )
    assert whole == cut == ([b"one", b"three", *(str(n).encode() for n in range(300)), b"last"], 2)


def test_a_record_after_an_exchange_is_named_by_the_error_and_is_the_only_one_of_that_name() -> None:
    plan = Pipeline(name="p", topology=counts).plan()
    words = ["bad", *(f"word {number}" for number in range(20))]
    run = MicroBatch(0, (batch(*words),))

    with pytest.raises(StreamsError) as failed:
        run_recorded(plan, {"in": 2}, [run])
    position = failed.value.position
    assert position is not None and "/" in position.topic
    record = Coordinates(position.topic, position.partition, position.offset)

    found = run_recorded(plan, {"in": 2}, [run], errors=ErrorPolicy(set_aside=frozenset({record})))
    (letter,) = (letter for task in found.tasks.values() for letter in task.dead_letters)
    assert letter.value == b"bad"
    assert sorted(each.value or b"" for each in found.topic("out")) == sorted(word.encode() for word in words[1:])
    other_task = [exchanges[1, 1 - int(position.topic[-1])] for exchanges in found.exchanges]
    assert position.offset in other_task[0][0].offsets, "the other task has a record at that offset too"


def test_a_name_says_what_it_names() -> None:
    assert Coordinates.of("a-b-3@17") == Coordinates("a-b", 3, 17)
    assert Coordinates("a-b", 3, 17).name == "a-b-3@17"
    for wrong in ("a-b", "a@1", "a-1", "a-x@1", "-1@1"):
        with pytest.raises(ValueError, match="expected TOPIC-PARTITION@OFFSET"):
            Coordinates.of(wrong)


def test_a_pipeline_has_them_for_every_host() -> None:
    pipeline, record = Pipeline(name="p", topology=lines), Coordinates("in", 0, 1)

    assert pipeline.errors.set_aside == frozenset()
    assert replace(pipeline, set_aside=frozenset({record})).errors.set_aside == {record}
