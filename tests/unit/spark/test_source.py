"""Which rows the source plans for a micro-batch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import OffsetSpec
from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadMaxRows

from deltaworks import clock
from deltaworks.control.accepted import Accepted
from deltaworks.control.intents import Intent
from deltaworks.errors import IntentError, KafkaTopicError
from deltaworks.kafka.admin import TopicState
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.lakehouse import page_index
from deltaworks.lakehouse.page_index import PageList, PageListWriter
from deltaworks.runtime import messages
from deltaworks.runtime.messages import BatchHeader, BatchPlan, Row
from deltaworks.spark import source
from deltaworks.spark.source import (
    BATCH,
    CLOCK,
    TICK,
    KafkaRangesReader,
    SourceConfig,
    StageInput,
    plan_rows,
    ranges_of,
)


def planned(
    config: SourceConfig, start: Offsets, end: Offsets
) -> tuple[BatchPlan, dict[tuple[int, int, int], Any], Any]:
    """For the driver; `(route, stage, task)` -> ranges; the position of global tables."""
    intent = Intent(
        batch=3, lineage="line", query="run", generation=1, code="", clock_ms=5_000, tick=TICK in end,
        ranges=ranges_of(start, end), end=end, previous="",
    )  # fmt: skip
    first, *others = plan_rows(config, intent, known=7)
    assert first[3] == messages.BATCH and all(row[3] == messages.INPUT for row in others)
    inputs = {row[:3]: msgspec.msgpack.decode(row[4], type=list[Range]) for row in others}
    header = msgspec.msgpack.decode(first[5], type=BatchHeader)
    assert all(row[5] == first[5] for row in others)
    assert (header.id, header.clock_ms, header.intent, header.known) == (3, 5_000, intent.digest, 7)
    position = None if header.position is None else msgspec.msgpack.decode(header.position)
    return msgspec.msgpack.decode(first[4], type=BatchPlan), inputs, position


def config(intents: str = "intents", **options: Any) -> SourceConfig:
    stages = (
        StageInput(stage=0, topics=("a", "b"), routes=(7, 9)),
        StageInput(stage=1, topics=(), routes=(4,), ticks=True),
    )
    return SourceConfig(
        bootstrap="", partitions={"a": 2, "b": 2}, stages=stages, intents=pickle.dumps(Path(intents)),
        lineage="line", query_id="run", generation=1, code="", **options,
    )  # fmt: skip


def test_ranges_go_to_the_task_that_owns_the_partition() -> None:
    start, end = {"a": {"0": 0, "1": 5}, "b": {"0": 1, "1": 1}}, {"a": {"0": 3, "1": 5}, "b": {"0": 2, "1": 4}}
    batch, inputs, position = planned(config(), start, end)
    assert inputs == {(7, 0, 0): [Range("a", 0, 0, 3), Range("b", 0, 1, 2)], (9, 0, 1): [Range("b", 1, 1, 4)]}
    assert batch == BatchPlan([Range("a", 0, 0, 3), Range("b", 0, 1, 2), Range("b", 1, 1, 4)], tick=False)
    assert position is None


def test_in_a_tick_the_tasks_that_depend_on_the_clock_run_without_records() -> None:
    start = {"a": {"0": 3}, "b": {"0": 2}, TICK: {"0": 0}}
    batch, inputs, _ = planned(config(tick_file="due"), start, start | {TICK: {"0": 5_000}})
    assert batch == BatchPlan([], tick=True)
    assert inputs == {(4, 1, 0): []}


def test_topics_of_global_tables_are_read_by_no_task_but_their_position_is_told() -> None:
    start, end = {"g": {"0": 2}, "a": {"0": 0}}, {"g": {"0": 5}, "a": {"0": 1}}
    batch, inputs, position = planned(config(global_topics=("g",)), start, end)
    assert batch.ranges == [Range("a", 0, 0, 1), Range("g", 0, 2, 5)]
    assert inputs == {(7, 0, 0): [Range("a", 0, 0, 1)]}
    assert position == {"g": {"0": 5}}


@pytest.mark.parametrize("tick", [{}, {TICK: {"0": 5_000}}])
def test_a_line_begins_where_the_one_before_has_ended(monkeypatch: pytest.MonkeyPatch, tick: Offsets) -> None:
    begin = {"a": {"0": 1, "1": 2}, "b": {"0": 3, "1": 4}}
    monkeypatch.setattr(KafkaRangesReader, "_offsets", lambda reader, spec: begin)
    goes_on: Offsets = {"a": {"0": 11, "1": 12}, "b": {"1": 14}, "gone": {"0": 9}}

    planner = KafkaRangesReader(config(goes_on_at=goes_on | tick, tick_file="due", first_batch=7, first_clock_ms=9))
    started = planner.initialOffset()

    time = {CLOCK: {"0": 9}, BATCH: {"0": 6}}
    assert started == {"a": {"0": 11, "1": 12}, "b": {"0": 3, "1": 14}, TICK: {"0": 0}} | tick | time
    assert TICK not in KafkaRangesReader(config(goes_on_at=goes_on | tick)).initialOffset()


def test_a_line_goes_on_in_the_topics_that_the_batches_before_it_have_read(tmp_path: Path, broker: Broker) -> None:
    goes_on: Offsets = {"a": {"0": 3, "1": 0}, "b": {"0": 0, "1": 2}}
    broker.ids = {"a": "another", "b": "id"}
    known = {"goes_on_at": goes_on, "goes_on_in": {"a": "id", "b": "id"}}

    planner = KafkaRangesReader(config(str(tmp_path), **known))
    with pytest.raises(KafkaTopicError, match="'a' was deleted and recreated"):
        planner.latestOffset(planner.initialOffset(), ReadMaxRows(9))

    planner = KafkaRangesReader(config(str(tmp_path), accepted=Accepted(topics={"a": "another"}), **known))
    end = planner.latestOffset(planner.initialOffset(), ReadMaxRows(9))
    assert planner._intents.require(0).ranges == [Range("a", 0, 0, 4)] and end["a"] == {"0": 4, "1": 0}


class Broker:
    """Where topics begin and end; what the planner asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begins: Offsets = {"a": {"0": 0, "1": 0}, "b": {"0": 0, "1": 0}}
        self.ends: Offsets = {"a": {"0": 4, "1": 0}, "b": {"0": 0, "1": 2}}
        self.now_ms = 1_000
        self.ids: dict[str, str] = {}
        monkeypatch.setattr(KafkaRangesReader, "_offsets", lambda reader, spec, *_: self.answer(spec, reader))
        monkeypatch.setattr(KafkaRangesReader, "_client", lambda reader: None)
        monkeypatch.setattr(source, "topic_states", lambda client, topics: self.states())
        monkeypatch.setattr(clock, "wall_ms", lambda: self.now_ms)

    def states(self) -> dict[str, TopicState]:
        return {topic: TopicState(self.ids.get(topic, "id"), len(parts)) for topic, parts in self.ends.items()}

    def answer(self, spec: OffsetSpec, reader: KafkaRangesReader) -> Offsets:
        """It is asked for the partitions that are known."""
        found, known = self.begins if spec._value == OffsetSpec.earliest()._value else self.ends, reader._partitions
        parts = {topic: known.get(topic, len(found[topic])) for topic in found}
        return {topic: {p: at for p, at in found[topic].items() if int(p) < parts[topic]} for topic in found}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker(monkeypatch)


