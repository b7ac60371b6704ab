"""A checkpoint that goes on with the stores of a replay leaves what a stream with that code from the beginning does."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import Column, Pipeline, StreamsBuilder, faults
from deltaworks.control import batches
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import all_topics
from deltaworks.errors import ConfigurationError, FencedError, TableError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.task import TASK_STORE
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.publish import ownership
from deltaworks.lakehouse.publish.ownership import Handover, HandoverRequest
from deltaworks.lakehouse.schema import Role, plan_schemas
from deltaworks.runtime.replay.executors import InProcess
from deltaworks.runtime.replay.host import ReplayHost
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.spark.source import TICK
from deltaworks.testing.sample_data import SampleData
from deltaworks.testing.topics import RawRecord
from jobs import fraud, inventory, invoices, orders
from jobs.model.fraud import Profile
from jobs.sample_data import fraud as fraud_data
from jobs.sample_data import inventory as inventory_data
from jobs.sample_data import invoices as invoices_data
from jobs.sample_data import orders as orders_data
from jobs.sample_data.kafka import PARTITIONS
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import steps_of
from tests.support.fault_hooks import InjectedFault

POINTS = [
    "task.opened", "task.processed", "task.flushed", "store.after_apply", "store.after_append",
    "store.after_version", "driver.after_tasks", "driver.after_tables", "driver.end",
]  # fmt: skip
GENERATION = 1
"""All streams in process are of this one."""
Records = dict[str, dict[int, list[RawRecord]]]
Ends = dict[str, dict[int, int]]
Stores = dict[tuple[int, int], dict[str, list[tuple[bytes, bytes]]]]
Step = tuple[Offsets, int]
"""Where a batch ends, and its wall clock."""


@dataclass(frozen=True)
class Case:
    """A pipeline, its input, and what was wrong in its code before."""

    pipeline: Pipeline
    kafka: MemoryKafka
    """With all input, and nothing else."""
    wrong: tuple[tuple[Any, str, Any], ...]
    """Of what, the name, the value that the old code had there."""
    ticks: float = 0.0
    """Share of the batches."""
    before: Pipeline | None = None
    """What the old code was, if it had another topology."""

    @contextmanager
    def old_code(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for target, name, value in self.wrong:
                patch.setattr(target, name, value)
            yield

    def broker(self) -> MemoryKafka:
        """One of its own for each stream."""
        inputs = {t: {p: list(records) for p, records in parts.items()} for t, parts in self.kafka.records.items()}
        return MemoryKafka(dict(self.kafka.partitions), inputs)

    def stream(self, home: Path, pipeline: Pipeline | None = None, **options: Any) -> InProcessStream:
        return InProcessStream(pipeline or self.pipeline, settings_of(home), **({"kafka": self.broker()} | options))

    def steps(self, home: Path, rng: random.Random, count: int) -> list[Step]:
        """Random cuts of everything into batches."""
        stream = self.stream(home)
        end, at, wall_ms, steps = stream.end(), stream.offsets, 1_800_000_000_000, []
        stream.close()
        for left in range(count, 0, -1):
            cut = {
                topic: {
                    p: at[topic][p] + min(n := stop - at[topic][p], rng.randint(0, 2 * n // left))
                    for p, stop in parts.items()
                }
                for topic, parts in end.items()
            }
            wall_ms += rng.choice([500, 4_000, 11_000, 3_700_000])
            ticked = {TICK: {"0": wall_ms}} if rng.random() < self.ticks else {TICK: at[TICK]} if TICK in at else {}
            at = cut | ticked
            steps.append((end | ticked if left == 1 else at, wall_ms))
        return steps


def job(pipeline: Pipeline, data: SampleData, *wrong: tuple[Any, str, Any], ticks: float = 0.0) -> Case:
    kafka = MemoryKafka(dict.fromkeys(all_topics(pipeline, pipeline.plan()), PARTITIONS))
    for record in data.records(500, 11):
        partition = None if record.key is not None else record.partition
        kafka.write(record.topic, RawRecord(record.key, record.value, record.timestamp_ms), partition)
    return Case(pipeline, kafka, wrong, ticks)


def small(topology: Callable[[StreamsBuilder], None], inputs: dict[str, int], *wrong: tuple[Any, str, Any]) -> Case:
    rng, kafka = random.Random(5), MemoryKafka({**inputs, "out": 2})
    for number in range(300):
        topic = rng.choice(list(inputs))
        value = None if rng.random() < 0.1 else f"k{rng.randrange(9)}".encode()
        kafka.write(topic, RawRecord(f"k{rng.randrange(9)}".encode(), value, 1_000 * number))
    return Case(Pipeline(name="under-test", topology=topology), kafka, wrong)


class Words:
    joint = "+"


def cycle(builder: StreamsBuilder) -> None:
    left = builder.table("left", key=str, value=str, store="left")
    right = builder.table("right", key=str, value=str, store="right")
    joined = left.left_join(
        right,
        lambda a, b: f"{a}{Words.joint}{b}",
        foreign_key=lambda _, key: key,
        value=str,
        store="joined",
        name="by-value",
    )
    joined.to_stream().to("out")
    joined.to_delta("joined")


def global_names(builder: StreamsBuilder) -> None:
    names = builder.global_table("names", key=str, value=str, store="names")
    ids = builder.stream("ids", key=str, value=str)
    joined = ids.left_join(names, lambda a, b: f"{a}{Words.joint}{b}", selector=lambda _, value: value, value=str)
    joined.group_by_key().reduce(lambda a, b: f"{a[-20:]}{b}", store="last").to_delta("last")


def without_counts(stock: inventory.Stock, moved: inventory.Movement, after: Any = inventory.Stock.after) -> Any:
    return stock if moved.kind == "count" else after(stock, moved)


def in_cents(order: orders.Order, user: orders.User, enrich: Any = orders.enrich) -> orders.EnrichedOrder:
    enriched: orders.EnrichedOrder = enrich(msgspec.structs.replace(order, amount=order.amount * 100), user)
    return enriched


WRONG_JOINT = (Words, "joint", "-")
CASES: dict[str, Callable[[], Case]] = {
    "orders": lambda: job(
        orders.pipeline, orders_data, (orders, "enrich", in_cents), (orders, "GRACE", timedelta(seconds=1))
    ),
    "invoices": lambda: job(invoices.pipeline, invoices_data, (invoices, "POINTS_PER_AMOUNT", Decimal("0.03"))),
    "fraud": lambda: job(fraud.pipeline, fraud_data, (Profile, "after", lambda profile, *_: profile), ticks=0.4),
    "inventory": lambda: job(inventory.pipeline, inventory_data, (inventory.Stock, "after", without_counts)),
    "a cycle": lambda: small(cycle, {"left": 3, "right": 3}, WRONG_JOINT),
    "a global table": lambda: small(global_names, {"ids": 3, "names": 2}, WRONG_JOINT),
}


def settings_of(home: Path) -> Settings:
    return replace(Settings.from_environment({}), home=home)


def run(stream: InProcessStream, steps: Sequence[Step], fail: Callable[[], list[str]] = list) -> None:
    for end, wall_ms in steps:
        stream.run(end, fail(), wall_ms=wall_ms)


def ends(kafka: MemoryKafka) -> Ends:
    return {topic: {p: len(records) for p, records in parts.items()} for topic, parts in kafka.records.items()}


def stores(stream: InProcessStream) -> Stores:
    """Every entry of every task, as committed."""
    stream.kernels()
    found = {}
    for stage, task in stream.states:
        local = stream.worker.task(stage, task).local
        names = [*(store.name for store in stream.plan.stages[stage].stores), TASK_STORE]
        found[stage, task] = {name: list(local.reader(name).scan(b"", None)) for name in names}
    return found


def topics(stream: InProcessStream, since: Ends) -> Records:
    """What it has written to topics after some offsets."""
    kafka = stream.kafka
    assert kafka is not None
    written = {topic: kafka.records[topic] for topic in kafka.sent}
    return {t: {p: found[since.get(t, {}).get(p, 0) :] for p, found in parts.items()} for t, parts in written.items()}


def tables(stream: InProcessStream) -> dict[str, list[str]]:
    """All rows of all tables, with all columns."""
    stream.committer.refresh_snapshots(force=True)
    found = {name: DeltaTable(stream.settings.tables / name).to_pyarrow_table() for name in stream.committer.tables}
    return {name: sorted(map(repr, table.to_pylist())) for name, table in found.items()}


def attempted(work: Callable[[], object], interrupted_at: Sequence[str]) -> None:
    """Does something again until no fault point ends it any more."""
    for point in interrupted_at:
        with faults_at(point), pytest.raises(InjectedFault):
            work()
    work()
    work()  # nothing is left to do


@contextmanager
def faults_at(point: str) -> Iterator[None]:
    def reached(name: str) -> None:
        if name == point:
            raise InjectedFault(point)

    faults.arm(reached)
    try:
        yield
    finally:
        faults.arm(None)


class ChangingStream:
    """A pipeline whose first checkpoint has old code."""

    def __init__(self, case: Case, home: Path, steps: Sequence[Step], done: int) -> None:
        """
        Args:
            case: the pipeline.
            home: an empty folder.
            steps: all batches.
            done: how many of them the old code runs.
        """
        self.case, self.home, self.steps = case, home, steps
        self.settings = settings_of(home / "live")
        self.paths = PipelinePaths.of(self.settings, case.pipeline.name)
        with case.old_code():
            self.old = case.stream(home / "live", case.before, query_id="old")
            run(self.old, steps[:done])
            self.old.close()
        assert self.old.kafka is not None
        self.kafka = self.old.kafka

    def other(self, done: int) -> InProcessStream:
        """A stream that has run the first batches with the code as it is now."""
        other = self.case.stream(self.home / "other", query_id="other")
        run(other, self.steps[:done])
        return other

    def switch(
        self,
        run_id: str,
        done: int,
        *,
        shards: int = 2,
        interrupted_at: Sequence[str] = (),
        generation: int = GENERATION,
    ) -> InProcessStream:
        """Replays the batches and hands over stores and tables; a first attempt ends at each point that is named."""
        old, root = self.old, self.home / run_id
        partitions = {topic: self.kafka.count(topic) for topic in old.plan.source_topics}
        plan = self.case.pipeline.plan()
        host = ReplayHost(
            self.case.pipeline,
            tasks=plan.tasks(partitions),
            exchange_partitions=plan.exchange_partitions(partitions),
            sink_partitions=self.kafka.partitions,
            root=root,
            run_id=run_id,
            clients=self.kafka.reader,
            executor=InProcess(),
            max_records=100,
        )
        progress = host.run(steps_of(old))
        assert progress.last_batch == done - 1
        checkpoint = handover.make_checkpoint(
            self.paths,
            plan,
            tasks=plan.tasks(partitions),
            shards=shards,
            partitions=partitions,
            run_id=run_id,
            last_batch=progress.last_batch,
            offsets=handover.offsets_after(self.paths, progress.last_batch),
            state=root / "state",
        )
        before = self.paths.switched
        schemas = plan_schemas(
            plan.tables, self.case.pipeline.dead_letters.table, self.case.pipeline.archives(plan).tables
        )
        request = HandoverRequest(
            run_id=run_id, predecessor=before[-1] if before else "old", pipeline=self.case.pipeline.name,
            code_version="new", last_batch=progress.last_batch, end_offsets={}, requested_by="a test",
        )  # fmt: skip

        def hand_over() -> Handover:
            return ownership.hand_over(
                self.settings.tables, root / "tables", schemas, request, self.record(run_id), generation
            )

        attempted(hand_over, interrupted_at)
        handover.switch(self.paths, run_id)
        self.since, self.done = ends(self.kafka), done
        return self.case.stream(self.home / "live", kafka=self.kafka, switched_to=checkpoint)

    def record(self, run_id: str) -> Path:
        """Of the tables that went over."""
        return self.paths.handover(run_id)

    def undo(self, run_id: str, interrupted_at: Sequence[str] = ()) -> None:
        """The checkpoint before is the stream again."""
        attempted(lambda: ownership.undo(self.settings.tables, self.record(run_id), GENERATION), interrupted_at)
        handover.undo(self.paths, run_id)

    def assert_right(self, checkpoint: InProcessStream) -> None:
        """Compares with a stream that runs all batches with the new code: all that is left, all written since."""
        whole = self.other(self.done)
        assert whole.kafka is not None
        since = ends(whole.kafka)
        run(whole, self.steps[self.done :])

        assert stores(checkpoint) == stores(whole)
        assert topics(checkpoint, self.since) == topics(whole, since)
        assert tables(checkpoint) == tables(whole)
        assert list(batches.read(checkpoint.batches)) == list(batches.read(whole.batches))
        checkpoint.close()
        whole.close()


@pytest.mark.parametrize(("name", "shards"), list(zip(CASES, itertools.cycle([1, 2]), strict=False)))
def test_the_new_checkpoint_goes_on_without_gap_and_without_double(tmp_path: Path, name: str, shards: int) -> None:
    rng, case = random.Random(f"{name} {shards}"), CASES[name]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", rng, 12), done=7)

    checkpoint = handed.switch("run", done=7, shards=shards)
    run(checkpoint, handed.steps[7:])

    assert "rebuild" in checkpoint.openings
    handed.assert_right(checkpoint)


@pytest.mark.parametrize("name", CASES)
def test_the_old_code_leaves_something_else(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(name), 2), done=2)
    replay = handed.other(done=2)

    assert stores(handed.old) != stores(replay)
    handed.old.close()
    replay.close()


@pytest.mark.parametrize("name", CASES)
def test_failures_right_after_the_switch_change_nothing(tmp_path: Path, name: str) -> None:
    rng, case = random.Random(name), CASES[name]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", rng, 11), done=5)

    checkpoint = handed.switch("run", done=5)
    disturb = [checkpoint.lose_disk, checkpoint.lose_worker, checkpoint.restart]
    for number, (end, wall_ms) in enumerate(handed.steps[5:], start=len(name)):
        checkpoint.run(end, rng.sample(POINTS, 3), wall_ms=wall_ms)
        disturb[number % len(disturb)]()

    assert checkpoint.failed_at
    handed.assert_right(checkpoint)


def test_the_first_batch_of_the_checkpoint_may_run_on_another_machine(tmp_path: Path) -> None:
    case = CASES["a cycle"]()
    steps = case.steps(tmp_path / "cuts", random.Random(1), 9)
    handed = ChangingStream(case, tmp_path, steps, done=4)

    checkpoint = handed.switch("run", done=4)
    steps[4] = steps[4][0], checkpoint.clock(4)
    checkpoint.run_on_another_machine(steps[4][0])
    run(checkpoint, steps[5:])

    handed.assert_right(checkpoint)


def test_a_checkpoint_may_follow_a_checkpoint(tmp_path: Path) -> None:
    case = CASES["a cycle"]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(3), 9), done=3)
    first = handed.switch("first", done=3)
    run(first, handed.steps[3:6])
    first.close()

    second = handed.switch("second", done=6, shards=1)
    run(second, handed.steps[6:])

    assert handed.paths.switched == ("first", "second")
    before = tables_of(handed.settings)
    with pytest.raises(TableError, match="has gone over from run first to query second since"):
        ownership.undo(handed.settings.tables, handed.record("first"), GENERATION)
    with pytest.raises(ConfigurationError, match="first is not the checkpoint that was switched to last"):
        handover.require_last(handed.paths, "first")
    assert tables_of(handed.settings) == before
    handed.assert_right(second)


@pytest.mark.parametrize("archive", [False, True])
def test_after_an_undo_the_checkpoint_before_goes_on_as_if_there_had_been_none(tmp_path: Path, archive: bool) -> None:
    case = CASES["inventory"]()
    case = replace(case, pipeline=replace(case.pipeline, archive=archive))
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(2), 10), done=5)
    checkpoint = handed.switch("run", done=5)
    run(checkpoint, handed.steps[5:8])
    checkpoint.close()

    handed.undo(
        "run", [f"undo_handover.after_commit:{name}" for name in ("inventory_customer_hours", "inventory_stock")]
    )
    handover.undo(handed.paths, "run")  # once more

    assert [record.batch for record in batches.read(handed.paths.batches)] == [0, 1, 2, 3, 4]
    assert [record.batch for record in batches.read(handed.paths.checkpoint_of("run").set_aside)] == [5, 6, 7]
    with case.old_code():
        handed.old.restart()
        run(handed.old, handed.steps[5:])
        whole = handed.other(done=10)
    assert stores(handed.old) == stores(whole)
    assert tables(handed.old) == tables(whole)
    assert list(batches.read(handed.old.batches)) == list(batches.read(whole.batches))
    handed.old.close()
    whole.close()


def test_what_is_archived_is_there_once_whatever_checkpoint_has_read_it(tmp_path: Path) -> None:
    case = CASES["orders"]()
    case = replace(case, pipeline=replace(case.pipeline, archive=True))
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(8), 9), done=3)
    checkpoint = handed.switch("run", done=3)
    run(checkpoint, handed.steps[3:6])
    checkpoint.close()
    handed.undo("run")
    with case.old_code():
        handed.old.restart()
        run(handed.old, [handed.steps[4], handed.steps[7]])  # other cuts than those of the checkpoint
        handed.old.close()
    archived = {name: table for name, table in handed.old.committer.tables.items() if table.schema.role is Role.ARCHIVE}
    assert len(archived) == 2
    for name in archived:
        rows = DeltaTable(handed.settings.tables / name).to_pyarrow_table().to_pylist()
        found = sorted((row["topic"], row["partition"], row["offset"]) for row in rows)
        read = {topic for topic, _, _ in found}
        wanted = [
            (topic, int(p), offset) for topic in read for p, stop in handed.steps[7][0][topic].items()
            for offset in range(stop)
        ]  # fmt: skip
        assert found == sorted(wanted)


POINTS_OF_HANDOVER = [
    "handover.before_record",
    "handover.after_record",
    "handover.after_commit:joined_changelog",
]


def test_an_interrupted_hand_over_is_completed_or_taken_back(tmp_path: Path) -> None:
    case = CASES["a cycle"]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(4), 6), done=3)
    checkpoint = handed.switch("run", done=3, interrupted_at=POINTS_OF_HANDOVER)
    run(checkpoint, handed.steps[3:])
    handed.assert_right(checkpoint)


def test_tables_that_have_gone_over_half_way_are_refused_by_both_lines(tmp_path: Path) -> None:
    case = CASES["a cycle"]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(4), 6), done=3)
    before = tables_of(handed.settings)

    with faults_at("handover.after_commit:joined_changelog"), pytest.raises(InjectedFault):
        handed.switch("run", done=3)

    with pytest.raises(TableError, match="belongs to the checkpoint of query run"), case.old_code():
        handed.old.restart()
    with pytest.raises(TableError, match="interrupted while handing over"):
        ownership.require_settled(handed.paths.handovers)
    ownership.undo(handed.settings.tables, handed.record("run"), GENERATION)
    ownership.require_settled(handed.paths.handovers)
    assert tables_of(handed.settings) == before
    with case.old_code():
        handed.old.restart()
        run(handed.old, handed.steps[3:])
        whole = handed.other(done=6)
    assert tables(handed.old) == tables(whole)
    handed.old.close()
    whole.close()


def test_a_driver_of_before_that_wakes_up_cannot_write_to_tables_that_have_gone_over(tmp_path: Path) -> None:
    case = CASES["a cycle"]()
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(4), 6), done=3)
    sleeping = DeltaLog(handed.settings.tables / "joined_changelog")
    sleeping.load()
    sleeping.fence(layout.app_id("under-test", "joined_changelog", layout.GENERATION, "old"), GENERATION)
    handed.switch("run", done=3, generation=GENERATION + 1).close()

    with pytest.raises(FencedError):
        sleeping.commit(Commit(transactions={"any": 1}))


def counted(builder: StreamsBuilder) -> None:
    words = builder.stream("left", key=str, value=str)
    words.group_by(lambda _, value: value, key=str, name="by-value").count(store="counts").to_delta("counts")
    words.to_delta("words")


def summed(builder: StreamsBuilder) -> None:
    words = builder.stream("left", key=str, value=str)
    lengths = words.map_values(lambda value: len(value or ""), value=int)
    lengths.group_by_key().reduce(lambda a, b: a + b, store="lengths").to_delta("lengths")
    words.map_values(lambda value: f"{value}!", value=str).to("out")
    lengths.to_delta("words")


def test_the_new_code_may_have_another_topology_and_other_columns(tmp_path: Path) -> None:
    """A stage less, another store, a table more; the values of a table are numbers now."""
    case = small(summed, {"left": 3})
    case = replace(case, before=replace(case.pipeline, topology=counted))
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(6), 8), done=4)
    counts = tables_of(handed.settings)

    checkpoint = handed.switch("run", done=4)
    run(checkpoint, handed.steps[4:])
    handed.assert_right(checkpoint)

    handed.undo("run")
    assert {name: rows for name, rows in tables_of(handed.settings).items() if name in counts} == counts
    handed.old.restart()
    run(handed.old, handed.steps[4:])
    handed.old.close()


def named(builder: StreamsBuilder) -> None:
    words = builder.stream("left", key=str, value=str)
    words.group_by(lambda _, value: value, key=str, name="by-value").count(store="counts").to_delta(
        "counts", key=Column("word", "What was said."), value="count", doc="How often"
    )
    words.to_delta("words", key="speaker", value="word")


def test_a_table_with_renamed_columns_is_built_again_and_means_what_the_new_code_says(tmp_path: Path) -> None:
    case = small(named, {"left": 3})
    case = replace(case, before=replace(case.pipeline, topology=counted))
    handed = ChangingStream(case, tmp_path, case.steps(tmp_path / "cuts", random.Random(8), 8), done=4)

    checkpoint = handed.switch("run", done=4)
    run(checkpoint, handed.steps[4:])

    assert columns_of(handed.settings, "counts")[:2] == [("word", "What was said."), ("count", None)]
    assert [name for name, _ in columns_of(handed.settings, "words")[:2]] == ["speaker", "word"]
    assert DeltaTable(handed.settings.tables / "counts").metadata().description == "How often"
    handed.assert_right(checkpoint)

    handed.undo("run")
    assert columns_of(handed.settings, "counts")[:2] == [("key", None), ("value", None)]
    assert DeltaTable(handed.settings.tables / "counts").metadata().description is None
    handed.old.close()


def columns_of(settings: Settings, table: str) -> list[tuple[str, str | None]]:
    """Names and comments."""
    fields = json.loads(DeltaTable(settings.tables / table).schema().to_json())["fields"]
    return [(field["name"], field["metadata"].get("comment")) for field in fields]


def tables_of(settings: Settings) -> dict[str, list[str]]:
    return {
        path.name: sorted(map(repr, DeltaTable(path).to_pyarrow_table().to_pylist()))
        for path in sorted(settings.tables.iterdir())
    }
