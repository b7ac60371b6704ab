"""Runs task chunks: step by step as a stream runs micro-batches, in one transaction per local store.

Table files come first; `keeping` says what follows, and what an attempt finds of one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

from deltaworks.errors import KafkaReadError
from deltaworks.faults import reach
from deltaworks.kafka.limits import STOCK_LIMIT
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import Task, TaskMetrics
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.runtime.call_outs.answers import ReplayedAnswers
from deltaworks.runtime.call_outs.asking import Asker
from deltaworks.runtime.collector import TaskCollector
from deltaworks.runtime.global_tables import GlobalTables
from deltaworks.runtime.replay.exchanges import ExchangeReader, ExchangeWriter
from deltaworks.runtime.replay.keeping import keeping
from deltaworks.runtime.replay.layers import Layers
from deltaworks.runtime.replay.reading import read_steps
from deltaworks.runtime.replay.task_chunks import ChunkResult, ChunkStep, TaskChunk, Work
from deltaworks.runtime.sinks import AuthorSinks, sinks_of
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.local_store import LocalTransaction
from deltaworks.runtime.task_loop import Inputs, Sent, process, take_turns
from deltaworks.runtime.worker import new_kernel
from deltaworks.topology.nodes import GlobalTableJoin
from deltaworks.topology.sinks import SinkTask
from deltaworks.topology.stages import Stage


class ChunkRunner:
    """Runs the task chunks of one run in this process."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._plan = work.pipeline.plan()
        self._keeping = keeping(work.paths, self._plan)

    def run(self, chunk: TaskChunk) -> ChunkResult:
        """Does it, or says what was done if it has been done already.

        Raises:
            StreamsError: a record failed, and the pipeline says fail.
            KafkaReadError: also with a new reader.
            StateError: the local stores are ahead of this chunk, or cannot be read.
        """
        with suppress(KafkaReadError):
            return self._keeping.run(chunk, self._process)
        return self._keeping.run(chunk, self._process)  # outside the handler: dead letters tell where they were raised

    def _process(
        self, chunk: TaskChunk, transactions: Sequence[LocalTransaction]
    ) -> tuple[ChunkResult, list[dict[str, StoreChanges]]]:
        """Runs the chunk; returns its result and what each member of a cycle has changed in its stores."""
        paths = self.work.paths
        with ExchangeWriter(paths.exchanges(chunk.commit_id), chunk.name) as exchanges, ExitStack() as opened:
            asker = Asker()
            opened.callback(asker.close)
            tables = self._global_tables(chunk, opened)
            members = {
                task: self._member(chunk, place, transaction, asker, opened)
                for place, (task, transaction) in enumerate(zip(chunk.members, transactions, strict=True))
            }
            position = b""
            for step in chunk.steps:
                inputs = {chunk.members[place]: Inputs([*ranges]) for place, ranges in step.inputs.items()}
                for task, member in members.items():
                    if arrived := member.arrived(step.batch):
                        inputs.setdefault(task, Inputs()).exchanges.extend(arrived)
                if not inputs:
                    continue
                if tables is not None and step.position != position:
                    position = step.position
                    tables.at(position)
                globals_ = {} if tables is None else tables.stores
                for member in members.values():
                    member.begin(step, globals_)
                for to, records in take_turns(chunk.members, inputs, members.__getitem__, cyclic=chunk.cyclic):
                    exchanges.add(step.batch, to, records)
                reach("replay.step")
            writes = [write for member in members.values() for write in member.finish()]
        metrics = [member.metrics for member in members.values()]
        result = ChunkResult(
            writes=tuple(writes),
            exchanges=exchanges.files,
            sent=dict(sum((member.sink.sent for member in members.values()), Counter())),
            dropped=sum(each.dropped for each in metrics),
            late=sum(each.late for each in metrics),
            lost_results=sum(each.lost_results for each in metrics),
            dead_letters=sum(each.dead_letters for each in metrics),
        )
        return result, [changelog.merge(member.changes, oldest=False) for member in members.values()]

    def _sink_task(self, task: int, sink: str) -> SinkTask:
        run = self.work.run_id
        return SinkTask(pipeline=self.work.pipeline.name, sink=sink, task=task, checkpoint=run, replay=run)

    def _global_tables(self, chunk: TaskChunk, opened: ExitStack) -> GlobalTables | Layers | None:
        """The global tables that its tasks may look something up in, as of the first step of the chunk."""
        stages = {stage for stage, _ in chunk.members}
        if not self._plan.global_stages or not any(_reads_globals(self._plan.stages[stage]) for stage in stages):
            return None
        work = self.work
        tables = GlobalTables(self._plan, work.pipeline, work.paths.globals, work.clients)
        opened.enter_context(closing(tables))
        tables.at(chunk.position)
        if all(step.position == chunk.position for step in chunk.steps):
            return tables
        return opened.enter_context(closing(Layers(tables, work.pipeline, work.clients)))

    def _member(
        self, chunk: TaskChunk, place: int, transaction: LocalTransaction, asker: Asker, opened: ExitStack
    ) -> _Member:
        work, plan, task = self.work, self._plan, chunk.members[place]
        sink = CountingSink(work.sink_partitions, work.sink_limits)
        sinks = AuthorSinks(sinks_of(plan.stages[task[0]], replay=True), partial(self._sink_task, task[1]))
        opened.callback(sinks.close)
        collector = TaskCollector(work.pipeline, plan, work.paths.tables, *task, lambda: sink, sinks)
        collector.begin(chunk.commit_id)
        ranges = [step.inputs[place] for step in chunk.steps if step.inputs.get(place)]
        records: Iterator[Iterable[list[RecordBatch]]] = iter(())
        if ranges:
            reader = opened.enter_context(closing(work.clients()))
            records = opened.enter_context(closing(read_steps(reader, ranges)))
        answers = ReplayedAnswers(work.answers, task, asker)
        kernel = partial(
            new_kernel, work.pipeline, plan, task, transaction, collector, answers=answers,
            exchange_partitions=work.exchange_partitions,
        )  # fmt: skip
        exchanges = ExchangeReader(file for to, file in chunk.exchanges if to == place)
        keep_changes = self._keeping.keeps_changes(chunk)
        return _Member(kernel, transaction, collector, sink, records, exchanges, answers, keep_changes=keep_changes)