def batches_of(planner: KafkaRangesReader, start: Offsets, most: int = 100) -> Iterator[tuple[Offsets, list[Any]]]:
    """The end of each batch and its rows, until there is nothing to do."""
    while (end := planner.latestOffset(start, ReadMaxRows(most))) != start:
        yield end, [row for partition in planner.partitions(start, end) for row in planner.read(partition)]
        start = end


def test_a_batch_that_has_an_intent_is_never_planned_otherwise(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))
    start = planner.initialOffset()
    first = list(batches_of(planner, start))
    broker.ends["a"]["0"] = 9
    second = list(batches_of(planner, first[-1][0]))

    broker.ends["b"]["1"], broker.now_ms = 50, 77_000  # more records, and later
    again = list(batches_of(KafkaRangesReader(config(str(tmp_path))), start))

    assert [end for end, _ in again[:2]] == [end for end, _ in first + second]
    assert [rows[0][4] for _, rows in again[:2]] == [rows[0][4] for _, rows in first + second]
    headers = [msgspec.msgpack.decode(rows[0][5], type=BatchHeader) for _, rows in again]
    found = [(header.id, header.clock_ms, header.known) for header in headers]
    assert found == [(0, 1_000, 1), (1, 1_000, 1), (2, 77_000, 2)]


