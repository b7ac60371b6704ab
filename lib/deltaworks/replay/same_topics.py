"""Makes sure that a replay reads exactly what the stream has read, or is refused.

A topic that was deleted and recreated has other records at the same offsets. The record of batches has the ids of the
topics that were read (`control.batches`), and Kafka says which topics exist now. If a topic no longer exists, only an
archive can have what batches read of it. Records of an earlier topic of the same name are lost.

A replay of some days is still possible if they depend on no lost records. Nobody can look up how old those were. The
clock of their batches says how new they can have been, if a `Timestamps` says how far ahead of the clock records are
accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta

from deltaworks.control.batches import BatchRecord, is_before
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import KafkaTopicError
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.replay.model import ReplayPlan, day_of
from deltaworks.topology.plan import Plan

_DAY_MS = 86_400_000
_NEW_CHECKPOINT = (
    "a stream with a new checkpoint has results of what the topics hold now; what they held before is lost"
)


def read_by(plan: Plan, topics: Iterable[str]) -> list[str]:
    """The given topics that the code reads, sorted."""
    return sorted(filter(plan.uses, set(topics)))


def gone(read: Iterable[str], recorded: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that Kafka no longer has in the form that the last batches read.

    Args:
        read: the topics that are read.
        recorded: their ids, as far as the record of batches has them.
        there: the ids of the topics that Kafka has.
    """
    return tuple(
        topic for topic in sorted(read) if topic not in there or there[topic] != recorded.get(topic, there[topic])
    )


def latest_before_ms(plan: ReplayPlan, pipeline: Pipeline, topic: str) -> int | None:
    """The latest time of any record from before a topic was recreated; None: unknown."""
    limit = next((each.timestamps for each in pipeline.topics if each.name == topic), None)
    if limit is None or (limit.otherwise == "dead_letter" and pipeline.dead_letters.table in plan.tables):
        return None
    return plan.recreated[topic].before_ms + limit.max_ahead // timedelta(milliseconds=1)


def require_readable(
    plan: ReplayPlan, pipeline: Pipeline, records: Callable[[], Iterator[BatchRecord]], archive: ArchiveReader
) -> None:
    """Raises `KafkaTopicError` if a replay would have to read records from before a topic was recreated.

    Args:
        plan: plan of the replay, with the batch that it begins with.
        pipeline: the pipeline, with the code to replay.
        records: iterates over the record of batches.
        archive: archive of the pipeline, for the topics that the last batches read.
    """
    topology = pipeline.plan()
    suspects = set(read_by(topology, {*plan.recreated, *plan.gone}))
    if not suspects:
        return
    for record in records():
        if record.batch > plan.last_batch:
            return
        for topic in sorted(suspects & record.offsets.keys()):
            if not _reads(plan, record.batch, topic):
                continue
            if is_before(record, topic, plan.recreated):
                raise _read_before(plan, pipeline, topic, record.batch)
            if topic in plan.gone and not _is_archived(plan, archive, topic, record.offsets[topic]):
                raise _not_there(plan, topic, record.batch)


def require_unchanged(plan: ReplayPlan, there: Callable[[Collection[str]], Mapping[str, str]]) -> None:
    """Raises `KafkaTopicError` if a topic was recreated since a replay was planned: it may have read from either.

    Args:
        plan: plan of the replay.
        there: gives the ids of those topics that Kafka has.
    """
    read = sorted(plan.topics.keys() - set(plan.gone))
    if read and (changed := gone(read, plan.topics, there(read))):
        raise KafkaTopicError(
            f"{_named(changed)} was deleted or recreated since the replay {plan.run_id} was planned: what it has read "
            "of it since then may be other records.",
            hint=f"deltaworks discard {plan.run_id}; nothing of it is published",
        )


def _reads(plan: ReplayPlan, batch: int, topic: str) -> bool:
    """Whether the replay reads what a batch has read of a topic."""
    begin = plan.begin
    return begin is None or batch >= begin.batch or topic in begin.topics or topic in plan.global_partitions


def _is_archived(plan: ReplayPlan, archive: ArchiveReader, topic: str, parts: Mapping[str, tuple[int, int]]) -> bool:
    if topic in plan.global_partitions or plan.request.hand_over:  # a stream that is handed over reads on in Kafka
        return False
    return all(
        any(first <= start and stop <= end for first, end in archive.spans(topic, int(partition)))
        for partition, (start, stop) in parts.items()
    )


def _read_before(plan: ReplayPlan, pipeline: Pipeline, topic: str, batch: int) -> KafkaTopicError:
    made = plan.recreated[topic]
    return KafkaTopicError(
        f"The topic '{topic}' was recreated before batch {made.batch}, and the replay needs what batch {batch} has "
        f"read of it before, on {day_of(made.before_ms)} or earlier. Those records are gone; at their offsets are "
        "others now.",
        hint=_way_on(plan, pipeline, topic),
    )


def _way_on(plan: ReplayPlan, pipeline: Pipeline, topic: str) -> str:
    begin = plan.begin
    if plan.request.hand_over or plan.needs_all or topic in plan.global_partitions:
        return _NEW_CHECKPOINT
    if begin is None:
        return f"days that do not depend on them can be replayed: try --from; {_NEW_CHECKPOINT}"
    if topic in begin.topics:
        return f"its table has rows of all its history; {_NEW_CHECKPOINT}"
    latest_ms = latest_before_ms(plan, pipeline, topic)
    if latest_ms is None:
        return (
            "nobody knows how new those records were: Topic(..., timestamps=Timestamps(max_ahead=...)) says how far "
            f"ahead of the clock they are taken, and later days can be replayed; else {_NEW_CHECKPOINT}"
        )
    back_ms = begin.complete_from_ms - begin.since_ms
    first = max(latest_ms + back_ms, begin.complete_from_ms) // _DAY_MS + 1
    return f"days from {day_of(first * _DAY_MS)} on do not depend on them: --from {day_of(first * _DAY_MS)}"


def _not_there(plan: ReplayPlan, topic: str, batch: int) -> KafkaTopicError:
    return KafkaTopicError(
        f"The topic '{topic}' was deleted or recreated since the stream read it, and the replay needs what batch "
        f"{batch} has read of it. "
        + (
            "A stream that is handed over reads on where that topic has ended."
            if plan.request.hand_over
            else "No archive has all of that."
        ),
        hint=_NEW_CHECKPOINT,
    )


def _named(topics: Iterable[str]) -> str:
    return "The topic " + ", ".join(f"'{topic}'" for topic in topics)
