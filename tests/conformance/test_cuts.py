"""Which inputs of a case may share a micro-batch."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.cuts import Arrival, Tick, Trace, arbitrary_cut
from tests.conformance.run import plan_of

Node = dict[str, Any]
STREAM: Node = {"id": "s", "op": "stream", "topic": "in", "value_type": "string"}
OUT: Node = {"id": "o", "op": "to", "in": "s", "topic": "out"}
TABLE: Node = {"id": "t", "op": "table", "topic": "rows", "value_type": "string"}
JOIN: Node = {"id": "j", "op": "join_stream_table", "in": ["s", "t"], "kind": "left", "joiner": ["concat_lr"]}
GLOBAL: Node = {"id": "g", "op": "global_table", "topic": "rows", "value_type": "string", "store": "rows"}
LOOK: Node = JOIN | {"op": "join_stream_global", "in": ["s", "g"], "key": ["key"]}
JOINED: Node = {"id": "o", "op": "to", "in": "j", "topic": "out"}


def trace(nodes: list[Node], *inputs: Any, **config: Any) -> Trace:
    """Inputs are `(topic, timestamp)`, or by how much the clock advances."""
    case = {
        "name": "case",
        "spec": {"nodes": nodes},
        "config": config,
        "inputs": [
            {"advance_wall_clock_ms": given}
            if isinstance(given, int)
            else {"topic": given[0], "key": "a", "value": "v", "timestamp": given[1]}
            for given in inputs
        ],
    }
    return Trace(case, plan_of(case, lambda *_: None, object))


def test_records_of_one_topic_may_share_a_batch_in_any_order_of_time() -> None:
    assert trace([STREAM, OUT], ("in", 9), ("in", 3), ("in", 5)).may_share_a_batch(0, 2)


def test_two_topics_may_if_the_order_contract_takes_them_as_they_came() -> None:
    nodes = [STREAM, TABLE, JOIN, JOINED]

    assert trace(nodes, ("rows", 1), ("in", 2)).may_share_a_batch(0, 1)
    assert not trace(nodes, ("rows", 3), ("in", 2)).may_share_a_batch(0, 1)
    assert trace(nodes, ("in", 2), ("rows", 2)).may_share_a_batch(0, 1)
    assert not trace(nodes, ("rows", 2), ("in", 2)).may_share_a_batch(0, 1)


def test_records_of_a_global_table_may_only_come_first() -> None:
    nodes = [GLOBAL, STREAM, LOOK, JOINED]

    assert trace(nodes, ("rows", 5), ("in", 2)).may_share_a_batch(0, 1)
    assert not trace(nodes, ("in", 2), ("rows", 5)).may_share_a_batch(0, 1)


def test_with_a_record_cache_none_may() -> None:
    assert not trace([STREAM, OUT], ("in", 1), ("in", 2), cache_max_bytes=1_000).may_share_a_batch(0, 1)


def test_the_clock_advances_between_batches() -> None:
    given = trace([STREAM, OUT], ("in", 1), 7, ("in", 2), initial_wall_clock_ms=100)

    assert not given.may_share_a_batch(0, 1)
    assert [(batch.wall_clock_ms, batch.tick) for batch in given.single().batches] == [
        (100, True),
        (100, False),
        (107, True),
        (107, False),
    ]


def test_what_a_topology_feeds_back_is_a_step_of_its_own() -> None:
    again = {"id": "a", "op": "stream", "topic": "out", "value_type": "string"}
    seen = {"id": "p", "op": "foreach", "in": "a"}
    given = trace([STREAM, OUT, again, seen], ("in", 1), ("out", 2), ("in", 3))

    assert [(step.topic, step.offset, step.fed_back) for step in given.steps if isinstance(step, Arrival)] == [
        ("in", 0, False),
        ("out", 0, True),
        ("out", 1, False),
        ("in", 1, False),
        ("out", 2, True),
    ]
    assert not given.may_share_a_batch(0, 1)
    assert given.may_share_a_batch(2, 3)


def test_any_cut_keeps_all_steps_and_their_order() -> None:
    given = trace([STREAM, TABLE, JOIN, JOINED], ("rows", 3), ("in", 2), 5, ("in", 4), ("rows", 1))

    cut = arbitrary_cut(given.case, given.plan, Random(2))

    assert [step for steps in cut.steps for step in steps] == given.steps
    assert all(len(steps) == 1 for steps in cut.steps if any(isinstance(step, Tick) for step in steps))
    assert len(cut.batches) == len(cut.steps)