class _Member:
    """One task in one chunk."""

    def __init__(
        self,
        new: Callable[..., Task],
        transaction: LocalTransaction,
        collector: TaskCollector,
        sink: CountingSink,
        records: Iterator[Iterable[list[RecordBatch]]],
        exchanges: ExchangeReader,
        answers: ReplayedAnswers,
        *,
        keep_changes: bool,
    ) -> None:
        """
        Args:
            new: makes the kernel task; wants the global stores and the wall clock.
            transaction: its state.
            collector: has begun.
            sink: of the collector.
            records: for each step in which it reads topics.
            exchanges: what others have sent to it.
            answers: of other systems.
            keep_changes: they are asked for at the end.
        """
        self._new, self._transaction, self._collector, self._keep_changes = new, transaction, collector, keep_changes
        self.changes: list[dict[str, StoreChanges]] = []
        self._records, self._exchanges, self._answers = records, exchanges, answers
        self._kernel: Task | None = None
        self._globals: Mapping[str, Store] = {}
        self._step: ChunkStep | None = None
        self.arrived = exchanges.take
        self.sink = sink
        self.metrics = TaskMetrics()

    def begin(self, step: ChunkStep, globals_: Mapping[str, Store]) -> None:
        """Begins a micro-batch."""
        self._step, self._globals = step, globals_
        self._collector.step(step.batch)
        self._answers.begin(step.batch)

    def turn(self, inputs: Inputs, *, last: bool) -> Sent:
        """See `turns.Member`; what it changes can be read in its next turn."""
        step = self._step
        assert step is not None
        if self._kernel is None:
            self._kernel = self._new(global_stores=self._globals, wall_clock_ms=step.wall_ms)
        process(self._kernel, inputs, self._read, step.wall_ms)
        changes = self._kernel.commit()
        self._transaction.apply(changes)
        if self._keep_changes:
            self.changes.append(changes)
        self.metrics = self._kernel.metrics.after(self.metrics)
        return self._collector.take_exchanges()

    def finish(self) -> list[TableWrite]:
        """Writes the files of its tables."""
        return self._collector.finish()

    def _read(self, ranges: list[Range]) -> Iterable[list[RecordBatch]]:
        return next(self._records)


class CountingSink:
    """`TransactionalProducer` that counts records and drops them."""

    def __init__(self, partitions: Mapping[str, int], limits: Mapping[str, int] | None = None) -> None:
        self._partitions, self._limits = partitions, limits
        self.sent: Counter[str] = Counter()

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> bool:
        return True

    def limit(self, topic: str) -> int | None:
        return STOCK_LIMIT if self._limits is None else self._limits.get(topic)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers = (),
        partition_key: bytes | None = None,
        partition: int | None = None,
    ) -> None:
        self.sent[topic] += 1

    def partitions(self, topic: str) -> int:
        return self._partitions.get(topic, 1)

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


def _reads_globals(stage: Stage) -> bool:
    """Its tasks may look something up in a global table; processors of users may in any."""
    return stage.has_processors or any(isinstance(node, GlobalTableJoin) for node in stage.nodes)
