"""What a driver checks and settles before its query begins: a stream that must not go on is left unchanged.

It checks in this order: the code fits the checkpoint; the pipeline belongs to this stream; everything in the outputs
follows from intents that this checkpoint knows. Then it settles the open batch. Only then does Spark start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from deltaworks import clock, processes
from deltaworks.control import accepted, lineage, opening, table_commands
from deltaworks.control import checkpoint as checkpoints
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.done import Done, require_known
from deltaworks.control.intents import Intent, Intents, token
from deltaworks.control.lineage import Watch
from deltaworks.control.opening import FinishFirst, ReplaceIntent
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import PipelineTopics
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import IntentError
from deltaworks.files import files_in
from deltaworks.kafka import admin, control_topic, transactional
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.object_path import ObjectPath
from deltaworks.runtime.batches import oversized
from deltaworks.settings import Settings
from deltaworks.spark import checkpoint_in_store, checkpoint_recovery
from deltaworks.spark.checkpoint_recovery import Settled
from deltaworks.topology.plan import Plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begun:
    """What the query needs from the beginning."""

    checkpoint: CheckpointPlan
    committer: TableCommitter
    intents: Intents
    watch: Watch
    sliced_batch: int | None
    """The open batch, if its tasks have to read it in slices."""
    is_open: bool
    """Whether a batch is open."""

    def close(self) -> None:
        """If nothing follows it."""
        self.committer.close()
        self.watch.close()


def settle(paths: PipelinePaths, checkpoint: CheckpointPlan, intents: Intents, generation: int) -> Settled:
    """Makes Spark's checkpoint one from which Spark starts; for the holder of the lease.

    Args:
        paths: paths of the pipeline.
        checkpoint: the one that runs.
        intents: of its batches.
        generation: whoever holds the lease has been admitted with it.

    Raises:
        IncompatibleCheckpointError: it cannot be made whole; nothing was changed.
    """
    offsets_of = _offsets_of(checkpoint, intents)
    current = paths.current
    if isinstance(current.root, ObjectPath):
        settled = checkpoint_in_store.settle(current.root, generation, offsets_of)
    else:
        settled = checkpoint_recovery.settle(
            current.spark, current.trash, processes.boot_id(), mark=current.synced, offsets_of=offsets_of
        )
    for sentence in settled.done:
        _log.warning("checkpoint: %s", sentence)
    checkpoint_recovery.expire(current.trash, (clock.cautious_ms() - TableOptions().keep_trash_ms) / 1000)
    return settled


def _offsets_of(checkpoint: CheckpointPlan, intents: Intents) -> Callable[[int], Offsets | None]:
    """The source offsets after a batch of Spark's count, according to its intent."""

    def offsets_of(spark_batch: int) -> Offsets | None:
        intent = intents.get(checkpoint.first_batch + spark_batch)
        return None if intent is None else intent.end

    return offsets_of


def last_committed(checkpoint: CheckpointPlan, settled: Settled) -> int:
    """The last batch that Spark's checkpoint holds; the one before its first batch if it holds none."""
    return checkpoint.first_batch - 1 if settled.committed is None else checkpoint.first_batch + settled.committed


