"""With which batch a replay of days begins, by what Kafka and the archive still have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.control.batches import BatchRecord
from deltaworks.kafka.admin import Position
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.replay.begin import Broker, begun_later
from deltaworks.replay.model import ReplayPlan, ReplayRequest

DAY_MS = 86_400_000
NOW_MS = 20 * DAY_MS
FROM_MS = 15 * DAY_MS
HERE = ("payments", 0)
BATCHES = [BatchRecord(number, 0, {"payments": {"0": (number * 10, number * 10 + 10)}}) for number in range(5)]


@dataclass(frozen=True)
class There(Broker):
    """What is where: `low` and `found` are Kafka's, the others the archive's."""

    bootstrap: str = ""
    low: int | None = 0
    found: int = 35
    kept: int | None = None
    held: tuple[tuple[int, int], ...] = ()
    archived: int | None = None

    def partition_counts(self) -> Mapping[str, int]:
        return {} if self.low is None else {"payments": 1}

    def begin_offsets(self, topics: Collection[str]) -> Mapping[Position, int]:
        return {} if self.low is None else {HERE: self.low}

    def offsets_at(self, topics: Collection[str], timestamp_ms: int) -> Mapping[Position, int]:
        assert timestamp_ms == FROM_MS
        return {} if self.low is None else {HERE: self.found}

    def kept_ms(self, topics: Collection[str]) -> Mapping[str, int | None]:
        return dict.fromkeys(topics, self.kept)

    def spans(self, topic: str, partition: int) -> list[tuple[int, int]]:
        return list(self.held)

    def first_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self.archived


def named(builder: StreamsBuilder) -> None:
    builder.stream("payments", key=str, value=str).to_delta("named")


def planned() -> ReplayPlan:
    return ReplayPlan(
        run_id="r",
        request=ReplayRequest(pipeline="payments", requested_by="a test"),
        created_ms=NOW_MS,
        code_version="",
        query_id="q",
        first_batch=0,
        last_batch=4,
        records=50,
        end_offsets={"payments": {"0": 50}},
        partitions={"payments": 1},
        global_partitions={},
        sink_partitions={},
        tasks=(1,),
        tables=("named",),
    )


def begun(there: There, from_ms: int | None = FROM_MS, **options: Any) -> ReplayPlan:
    pipeline = Pipeline(name="payments", topology=named, **options)
    archive = cast(ArchiveReader, there)
    return begun_later(planned(), pipeline, from_ms, lambda: iter(BATCHES), there, archive)


@pytest.mark.parametrize(
    ("batch", "there"),
    [
        (3, There()),
        (4, There(found=50)),
        (1, There(low=20, held=((0, 20),), archived=12)),
        (3, There(low=20, held=((0, 20),))),
        (3, There(low=20, kept=5 * DAY_MS)),
        (0, There(low=20, kept=5 * DAY_MS - 1)),
        (0, There(low=20)),
        (1, There(low=20, held=((0, 10),))),
        (0, There(low=30, held=((10, 20),), archived=15)),
        (1, There(low=None, held=((0, 50),), archived=12)),
    ],
)
def test_it_begins_with_the_first_record_that_may_matter(batch: int, there: There) -> None:
    plan = begun(there)

    assert plan.begin is not None
    assert plan.begin.batch == batch
    assert plan.records == 50 - 10 * batch
    assert plan.extent == f"batches {batch} to 4, {plan.records} records"


def test_all_history_is_read_if_nobody_asks_for_days_or_time_depends_on_the_clock() -> None:
    assert begun(There(), from_ms=None) == planned()
    plan = begun(There(), idle_timeout=timedelta(seconds=1))
    assert plan.begin is None and "idle_timeout" in plan.notes[0]
