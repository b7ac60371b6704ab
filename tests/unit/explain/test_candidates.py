"""The sets of records that may make a row: the first ones are small and have what is needed, without any search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from deltaworks import BufferConfig, Pipeline, StreamsBuilder, Suppressed
from deltaworks.explain.candidates import Candidates, Level, holds_back
from deltaworks.explain.tracing import Trace, TracedBatch, trace
from deltaworks.kernel.records import RecordBatch

Sent = tuple[str, str, str | None, int]
"""Topic, key, value, timestamp in milliseconds."""
KEYS = [f"k{number}" for number in range(9)]


def traced(topology: Callable[[StreamsBuilder], None], batches: Sequence[Sequence[Sent]], key: str) -> Trace:
    """What is noted for the rows of a key of the only table; every topic has one partition."""
    pipeline = Pipeline(name="traced", topology=topology)
    plan, ends = pipeline.plan(), dict[str, int]()

    def part(topic: str, records: Sequence[Sent]) -> RecordBatch:
        start = ends.get(topic, 0)
        ends[topic] = start + len(records)
        values = [None if value is None else value.encode() for _, _, value, _ in records]
        offsets, times_ms = list(range(start, ends[topic])), [time_ms for *_, time_ms in records]
        keys: list[bytes | None] = [key.encode() for _, key, _, _ in records]
        return RecordBatch(topic, 0, offsets, times_ms, keys, values)

    parts = [
        [part(topic, [each for each in batch if each[0] == topic]) for topic in sorted({each[0] for each in batch})]
        for batch in batches
    ]
    topics = {topic: 1 for batch in batches for topic, *_ in batch}
    recorded = [TracedBatch(number, number, False, each) for number, each in enumerate(parts)]
    return trace(pipeline, topics, recorded, plan.tables[0].name, lambda row: row[0] == key, sink_partitions={})


def levels(found: Trace, write: int = -1) -> list[Level]:
    """The sets for one write."""
    return list(Candidates(found, (found.writes[write].step,), None).levels())


def sent(found: Trace, level: Level) -> set[tuple[str, int]]:
    """Topic and offset of the records of a set."""
    return {(found.records[number].topic, found.records[number].offset) for number in level.records}


def test_a_record_that_was_looked_up_is_in_the_second_set_and_nothing_else() -> None:
    def topology(builder: StreamsBuilder) -> None:
        names = builder.table("names", key=str, value=str, store="names")
        words = builder.stream("words", key=str, value=str)
        words.join(names, lambda word, name: word + name, value=str).to_delta("joined")

    names = [("names", key, "n", number) for number, key in enumerate(KEYS)]
    words = [("words", key, "w", 10 + number) for number, key in enumerate(KEYS)]
    found = traced(topology, [names, words], "k3")
    first, second, *_ = levels(found)

    assert sent(found, first) == {("words", 3)}
    assert sent(found, second) == {("words", 3), ("names", 3)}


def test_the_other_side_of_a_join_is_in_the_second_set_as_it_was_then() -> None:
    def topology(builder: StreamsBuilder) -> None:
        one, other = (builder.table(name, key=str, value=str, store=name) for name in ("one", "other"))
        one.outer_join(other, lambda left, right: f"{left}{right}", value=str, store="both").to_delta("both")

    before = [(topic, key, "v", number) for number, key in enumerate(KEYS) for topic in ("one", "other")]
    found = traced(topology, [before, [("one", key, "w", 50) for key in KEYS]], "k3")
    first, second, *_ = levels(found)

    assert sent(found, first) == {("one", 9 + 3)}
    assert sent(found, second) == {("one", 9 + 3), ("one", 3), ("other", 3)}


def test_later_updates_of_the_batch_are_found_by_what_they_touch_and_through_those_between() -> None:
    def topology(builder: StreamsBuilder) -> None:
        one, other = (builder.table(name, key=str, value=str, store=name) for name in ("one", "other"))
        both = one.outer_join(other, lambda left, right: f"{left}{right}", value=str, store="both")
        both.group_by(lambda key, value: (value[:1], value), key=str, value=str, name="by").count(
            store="counts"
        ).to_delta("counts")

    before = [(topic, key, "v", number) for number, key in enumerate(KEYS) for topic in ("one", "other")]
    thrice = [("one", "k3", value, time_ms) for value, time_ms in (("w", 60), ("x", 70), ("y", 75))]
    found = traced(topology, [before, [*thrice, ("other", "k4", "v", 80)], [("one", "k3", "z", 90)]], "v")
    last = next(
        number for number, write in reversed(list(enumerate(found.writes))) if found.steps[write.step].batch == 1
    )
    sets = {level.what: sent(found, level) for level in levels(found, last)}
    touching = sets["later updates of the same batch"]

    assert {("one", 9), ("one", 10), ("one", 11)} <= touching
    assert ("one", 12) not in touching, "another batch"


def test_only_what_waits_for_stream_time_is_written_after_the_batch_of_its_source() -> None:
    def held(builder: StreamsBuilder) -> None:
        limit = Suppressed.until_time_limit(timedelta(seconds=1), BufferConfig.unbounded())
        builder.table("names", key=str, value=str, store="names").suppress(limit, store="held").to_stream().to_delta(
            "t"
        )

    def passed(builder: StreamsBuilder) -> None:
        builder.table("names", key=str, value=str, store="names").to_stream().to_delta("t")

    plans = [Pipeline(name="traced", topology=each).plan() for each in (held, passed)]

    assert [holds_back(plan, plan.tables[0]) for plan in plans] == [True, False]
