"""The gate of every job lets a replay pass that is right, in whatever order it went, and wherever it began."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks import Pipeline
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import TableSchema, plan_schemas
from deltaworks.quality.gate import gate, judge
from deltaworks.quality.verdict import Verdict
from deltaworks.replay.model import Order
from deltaworks.runtime.replay.steps import begun_later
from deltaworks.spark.replay.by_time import ByTime, joined, steps
from deltaworks.spark.source import TICK
from deltaworks.topology.lookback import lookback_ms, tables_from_the_beginning
from tests.hosts.in_process import InProcessStream
from tests.hosts.replays import replay_host, steps_of
from tests.hosts.test_replay_by_time import sort_here
from tests.hosts.test_replay_of_jobs import JOBS, streamed
from tests.system.data_defects.checking import suites_of


def blocking(
    stream: InProcessStream,
    staging: Path,
    published: list[str],
    begin: LaterBegin | None = None,
    order: Order = "recorded",
) -> list[Verdict]:
    """What the gate does not let pass."""
    from_ms = None if begin is None else begin.complete_from_ms
    ends: Offsets = {topic: dict(parts) for topic, parts in stream.offsets.items() if topic != TICK}
    verdicts = gate(
        staging,
        stream.settings.tables,
        schemas=schemas_of(stream.pipeline),
        suites=suites_of(stream.pipeline.name),
        scope=Scope(end_offsets=ends, last_batch=stream.batch_id - 1, from_ms=from_ms),
        published=published,
        begin=begin,
        order=order,
    )
    return [verdict for verdict in verdicts if verdict.blocks]


def schemas_of(pipeline: Pipeline) -> tuple[TableSchema, ...]:
    return plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)


@pytest.mark.parametrize("job", JOBS)
def test_a_replay_by_time_passes(job: str, tmp_path: Path) -> None:
    stream = streamed(job, tmp_path, 5)
    assert stream.kafka is not None
    recorded = steps_of(stream)
    sort_here(stream.kafka.reader, joined(recorded), tmp_path / "sorted")
    by_time = steps(
        tmp_path / "sorted",
        batches=(0, recorded[-1].batch),
        last_wall_ms=recorded[-1].wall_ms,
        tick=any(step.tick for step in recorded),
        global_offsets=recorded[-1].globals,
    )
    root = tmp_path / "replay"
    replay_host(stream, root, max_records=400, clients=ByTime(tmp_path / "sorted", stream.kafka.reader)).run(by_time)

    published = [schema.name for schema in schemas_of(stream.pipeline)]
    assert blocking(stream, root / "tables", published, order="time") == []
    as_they_are = judge(root / "tables", schemas=schemas_of(stream.pipeline), suites=suites_of(job))
    assert [verdict for verdict in as_they_are if verdict.blocks] == []


LATER = {
    "wordcount": ["wordcount_hours"],
    "orders": ["enriched_orders", "order_counts", "user_revenue", "user_sessions"],
    "clicks": ["clicks_pages"],
    "invoices": ["invoices_line_items"],
    "inventory": ["inventory_customer_hours"],
    "ads": ["ads_clicks"],
}
"""Tables of days that do not depend on all history."""


@pytest.mark.parametrize("job", LATER)
def test_a_replay_that_begins_later_passes(job: str, tmp_path: Path) -> None:
    stream = streamed(job, tmp_path, 6)
    plan, recorded = stream.plan, steps_of(stream)
    whole = tables_from_the_beginning(plan, plan.source_topics)
    middle = recorded[len(recorded) // 2].batch
    left_out = [each for step in recorded if step.batch < middle for each in step.ranges if each.topic not in whole]
    assert stream.kafka is not None
    topics = stream.kafka.records
    since_ms = 1 + max(r.timestamp_ms for p in left_out for r in topics[p.topic][p.partition][p.start : p.stop])
    sinks = [sink for sink in plan.tables if sink.table in LATER[job]]
    begin = LaterBegin(
        batch=middle,
        topics=tuple(sorted(whole)),
        since_ms=since_ms,
        complete_from_ms=since_ms + lookback_ms(plan, sinks, dead_letters=False, whole=whole),
    )
    root = tmp_path / "replay"
    replay_host(stream, root, max_records=400).run(begun_later(recorded, middle, whole))

    assert blocking(stream, root / "tables", LATER[job], begin) == []
