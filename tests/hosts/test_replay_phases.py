"""A replay from the request to the clean-up, and back, beside a stream in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import Pipeline
from deltaworks.control import batches, commands, table_commands
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, ConflictError, TableError
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.replay import runs
from deltaworks.replay.model import PHASES
from tests.hosts.beside import Beside, stand_beside
from tests.hosts.test_replay_of_jobs import streamed

DAY = 86_400_000
MARCH_1 = 20_513 * DAY


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    return stand_beside(streamed("orders", tmp_path, 3), monkeypatch)


def worse(pipeline: Pipeline) -> Pipeline:
    """Code that forgets every third order."""
    build: Callable[..., Any] = pipeline.topology

    def topology(builder: Any) -> None:
        stream = builder.stream

        def thinned(topic: str, **options: Any) -> Any:
            found = stream(topic, **options)
            return found.filter(lambda key, _: hash(key) % 3 == 0) if topic == "raw-orders" else found

        builder.stream = thinned
        build(builder)

    return replace(pipeline, topology=topology)


def test_the_same_code_says_the_same_and_publishing_it_changes_no_row(beside: Beside) -> None:
    before = beside.rows()
    run = beside.start(tables=("order_counts", "user_revenue", "enriched_orders", "dead_letters"))

    assert beside.advance(run, "compare") == ["plan", "run", "compare"]
    state = run.paths.read_state()
    assert state.differences == 0

    assert beside.advance(run) == list(PHASES)
    assert not run.paths.root.exists() and run.paths.publication.exists()
    assert beside.rows() == before
    history = DeltaTable(beside.settings.tables / "order_counts").history(1)[0]
    assert run.plan.run_id in str(history) and run.plan.code_version in str(history)


def test_other_code_is_compared_published_and_rolled_back(beside: Beside) -> None:
    before = beside.rows()
    beside.pipeline = worse(beside.pipeline)
    run = beside.start(tables=("order_counts", "enriched_orders"), reason="what if")

    beside.advance(run, "compare")
    assert (run.paths.read_state().differences or 0) > 50
    assert beside.rows() == before

    beside.advance(run)
    after = beside.rows()
    assert len(after["enriched_orders"]) < len(before["enriched_orders"])
    assert {name for name in before if before[name] != after[name]} == {"order_counts", "enriched_orders"}

    runs.rollback(beside.settings, run.plan.run_id, requested_by="a test")
    assert beside.rows() == before


def test_a_gate_that_is_not_passed_publishes_nothing(beside: Beside) -> None:
    before = beside.rows()
    run = beside.start()

    assert beside.advance(run, passes=False) == ["plan", "run", "compare"]
    assert beside.rows() == before
    assert run.paths.tables.exists() and run.paths.read_state().passed is False

    runs.discard(beside.settings, run.plan.run_id)
    assert runs.unfinished(beside.settings, "orders") == []


def test_runs_exclude_each_other_where_they_overlap(beside: Beside) -> None:
    first = beside.start(from_ms=MARCH_1, to_ms=MARCH_1 + DAY, tables=("order_counts",))
    with pytest.raises(ConflictError, match=first.plan.run_id):
        beside.start(tables=("order_counts", "user_revenue"))
    beside.start(from_ms=MARCH_1 + DAY, tables=("order_counts",))
    beside.start(tables=("enriched_orders",))
    assert len(runs.all_unfinished(beside.settings)) == 3


def test_only_one_process_works_on_a_run(beside: Beside) -> None:
    run = beside.start()
    with run.held():
        other = runs.resume(beside.settings, run.plan.run_id)
        with pytest.raises(ConflictError, match="Another process"), other.held():
            pass
        with pytest.raises(ConflictError, match="Another process"):
            runs.discard(beside.settings, run.plan.run_id)


@pytest.mark.parametrize("last", ["clean", "discard"])
def test_a_run_that_is_killed_while_it_is_removed_is_gone(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    run = beside.start(tables=("order_counts",))
    beside.advance(run, "verify")

    def killed(root: Path, **options: Any) -> None:
        (root / "phases.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as death, pytest.raises(KeyboardInterrupt):
        death.setattr(shutil, "rmtree", killed)
        if last == "clean":
            beside.advance(run)
        else:
            runs.discard(beside.settings, run.plan.run_id)
    assert runs.unfinished(beside.settings, "orders") == []
    assert run.paths.root.exists()

    beside.start(tables=("order_counts",))
    assert not run.paths.root.exists()


def test_a_day_that_is_not_complete_is_refused_with_what_can_be_asked_for(beside: Beside) -> None:
    with pytest.raises(TableError, match="user_revenue still has windows that may change") as refused:
        beside.start(from_ms=MARCH_1, to_ms=MARCH_1 + 400 * DAY, tables=("user_revenue",))
    assert "--to 2026-03" in (refused.value.hint or "")
    assert runs.all_unfinished(beside.settings) == []


def test_a_gate_is_asked_again_after_its_suite_was_repaired(beside: Beside) -> None:
    run = beside.start()
    beside.advance(run, passes=False)
    assert beside.advance(run, "gate") == ["plan", "run", "compare", "gate"]


def test_what_is_published_is_verified_and_cleaned_up_whatever_the_code_is_by_then(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = beside.start(tables=("order_counts",))
    beside.advance(run, "publish")
    monkeypatch.setattr(runs, "code_version", lambda *_: "another")

    assert beside.advance(runs.resume(beside.settings, run.plan.run_id)) == list(PHASES)


def test_a_replay_of_a_stream_that_was_handed_over_since_is_not_published(beside: Beside) -> None:
    run = beside.start()
    beside.advance(run, "gate")
    plan = PipelinePaths.of(beside.settings, "orders").current.plan
    plan.write_bytes(plan.read_bytes().replace(run.plan.query_id.encode(), b"another"))

    with pytest.raises(ConflictError, match="the stream is another one now"):
        beside.advance(run)


@pytest.mark.parametrize("options", [{"from_ms": MARCH_1}, {"tables": ("users",)}, {"order": "time"}])
def test_a_hand_over_is_of_everything(beside: Beside, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a hand-over always includes all tables and stores"):
        beside.start(hand_over=True, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"from_ms": MARCH_1 + 1}, "not the beginning of a UTC day"),
        ({"from_ms": MARCH_1, "to_ms": MARCH_1}, "range of days is empty"),
        ({"tables": ("nowhere",)}, "writes no table nowhere"),
        ({"from_ms": MARCH_1, "tables": ("users",)}, "a table without windows has no days"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(beside: Beside, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        beside.start(**options)
    assert runs.all_unfinished(beside.settings) == []


def test_a_plan_names_the_topics_whose_history_kafka_has_thinned_out(beside: Beside) -> None:
    assert beside.start(tables=("order_counts",)).plan.notes == []
    beside.broker.thinned = frozenset({"user-data", "another"})

    plan = beside.start(tables=("enriched_orders",)).plan

    assert plan.compacted == plan.incomplete == ("user-data",)
    (note,) = plan.notes
    assert note.startswith("user-data is compacted") and "archive=True" in note


def test_a_record_of_batches_with_a_gap_is_refused(beside: Beside) -> None:
    folder = PipelinePaths.of(beside.settings, "orders").batches
    (file,) = folder.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(ConfigurationError, match="has a gap: 3 comes after 1"):
        beside.start()


def test_a_stream_that_has_read_nothing_has_no_history(beside: Beside) -> None:
    folder = PipelinePaths.of(beside.settings, "orders").batches
    for nothing_yet in (True, False):
        shutil.rmtree(folder, ignore_errors=True)
        if nothing_yet:
            batches.append(folder, batches.record_of(0, 1_800_000_000_000, [], tick=False))
        with pytest.raises(ConfigurationError, match="has not processed a record yet"):
            beside.start()


def test_a_changelog_brings_its_snapshot_along(beside: Beside) -> None:
    assert beside.start(tables=("users",)).plan.tables == ("users_changelog", "users")


def test_a_run_of_other_code_is_not_gone_on_with(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    run = beside.start()
    monkeypatch.setattr(runs, "code_version", lambda settings, pipeline: "another")
    with pytest.raises(ConfigurationError, match="was planned with code"):
        runs.resume(beside.settings, run.plan.run_id)


def test_a_command_that_a_driver_left_is_carried_out_by_who_asks_next(beside: Beside) -> None:
    paths = PipelinePaths.of(beside.settings, "orders")
    run = beside.start(tables=("order_counts",))
    beside.advance(run, "gate")
    with Lease(paths.lease, "orders", 1), run.held(), pytest.raises(Exception, match="did not execute"):
        table_commands.publish(
            beside.settings, beside.pipeline, run.paths.tables, run.publication_request(), timeout_s=0.2
        )
    assert list(commands.pending(paths.commands)) == []
    assert beside.advance(run) == list(PHASES)


def test_a_publish_of_no_day_says_which_table_is_in_the_way(beside: Beside) -> None:
    """The busiest users never pause for long enough, so their sessions of the first day go on."""
    run = beside.start(tables=("user_sessions", "order_counts", "enriched_orders"))

    with pytest.raises(TableError, match="no day to publish: user_sessions has windows of 2026-03-01") as refused:
        beside.advance(run)

    assert refused.value.hint == "publish the other tables: --table enriched_orders --table order_counts"


def test_before_a_hand_over_each_table_is_compared_as_far_as_its_own_days_are_complete(beside: Beside) -> None:
    run = beside.start(hand_over=True)
    beside.advance(run, "compare")

    assert run.scope(run.paths.read_state()).days == (None, None)  # what the gate looks at
    found = msgspec.json.decode(run.paths.comparison.read_bytes(), type=Comparison)
    rows = {table.table: table.rows for table in found.tables}
    assert found.differences == 0
    assert rows["order_counts"].production > 0 and rows["user_revenue"].production > 0
    assert rows["user_sessions"].production == 0
    assert rows["users_changelog"].production > 0
