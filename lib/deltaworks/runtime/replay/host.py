"""The replay host: runs the recorded micro-batches chunk by chunk through all stages, into staging tables.

Within a chunk the groups of stages run one after the other. Each task runs all its steps at once; what it sends to the
next waits in files. Then the tables of the chunk are committed, and the chunk is noted. A replay that was killed goes
on with the chunk it was in: finished task chunks answer at once, and tables recognise a chunk that is committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.faults import reach
from deltaworks.files import delete, remove_tree, replace_file
from deltaworks.kafka.ranges import Range
from deltaworks.lakehouse import page_index
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.retention import Retention
from deltaworks.object_path import path_of
from deltaworks.runtime import messages
from deltaworks.runtime.collector import written_tables
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.replay.executors import Executor
from deltaworks.runtime.replay.steps import Step, chunks
from deltaworks.runtime.replay.task_chunks import ChunkResult, ChunkStep, RunPaths, TaskChunk, Work, read_result
from deltaworks.runtime.task_loop import TaskId, together
from deltaworks.topology.stages import StageGroup

_KEEP_VERSIONS = timedelta(minutes=1)
"""Nobody reads staging tables while they are being written."""


class Progress(msgspec.Struct, kw_only=True):
    """How far a replay is; kept in `progress.json`."""

    last_batch: int = -1
    """The last batch that is in the tables; -1: none is."""
    begun: int | None = None
    """The last batch of the chunk that is under way."""
    records: int = 0
    """Offsets that were read, including those of transaction markers."""
    chunks: int = 0
    rows: dict[str, int] = {}
    """Table -> rows that were appended, updated or deleted."""
    sent: dict[str, int] = {}
    """Topic -> records that a live stream would have written to it."""
    dropped: int = 0
    late: int = 0
    lost_results: int = 0
    dead_letters: int = 0
    seconds: float = 0.0
    states: list[tuple[TaskId, bytes]] = []
    """The state of each task that has run, if the run is shared; see `keeping`."""


def read_progress(paths: RunPaths) -> Progress:
    """The progress of a run after its last chunk."""
    try:
        return msgspec.json.decode(paths.progress.read_bytes(), type=Progress)
    except FileNotFoundError:
        return Progress()


class ReplayHost:
    """Replays one pipeline.

    ```python
    host = ReplayHost(pipeline, tasks=tasks, ..., root=folder, run_id="r1", clients=clients, executor=InProcess())
    host.run(recorded_steps(records, start), lambda progress: print(progress.records))
    ```

    Staging tables are in `root/tables`, in the format of the live ones and owned by the query `run_id`; the stores of
    the tasks are in `root/state`. A later run may go on in the same folder with more steps.

    If `root` is in an object store, the run is shared: its task chunks may run wherever that is in reach (`keeping`).
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        tasks: tuple[int, ...],
        exchange_partitions: Mapping[str, int],
        sink_partitions: Mapping[str, int],
        root: Path,
        run_id: str,
        clients: Callable[[], Reader],
        executor: Executor,
        max_records: int = 250_000,
        local: Path | None = None,
        sink_limits: Mapping[str, int] | None = None,
        answers: Path | None = None,
    ) -> None:
        """
        Args:
            pipeline: the pipeline, with the code to replay.
            tasks: number of tasks per stage.
            exchange_partitions: exchange -> number of tasks that it spreads its keys over.
            sink_partitions: partitions of output topics; a topic that is not named has 1.
            root: folder of this run, on this machine or in an object store.
            run_id: identity of its tables.
            clients: makes the reader of one task; is sent to where task chunks run.
            executor: runs task chunks.
            max_records: records per chunk. More need more memory and disk at once, fewer cost more commits.
            local: folder of this machine for the stores of a run that is shared; None: it is not.
            sink_limits: the largest record of each topic; a topic that is not named does not exist. None: every topic
                exists, with the limit of a stock broker.
            answers: folder of the recorded answers of other systems; None: there are none.
        """
        self._work = Work(
            pipeline=pipeline,
            tasks=tasks,
            exchange_partitions=dict(exchange_partitions),
            sink_partitions=dict(sink_partitions),
            root=root,
            run_id=run_id,
            clients=clients,
            sink_limits=None if sink_limits is None else dict(sink_limits),
            local=local,
            answers=answers,
        )
        self._plan = pipeline.plan()
        self._executor = executor
        self._max_records = max_records
        self._paths = self._work.paths
        self._reading: dict[str, list[int]] = {}
        """Topic -> the stages that read it."""

    @property
    def progress(self) -> Progress:
        """The progress after the last chunk."""
        return read_progress(self._paths)

    def run(self, steps: Iterable[Step], report: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Runs the steps; skips those that are done.

        Args:
            steps: in order, from the first batch on.
            report: called after each chunk.

        Raises:
            StreamsError: a record failed, and the pipeline's error policy is to fail.
            KafkaReadError: records are gone, or the broker did not answer.
            TableError, StateError: something else has changed the folder.
            ValueError: the steps differ from those of before.
        """
        progress = self.progress
        committer = self._open_tables(progress)
        new = (step for step in steps if step.batch > progress.last_batch)
        try:
            for chunk in chunks(new, self._max_records, progress.begun):
                self._run_chunk(chunk, committer, progress)
                report(progress)
            committer.refresh_snapshots(force=True)
        finally:
            committer.close()
        return progress

    def _run_chunk(self, chunk: Sequence[Step], committer: TableCommitter, progress: Progress) -> None:
        begun, last = clock.ticks_s(), chunk[-1].batch
        progress.begun = last
        self._note(progress)
        results = self._run_groups(chunk, dict(progress.states))
        reach("replay.before_commit")
        committer.commit(last, [write for result in results for write in result.writes])
        reach("replay.committed")
        _add(progress, chunk, results)
        progress.seconds += clock.ticks_s() - begun
        self._note(progress)
        reach("replay.noted")
        self._clear(last)
        delete(path_of(file) for result in results for file in result.replaced)
        reach("replay.cleared")

    def _open_tables(self, progress: Progress) -> TableCommitter:
        pipeline, plan = self._work.pipeline, self._plan
        options = TableOptions(retention=Retention.only(_KEEP_VERSIONS))
        committer = TableCommitter(
            self._paths.tables,
            pipeline.name,
            self._work.run_id,
            plan.tables,
            pipeline.dead_letters.table,
            options=options,
        )
        self._clear(progress.last_batch)
        committer.open(generation=1, uncommitted=self._uncommitted(progress))
        return committer

    def _uncommitted(self, progress: Progress) -> set[str]:
        """Files that task chunks of the current chunk have written."""
        if progress.begun is None:
            return set()
        found = self._paths.results(progress.begun).glob("*-*")
        results = [read_result(path) for path in found]
        return {file.path for result in results for write in result.writes for file in write.added}

    def _run_groups(self, chunk: Sequence[Step], states: Mapping[TaskId, bytes]) -> list[ChunkResult]:
        """Runs all groups of stages, one after the other; `states` are those of tasks before the chunk."""
        results: list[ChunkResult] = []
        exchanges: dict[TaskId, list[str]] = defaultdict(list)
        inputs = self._inputs(chunk)
        positions = self._positions(chunk)
        for group in self._plan.groups:
            given = self._task_chunks(group, chunk, inputs, positions, exchanges)
            task_chunks = [self._for_anywhere(each, states) for each in given]
            for result in self._executor.run(self._work, task_chunks) if task_chunks else ():
                results.append(result)
                for task, file in result.exchanges:
                    exchanges[task].append(file)
        return results

    def _inputs(self, chunk: Sequence[Step]) -> dict[TaskId, dict[int, list[Range]]]:
        """Per task: step -> the ranges that it reads; an empty list in a tick without records."""
        inputs: dict[TaskId, dict[int, list[Range]]] = defaultdict(dict)
        idle_timeout = self._work.pipeline.idle_timeout is not None
        ticking = [stage.index for stage in self._plan.stages if stage.ticks(idle_timeout=idle_timeout)]
        for number, step in enumerate(chunk):
            for stage in ticking if step.tick else ():
                for task in range(self._work.tasks[stage]):
                    inputs[stage, task][number] = []
            for each in step.ranges:
                for stage in self._stages_of(each.topic) if each.stop > each.start else ():
                    inputs[stage, each.partition].setdefault(number, []).append(each)
        return inputs

    def _stages_of(self, topic: str) -> list[int]:
        found = self._reading.get(topic)
        if found is None:
            found = self._reading[topic] = [stage.index for stage in self._plan.stages if stage.reads(topic)]
        return found

    def _positions(self, chunk: Sequence[Step]) -> list[bytes]:
        """The position of global tables in each step."""
        if not self._plan.global_stages:
            return [b""] * len(chunk)
        return [msgspec.msgpack.encode(step.globals) for step in chunk]

    def _task_chunks(
        self,
        group: StageGroup,
        chunk: Sequence[Step],
        inputs: Mapping[TaskId, Mapping[int, list[Range]]],
        positions: Sequence[bytes],
        exchanges: Mapping[TaskId, list[str]],
    ) -> Iterator[TaskChunk]:
        """The task chunks of tasks that have something to do."""
        for members in together(group, self._work.tasks):
            given = {place: inputs[task] for place, task in enumerate(members) if task in inputs}
            files = tuple((place, file) for place, task in enumerate(members) for file in exchanges.get(task, ()))
            if not given and not files:
                continue
            steps = tuple(
                ChunkStep(step.batch, step.wall_ms, mine, position)
                for number, (step, position) in enumerate(zip(chunk, positions, strict=True))
                if (mine := {place: tuple(steps[number]) for place, steps in given.items() if number in steps}) or files
            )
            yield TaskChunk(chunk[-1].batch, tuple(members), group.cyclic, steps, positions[0], files)

    def _for_anywhere(self, chunk: TaskChunk, states: Mapping[TaskId, bytes]) -> TaskChunk:
        """With what nobody elsewhere can read in files of this machine, if the run is shared."""
        if not self._paths.is_shared:
            return chunk
        known = tuple(states.get(task, b"") for task in chunk.members)
        return msgspec.structs.replace(chunk, states=known, told=tuple(map(self._told, chunk.members)))

    def _told(self, task: TaskId) -> bytes:
        stage, number = task
        tables = written_tables(self._work.pipeline, self._plan, self._plan.stages[stage])
        return messages.packed({name: page_index.files_for(self._paths.tables / name, number) for name in tables})

    def _note(self, progress: Progress) -> None:
        replace_file(self._paths.progress, msgspec.json.format(msgspec.json.encode(progress), indent=1))

    def _clear(self, last_batch: int) -> None:
        """Deletes what a committed chunk has left."""
        for folder in (self._paths.results(last_batch), self._paths.exchanges(last_batch)):
            remove_tree(folder)


def _add(progress: Progress, chunk: Sequence[Step], results: Sequence[ChunkResult]) -> None:
    """Adds a committed chunk."""
    progress.last_batch, progress.begun = chunk[-1].batch, None
    progress.records += sum(step.records for step in chunk)
    progress.chunks += 1
    progress.states = list((dict(progress.states) | dict(s for r in results for s in r.states)).items())
    for result in results:
        for write in result.writes:
            progress.rows[write.table] = progress.rows.get(write.table, 0) + write.changed_rows
        for topic, count in result.sent.items():
            progress.sent[topic] = progress.sent.get(topic, 0) + count
        progress.dropped += result.dropped
        progress.late += result.late
        progress.lost_results += result.lost_results
        progress.dead_letters += result.dead_letters
