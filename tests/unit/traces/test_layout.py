"""The spans of a batch: which there are, that they nest, and that they last as long as what they stand for."""

from __future__ import annotations

import msgspec
import pytest

from deltaworks.errors import SinkError
from deltaworks.traces.layout import Span, batch_span
from tests.unit.traces.batches import BEGUN_MS, BEGUN_S, PHASES, SECRET, SPARK, begun, figures, result, results


def named(span: Span, name: str) -> Span:
    (found,) = (each for each in span.all() if each.name == name)
    return found


def seconds(*spans: Span) -> float:
    return sum(span.end_ns - span.begin_ns for span in spans) / 1e9


def require_nested(span: Span) -> None:
    for child in span.children:
        assert span.begin_ns <= child.begin_ns <= child.end_ns <= span.end_ns, (span.name, child.name)
        require_nested(child)


def tree(span: Span) -> dict[str, object]:
    return {child.name: tree(child) for child in span.children}


def test_a_batch_has_spark_s_phases_ours_its_tasks_and_its_tables() -> None:
    task: dict[str, object] = {
        "open": {},
        "poll orders": {},
        "process orders": {},
        "commit": {"commit transaction": {}},
        "keep": {},
    }
    assert tree(batch_span(figures(tasks=2))) == {
        "latestOffset": {},
        "walCommit": {},
        "queryPlanning": {},
        "addBatch": {
            "tasks": {"task 0-0": task, "task 0-1": task},
            "tables": {"commit copies": {}, "commit counts": {}},
            "after": {},
        },
        "commitOffsets": {},
    }


def test_spans_nest_and_their_times_are_those_of_the_figures() -> None:
    batch = batch_span(figures(tasks=36))

    require_nested(batch)
    assert seconds(batch) == seconds(*batch.children) == pytest.approx(sum(SPARK.values()) - SPARK["triggerExecution"])
    for child in batch.children:
        assert seconds(child) == pytest.approx(SPARK[child.name])
    ours = named(batch, "addBatch")
    assert [seconds(each) for each in ours.children] == pytest.approx([0.75, 0.125, 0.125])
    assert seconds(ours) == pytest.approx(seconds(*ours.children))
    assert [seconds(each) for each in named(batch, "tables").children] == pytest.approx([0.0625, 0.03125])
    for task in named(batch, "tasks").children:
        assert [seconds(each) for each in task.children] == pytest.approx([*PHASES.values()])
        assert seconds(*task.children) == pytest.approx(seconds(task) - 0.0375), "it waited for others to process"
        processed = named(task, "process orders")
        assert processed.end_ns == (BEGUN_MS + 500) * 1_000_000


def test_a_batch_of_which_spark_has_not_told_is_what_the_driver_knows() -> None:
    batch = batch_span(figures(spark=False))

    require_nested(batch)
    assert [*tree(batch)] == ["tasks", "tables", "after"]
    assert seconds(batch) == seconds(*batch.children) == pytest.approx(1.0)


def test_a_phase_of_spark_that_is_not_known_is_there_too() -> None:
    given = figures()
    given.spark_phases = {**SPARK, "newPhase": 0.5}
    batch = batch_span(given)

    require_nested(batch)
    assert [*tree(batch)] == ["latestOffset", "walCommit", "queryPlanning", "newPhase", "addBatch", "commitOffsets"]


@pytest.mark.parametrize("late_ms", [-3_600_000, -5_000, 200, 5_000, 3_600_000])
def test_tasks_of_a_machine_with_another_clock_are_shifted_into_the_batch(late_ms: int) -> None:
    given = figures()
    given.results = [result(task, late_ms=late_ms) for task in range(4)]
    batch = batch_span(given)

    require_nested(batch)
    for task in named(batch, "tasks").children:
        assert [seconds(each) for each in task.children] == pytest.approx([*PHASES.values()]), "as long as before"
        shifted_ms = task.attributes["deltaworks.shifted_ms"]
        assert isinstance(shifted_ms, float) and shifted_ms * late_ms > 0


def test_a_batch_that_fails_in_its_tasks_says_where_and_with_which_error() -> None:
    given = begun()
    given.end(BEGUN_S + 0.5, (BEGUN_MS + 500) * 1_000_000, SinkError("no place for the value 4711"))
    batch = batch_span(given)

    assert tree(batch) == {"tasks": {}}
    assert batch.error == named(batch, "tasks").error == "deltaworks.errors.SinkError"
    assert batch.attributes["messaging.batch.message_count"] == 400, "what it was to read"
    assert seconds(batch) == pytest.approx(0.5)
    assert "4711" not in repr(batch)