@dataclass(frozen=True)
class Beginning:
    """The beginning of a driver, which holds the lease.

    Args:
        pipeline: the pipeline to run.
        plan: plan of the pipeline.
        settings: home, broker, cores.
        paths: paths of the pipeline.
        topics: the topics, as the broker has them.
        generation: generation of the driver.
        code: digest of its code.
    """

    pipeline: Pipeline
    plan: Plan
    settings: Settings
    paths: PipelinePaths
    topics: PipelineTopics
    generation: int
    code: str

    def begin(self, *, take_over: bool) -> Begun | Intent:
        """Checks and settles.

        Args:
            take_over: also if the pipeline belongs to another lineage at this broker.

        Returns:
            What the query needs; or the intent of a batch that must first be finished by the code that began it.

        Raises:
            IncompatibleCheckpointError, LineageError, FencedError, TableError, IntentError: the stream must not go on.
            KafkaReadError, KafkaWriteError: the broker does not answer.
        """
        tasks = self.plan.tasks(self.topics.read)
        name, bootstrap = self.pipeline.name, self.settings.cluster_of(self.pipeline.name)
        known = checkpoints.fitting_plan(
            self.paths.current.plan,
            name,
            self.plan.fingerprint(),
            self.topics.named,
            tasks,
            self.settings.tables_address,
        )
        control_topic.prepare(bootstrap, name, tasks)
        if known is not None:  # an old copy of this home must not fence the one that runs
            intents = Intents(files_in(self.paths.current.intents))
            require_known(self._in_kafka(known, settled=False), intents, name, known.first_batch)
        home = str(self.settings.home)
        identity = lineage.identity(bootstrap, name, home) if known is None else known.lineage
        claim = lineage.claim(
            bootstrap, name, identity, lineage.new_incarnation(),
            generation=self.generation, home=home, take_over=take_over,
        )  # fmt: skip
        topic_id = admin.topic_ids(admin.admin(bootstrap), [control_topic.control_topic(name)]).popitem()[1]
        checkpoint = checkpoints.open_plan(
            self.paths.current.plan, name, self.plan.fingerprint(), self.topics.named, tasks, self.settings.cores,
            lineage=identity, control_topic=topic_id, tables=self.settings.tables_address,
        )  # fmt: skip
        intents = Intents(files_in(self.paths.current.intents))
        committer = table_commands.opened(self.settings, self.pipeline, self.plan, checkpoint.query_id, self.generation)
        done = [*self._in_tables(committer), *self._in_kafka(checkpoint, settled=True)]
        require_known(done, intents, name, checkpoint.first_batch)
        settled = settle(self.paths, checkpoint, intents, self.generation)
        committed = last_committed(checkpoint, settled)
        if checkpoint.control_topic != topic_id:
            self._require_nothing_open(intents, committed)
            checkpoint = msgspec.structs.replace(checkpoint, control_topic=topic_id)
            checkpoints.write_plan(self.paths.current.plan, checkpoint)
        opened = self._open(checkpoint, intents, committed, done)
        if isinstance(opened, FinishFirst):
            committer.close()
            return opened.intent
        is_open = intents.get(committed + 1) is not None
        return Begun(checkpoint, committer, intents, Watch(bootstrap, name, claim), opened, is_open)

    def _require_nothing_open(self, intents: Intents, committed: int) -> None:
        """Refuses if a batch is open: the control topic was recreated, so nobody knows which tasks committed it."""
        topic, last = control_topic.control_topic(self.pipeline.name), intents.last()
        if last is not None and last.batch > committed and self._writes_to_kafka():
            raise IntentError(
                f"The topic '{topic}' was deleted, and with it the markers that say which tasks have committed their "
                f"records of batch {last.batch}, which is open.",
                hint=f"the markers are lost, so start over with a new checkpoint: move the pipeline's "
                f"folder ({self.paths.root}) and its tables away; its output topics then get everything once more",
            )
        _log.warning("the topic %s was recreated; no batch was open", topic)

    def _in_tables(self, committer: TableCommitter) -> Iterator[Done]:
        for table, (batch, intent) in committer.committed().items():
            if intent is not None:
                yield Done(f"table '{table}'", batch, intent)

    def _in_kafka(self, checkpoint: CheckpointPlan, *, settled: bool) -> Iterator[Done]:
        """What tasks have committed to Kafka.

        Args:
            checkpoint: whose tasks.
            settled: the result is final: a worker that another driver has left can no longer commit. Otherwise the
                result is preliminary and no transaction is ended, because it may belong to a better home.
        """
        if not self._writes_to_kafka():
            return
        read = transactional.settled_markers if settled else control_topic.read_markers
        markers = read(
            self.settings.cluster_of(self.pipeline.name), self.pipeline.name, checkpoint.query_id, checkpoint.tasks
        )
        for (stage, task), marker in markers.items():
            yield Done(f"Kafka (task {stage}-{task})", marker.batch, token(marker.intent))

    def _writes_to_kafka(self) -> bool:
        return bool(self.plan.sink_topics or self.pipeline.dead_letters.topic)

    def _open(
        self, checkpoint: CheckpointPlan, intents: Intents, committed: int, done: Sequence[Done]
    ) -> FinishFirst | int | None:
        """Settles the open batch; returns it if its tasks have to read it in slices."""
        intent = intents.get(committed + 1)
        if intent is None:
            return None
        durable = [each.where for each in done if each.batch >= intent.batch]
        if self._is_given_up(intent):
            self._require_not(durable, intent)
            self._forget_open(checkpoint, intents, committed)
            intents.remove_after(committed)
            return None
        match opening.opening(intent, self.code, durable):
            case FinishFirst() as first:
                return first
            case ReplaceIntent():
                _log.warning("batch %d was begun by the code %s; nothing of it is durable", intent.batch, intent.code)
                own = msgspec.structs.replace(intent, code=self.code, generation=self.generation)
                intents.replace(intent, own)
                intent = own
            case _:
                pass
        current = self.paths.current
        known = oversized.begun(current.open_batch, intent.batch)
        if not known.is_too_large:
            return intent.batch if known.in_slices else None
        if durable:
            _log.warning("batch %d is too large and durable in part: it runs in slices", intent.batch)
            oversized.slice_it(current.open_batch, intent.batch)
            return intent.batch
        half = oversized.cut_in_two(intent)
        _log.warning("batch %d is too large: cut to %s records", intent.batch, half.limit)
        self._forget_open(checkpoint, intents, committed)
        intents.replace(intent, half)
        return None

    def _forget_open(self, checkpoint: CheckpointPlan, intents: Intents, committed: int) -> None:
        """Makes Spark ask again what the open batch is to read."""
        current, batch = self.paths.current, committed - checkpoint.first_batch
        if isinstance(current.root, ObjectPath):
            checkpoint_in_store.rewind(current.root, self.generation, batch, _offsets_of(checkpoint, intents))
        else:
            checkpoint_recovery.rewind(current.spark, batch, current.trash, mark=current.synced)

    def _is_given_up(self, intent: Intent) -> bool:
        """Whether the batch reads records that were removed, and somebody has accepted to go on without them."""
        said = accepted.read(self.paths.current.accepted)
        return any(
            each.start < said.begins.get(each.topic, {}).get(str(each.partition), 0)
            or intent.topics.get(each.topic) != said.topics.get(each.topic, intent.topics.get(each.topic))
            for each in intent.ranges
        )

    def _require_not(self, durable: Sequence[str], intent: Intent) -> None:
        if durable:
            raise IntentError(
                f"Batch {intent.batch} reads records that are gone, and is committed in part: {', '.join(durable)}.",
                hint="it can neither be finished nor begun again: start over with a new checkpoint, or hand over to a "
                "replay (deltaworks replay --hand-over)",
            )