def test_the_first_batch_has_an_intent_though_there_is_nothing_to_read(tmp_path: Path, broker: Broker) -> None:
    broker.ends = broker.begins
    planner = KafkaRangesReader(config(str(tmp_path)))

    (batch,) = batches_of(planner, planner.initialOffset())

    assert batch[0][BATCH] == {"0": 0}
    assert [row[3] for row in batch[1] if row[3] != messages.SHOW] == [messages.BATCH]


def test_the_first_batch_of_a_driver_asks_each_shard_to_show_its_stores(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))
    (first,) = batches_of(planner, planner.initialOffset())
    broker.ends["a"]["0"] += 5
    (second,) = batches_of(planner, first[0])

    shown = [sorted(row[0] for row in rows if row[3] == messages.SHOW) for _, rows in (first, second)]
    assert shown == [sorted({route for stage in planner._config.stages for route in stage.routes}), []]


def test_the_clock_of_batches_does_not_go_back(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))
    (first,) = batches_of(planner, planner.initialOffset())
    broker.ends["a"]["0"], broker.now_ms = 5, 10

    (second,) = batches_of(KafkaRangesReader(config(str(tmp_path))), first[0])

    assert second[0][CLOCK]["0"] >= first[0][CLOCK]["0"] == 1_000


def test_offsets_that_are_not_those_of_the_intent_are_refused(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadMaxRows(100))

    with pytest.raises(IntentError, match="Spark's offset log ends batch 0 elsewhere than its intent does"):
        planner.partitions(start, end | {"a": {"0": 3, "1": 0}})
    with pytest.raises(IntentError, match="there is none"):
        planner.partitions(start, end | {BATCH: {"0": 1}})


def test_a_topic_that_appears_later_is_read_from_where_it_begins(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))
    (first,) = batches_of(planner, planner.initialOffset())
    broker.begins["new"], broker.ends["new"] = {"0": 5_000}, {"0": 5_003}

    (second,) = batches_of(planner, first[0])

    plan = msgspec.msgpack.decode(second[1][0][4], type=BatchPlan)
    assert plan.ranges == [Range("new", 0, 5_000, 5_003)]


def test_catching_up_ends_with_one_tick(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path), tick_file="due"))
    planner.prepareForTriggerAvailableNow()
    broker.now_ms = 3_000

    found = list(batches_of(planner, planner.initialOffset()))

    assert len(found) == 1
    assert msgspec.msgpack.decode(found[0][1][0][4], type=BatchPlan).tick


