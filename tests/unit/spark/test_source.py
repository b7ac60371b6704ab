"""Which rows the source plans for a micro-batch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.spark import rows
from deltaworks.spark.rows import BatchPlan
from deltaworks.spark.source import TICK, KafkaRangesReader, SourceConfig, StageInput, plan_rows


def planned(
    config: SourceConfig, start: Offsets, end: Offsets
) -> tuple[BatchPlan, dict[tuple[int, int, int], Any], Any]:
    """For the driver; `(route, stage, task)` -> ranges; the position of global tables."""
    first, *others = plan_rows(config, start, end)
    assert first[3] == rows.BATCH and all(row[3] == rows.INPUT for row in others)
    inputs = {row[:3]: msgspec.msgpack.decode(row[4], type=list[Range]) for row in others}
    position = None if first[5] is None else msgspec.msgpack.decode(first[5])
    return msgspec.msgpack.decode(first[4], type=BatchPlan), inputs, position


def config(**options: Any) -> SourceConfig:
    stages = (
        StageInput(stage=0, topics=("a", "b"), routes=(7, 9)),
        StageInput(stage=1, topics=(), routes=(4,), ticks=True),
    )
    return SourceConfig(bootstrap="", partitions={"a": 2, "b": 2}, stages=stages, **options)


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

    started = KafkaRangesReader(config(goes_on_at=goes_on | tick, tick_file="due")).initialOffset()

    assert started == {"a": {"0": 11, "1": 12}, "b": {"0": 3, "1": 14}, TICK: {"0": 0}} | tick
    assert TICK not in KafkaRangesReader(config(goes_on_at=goes_on | tick)).initialOffset()