def test_a_batch_that_fails_at_its_tables_has_its_tasks() -> None:
    given = figures()
    given.commits, given.committed_s = (), None
    given.end(BEGUN_S + 1.0, (BEGUN_MS + 1_000) * 1_000_000, OSError("disk"))
    batch = batch_span(given)

    require_nested(batch)
    assert named(batch, "tasks").error is None
    assert len(named(batch, "tasks").children) == 4
    assert named(batch, "tables").error == batch.error == "OSError"


def test_spans_say_what_they_are_about_in_the_words_of_opentelemetry() -> None:
    batch = batch_span(figures(), {"deltaworks.trigger_seconds": 1.0})

    assert batch.attributes == {
        "messaging.system": "kafka",
        "messaging.batch.message_count": 400,
        "deltaworks.batch.id": 41,
        "deltaworks.generation": 3,
        "deltaworks.checkpoint": "q",
        "deltaworks.batch.tick": True,
        "deltaworks.code": "c0de",
        "deltaworks.spark.trigger_seconds": 1.5,
        "deltaworks.trigger_seconds": 1.0,
    }
    task = named(batch, "task 0-3")
    poll, process, sent = named(task, "poll orders"), named(task, "process orders"), named(task, "commit transaction")
    source = {
        "messaging.system": "kafka",
        "messaging.batch.message_count": 100,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "deltaworks.offsets": ["orders-3: 1000..1100"],
    }
    assert poll.kind == "client"
    assert poll.attributes == source | {"messaging.operation.type": "receive", "messaging.operation.name": "poll"}
    assert process.kind == "consumer"
    assert process.attributes == source | {"messaging.operation.type": "process", "messaging.operation.name": "process"}
    assert sent.kind == "producer"
    assert sent.attributes["messaging.operation.type"] == "send"
    assert sent.attributes["messaging.batch.message_count"] == 100
    assert seconds(sent) == pytest.approx(0.03125)
    assert task.attributes == {
        "deltaworks.stage": 0,
        "deltaworks.task": 3,
        "deltaworks.records": 100,
        "deltaworks.store.opened": "applied",
        "deltaworks.dropped": 1,
    }
    assert named(batch, "commit copies").attributes == {
        "deltaworks.table": "copies",
        "deltaworks.table.version": 7,
        "deltaworks.table.rows": 400,
        "deltaworks.table.files_added": 4,
        "deltaworks.table.files_removed": 4,
        "deltaworks.skipped": False,
    }
    assert named(batch, "tables").attributes == {"deltaworks.snapshots": ["users"]}


def test_a_task_that_reads_several_topics_names_none_of_them_as_its_own() -> None:
    given = figures(tasks=1)
    (task,) = given.results
    task.ranges.append(msgspec.structs.replace(task.ranges[0], topic="users"))
    poll = named(batch_span(given), "poll")

    assert "messaging.destination.name" not in poll.attributes
    assert poll.attributes["deltaworks.offsets"] == ["orders-0: 1000..1100", "users-0: 1000..1100"]


def test_a_task_after_an_exchange_has_read_nothing_from_kafka() -> None:
    given = figures()
    given.results = [result(0, stage=1)]
    task = named(batch_span(given), "task 1-0")

    process = named(task, "process")
    assert process.kind == "internal"
    assert process.attributes == {"deltaworks.records": 100}


def test_records_that_were_exchanged_or_taken_by_transactions_are_counted_by_their_offsets() -> None:
    given = figures(exchanged=4)
    given.results = [result(0), msgspec.structs.replace(given.results[1], counts=result(1, records=90).counts)]
    given.results += figures(exchanged=4).results[2:]
    batch = batch_span(given)

    assert len(named(batch, "tasks").children) == 8
    assert batch.attributes["messaging.batch.message_count"] == 400, "each was read once"
    task = named(batch, "task 0-1")
    assert task.attributes["deltaworks.records"] == 90
    for name in ("poll orders", "process orders"):
        assert named(task, name).attributes["messaging.batch.message_count"] == 100


def test_what_waits_for_the_receiver_has_only_what_a_trace_has() -> None:
    given = begun(tasks=2)
    whole = results(2)
    given.processed(whole, BEGUN_S + 0.75)

    assert given.files == {"copies": (2, 2)}
    assert all(each.writes == [] and each.counts.arrivals == [] for each in given.results)
    assert SECRET in repr(whole) and SECRET not in repr(given)
    kept = ("phases", "processed_ms", "committed_ms", "records_in", "sent", "transaction_s")
    for before, after in zip(whole, given.results, strict=True):
        assert all(getattr(before.counts, name) == getattr(after.counts, name) for name in kept)
        assert (before.ranges, before.recovery) == (after.ranges, after.recovery)