@pytest.mark.parametrize("step_s", [-3_600, 3_600])
def test_a_step_of_the_wall_clock_makes_no_task_wait_longer_or_shorter(
    monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    reader = KafkaRangesReader(config())
    start: Offsets = {"a": {"0": 0}, "b": {"0": 0}}
    end: Offsets = {"a": {"0": 7}, "b": {"0": 0}}
    ticks_s = [100.0]
    monkeypatch.setattr(clock, "ticks_s", lambda: ticks_s[0])

    def waits() -> bool:
        return reader._wait_for_others(start, end, 10_000) == start

    assert waits()
    try:
        clock.arm(lambda: step_s * 1_000_000_000)
        assert waits()
        ticks_s[0] += 10.0
        assert not waits()
    finally:
        clock.arm(None)


def test_on_a_busy_machine_batches_come_less_often_but_a_backlog_does_not_wait(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = KafkaRangesReader(config(str(tmp_path), trigger_interval_s=1.0, max_trigger_interval_s=60.0))
    monkeypatch.setattr(type(planner._pace), "due", False)
    start = planner.initialOffset()

    found = [rows for _, rows in batches_of(planner, start, most=2)]

    plans = [msgspec.msgpack.decode(rows[0][4], type=BatchPlan) for rows in found]
    read = sum(each.stop - each.start for plan in plans for each in plan.ranges)
    assert 0 < read < 6  # what no longer fills a batch waits until one is due
    monkeypatch.setattr(type(planner._pace), "due", True)
    *_, (end, _) = batches_of(planner, planner._intents.require(len(found) - 1).end, most=2)
    assert (end["a"], end["b"]) == (broker.ends["a"], broker.ends["b"])


def begun(folder: Path, broker: Broker) -> Offsets:
    """A stream that has read everything."""
    planner = KafkaRangesReader(config(str(folder)))
    (first,) = batches_of(planner, planner.initialOffset())
    return first[0]


def test_a_recreated_topic_is_refused_though_it_holds_more(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ids["a"], broker.ends["a"] = "another", {"0": 5_000, "1": 0}

    with pytest.raises(KafkaTopicError, match="'a' was deleted and recreated: its id was id and is another"):
        list(batches_of(KafkaRangesReader(config(str(tmp_path))), end))


def test_a_batch_that_is_open_does_not_read_the_recreated_topic(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path), pipeline="words"))
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadMaxRows(100))
    planner.partitions(start, end)
    broker.ids["b"] = "another"
    planner.partitions(start, end)  # asked a moment ago

    with pytest.raises(KafkaTopicError, match=r"'b' was deleted and recreated(.|\n)*accept words --new-topic b"):
        KafkaRangesReader(config(str(tmp_path), pipeline="words")).partitions(start, end)
    del broker.ends["b"]
    with pytest.raises(KafkaTopicError, match=r"'b', which the stream reads, does not exist(.|\n)*accept words"):
        KafkaRangesReader(config(str(tmp_path), pipeline="words")).partitions(start, end)


def test_a_recreated_topic_that_was_accepted_is_read_from_its_beginning(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ids["a"], broker.begins["a"], broker.ends["a"] = "another", {"0": 1, "1": 0}, {"0": 3, "1": 0}
    accepted = Accepted(topics={"a": "another"})

    (after,) = batches_of(KafkaRangesReader(config(str(tmp_path), accepted=accepted)), end)
    assert msgspec.msgpack.decode(after[1][0][4], type=BatchPlan).ranges == [Range("a", 0, 1, 3)]

    broker.ends["a"] = {"0": 4, "1": 0}
    (next_one,) = batches_of(KafkaRangesReader(config(str(tmp_path), accepted=accepted)), after[0])
    assert msgspec.msgpack.decode(next_one[1][0][4], type=BatchPlan).ranges == [Range("a", 0, 3, 4)]


def test_a_topic_that_got_partitions_is_refused_at_once(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ends["a"]["2"] = 7

    with pytest.raises(KafkaTopicError, match="'a' has 3 partitions now; the stream began with 2"):
        list(batches_of(KafkaRangesReader(config(str(tmp_path))), end))


def test_a_topic_that_may_grow_is_read_on_in_the_partitions_that_are_known(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ends["a"] = {"0": 9, "1": broker.ends["a"]["1"], "2": 7, "3": 7}

    (after,) = batches_of(KafkaRangesReader(config(str(tmp_path), may_grow=("a",))), end)

    read = msgspec.msgpack.decode(after[1][0][4], type=BatchPlan).ranges
    assert [(part.topic, part.partition, part.stop) for part in read] == [("a", 0, 9)]
    broker.ends["a"]["4"] = 7
    with pytest.raises(KafkaTopicError, match="'a' has 5 partitions now") as refused:
        list(batches_of(KafkaRangesReader(config(str(tmp_path), may_grow=("a",))), after[0]))
    assert refused.value.hint is not None and "give it a multiple of 2 partitions" in refused.value.hint


def test_records_that_were_given_up_are_not_read(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ends["a"]["0"] = 50

    planner = KafkaRangesReader(config(str(tmp_path), accepted=Accepted(begins={"a": {"0": 40}})))
    (after,) = batches_of(planner, end)

    assert msgspec.msgpack.decode(after[1][0][4], type=BatchPlan).ranges == [Range("a", 0, 40, 50)]


def test_an_empty_recreated_topic_makes_no_batch(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    broker.ids["a"], broker.ends["a"] = "another", {"0": 0, "1": 0}
    planner = KafkaRangesReader(config(str(tmp_path), accepted=Accepted(topics={"a": "another"})))

    assert list(batches_of(planner, end)) == []

    broker.ends["a"] = {"0": 2, "1": 0}
    (after,) = batches_of(planner, end)
    assert msgspec.msgpack.decode(after[1][0][4], type=BatchPlan).ranges == [Range("a", 0, 0, 2)]


def test_a_stream_that_gets_a_clock_later_ticks(tmp_path: Path, broker: Broker) -> None:
    end = begun(tmp_path, broker)
    assert TICK not in end
    broker.now_ms = 9_000

    planner = KafkaRangesReader(config(str(tmp_path), tick_file=str(tmp_path / "due")))
    (_, rows) = next(iter(batches_of(planner, end)))

    assert msgspec.msgpack.decode(rows[0][4], type=BatchPlan).tick


def test_who_reads_the_rows_elsewhere_knows_nothing_but_how_to_read_them(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(f"{tmp_path}/intents", tables_root=pickle.dumps(tmp_path / "tables")))
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadMaxRows(100))
    (partition,) = planner.partitions(start, end)

    for pickled in (pickle.dumps(planner), cloudpickle.dumps(planner.read), CloudPickleSerializer().dumps(planner)):  # type: ignore[no-untyped-call]
        assert all(known not in pickled for known in (str(tmp_path).encode(), b"intents", b"Config", b"line"))
        loaded = pickle.loads(pickled)
        reader = getattr(loaded, "__self__", loaded)
        assert vars(reader) == {}
        assert list(reader.read(partition)) == list(planner.read(partition)) == partition.value


def told(rows: list[Row]) -> dict[tuple[int, int, int], dict[str, dict[str, bytes]]]:
    """`(route, stage, task)` -> what it is told."""
    found = [(row[:3], messages.unpacked(row.payload)) for row in rows if row.kind == messages.TOLD]
    assert len(found) == len(dict(found)), "a task is told once"
    return dict(found)


def test_each_task_is_told_of_the_tables_of_its_stage(tmp_path: Path, broker: Broker) -> None:
    driver = page_index.open_for(tmp_path / "tables/t", "q")
    PageListWriter(driver.control, 1, PageList(paths=["p"]))
    stages = (
        StageInput(stage=0, topics=("a", "b"), routes=(7, 9), tables=("t", "unopened")),
        StageInput(stage=1, topics=(), routes=(4,), ticks=True),
    )
    made = config(str(tmp_path / "intents"), tables_root=pickle.dumps(tmp_path / "tables"))
    planner = KafkaRangesReader(msgspec.structs.replace(made, stages=stages))

    (batch,) = batches_of(planner, planner.initialOffset())

    found = told(batch[1])
    assert found.keys() == {(7, 0, 0), (9, 0, 1), (4, 1, 0)}
    assert found[4, 1, 0] == {}
    assert found[7, 0, 0] == {"t": {"driver": b"q " + driver.control.name.encode()}, "unopened": {}}
    assert found[9, 0, 1]["t"].keys() == {"driver", f"{driver.control.name}/pages-t0001"}
    assert {row.batch for row in batch[1]} == {batch[1][0].batch}
    assert batch[1][0].kind == messages.BATCH


def test_tasks_of_this_machine_are_told_nothing(tmp_path: Path, broker: Broker) -> None:
    planner = KafkaRangesReader(config(str(tmp_path)))

    (batch,) = batches_of(planner, planner.initialOffset())

    assert told(batch[1]) == {}


def test_a_batch_that_runs_again_tells_what_holds_then(tmp_path: Path, broker: Broker) -> None:
    """A driver has opened the table again."""
    stages = (StageInput(stage=0, topics=("a", "b"), routes=(7, 9), tables=("t",)),)
    made = config(str(tmp_path / "intents"), tables_root=pickle.dumps(tmp_path / "tables"))
    made = msgspec.structs.replace(made, stages=stages)
    page_index.open_for(tmp_path / "tables/t", "q")
    planner = KafkaRangesReader(made)
    (first,) = batches_of(planner, planner.initialOffset())
    driver = page_index.open_for(tmp_path / "tables/t", "q")

    again = KafkaRangesReader(made)
    (second,) = batches_of(again, again.initialOffset())

    assert second[0] == first[0]
    assert told(first[1]) != told(second[1])
    assert told(second[1])[7, 0, 0]["t"]["driver"].endswith(driver.control.name.encode())
