"""Several cases as one topology, so that one query of Spark runs them: a query costs seconds before its first batch.

The stages of all cases stand side by side and have nothing to do with each other; topics and exchanges get a prefix per
case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from deltaworks import Plan
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.recorded import MicroBatch
from deltaworks.topology.nodes import AnyNode, ExchangeSink, ExtractedTopicSink, Source, TopicSink
from deltaworks.topology.stages import Stage
from tests.conformance.hosts import Observed, Run


def can_be_merged(run: Run) -> bool:
    """One pipeline has one error policy and one topic of dead letters; global stores, and topics that a function names,
    could clash."""
    if {run.errors.deserialization, run.errors.processing} != {"fail"}:
        return False
    alone = run.plan.global_stages or run.plan.source_patterns or run.dead_letter_topic or run.fed_back or run.forgets
    return not alone and not any(isinstance(node, ExtractedTopicSink) for node in run.plan.nodes)


@dataclass(frozen=True)
class Merged:
    """One run in the place of several that have equal error handlers."""

    runs: Sequence[Run]

    @property
    def run(self) -> Run:
        """All at once: the nth batch of each that has records is in the nth batch."""
        stages: list[Stage] = []
        for number, run in enumerate(self.runs):
            stages += [_renamed_stage(stage, _prefix(number)) for stage in run.plan.stages]
        batches = [
            MicroBatch(0, tuple(part for parts in together for part in parts or ()), tick=False)
            for together in zip_longest(*(_parts(run, _prefix(number)) for number, run in enumerate(self.runs)))
        ]
        partitions = {
            _prefix(number) + topic: count
            for number, run in enumerate(self.runs)
            for topic, count in run.topic_partitions.items()
        }
        return Run(
            plan=Plan(stages=tuple(replace(stage, index=at, number=at) for at, stage in enumerate(stages))),
            topic_partitions=partitions,
            batches=batches,
            errors=self.runs[0].errors,
            dead_letter_topic=None,
        )

    def parts(self, observed: Observed, recorded: Sequence[MicroBatch]) -> Iterator[tuple[Observed, list[MicroBatch]]]:
        """What was observed of each case, and its part of the recorded batches."""
        first = 0
        for number, run in enumerate(self.runs):
            prefix, count = _prefix(number), len(run.plan.stages)
            topics = {t.removeprefix(prefix): found for t, found in observed.topics.items() if t.startswith(prefix)}
            stores = {
                (stage - first, task): found
                for (stage, task), found in observed.stores.items()
                if first <= stage < first + count
            }
            batches = [replace(batch, records=_without(prefix, batch)) for batch in recorded]
            yield Observed(topics, stores, error=observed.error), batches
            first += count


def _prefix(number: int) -> str:
    return f"c{number:02}-"


def _renamed_stage(stage: Stage, prefix: str) -> Stage:
    return replace(stage, nodes=tuple(_renamed(node, prefix) for node in stage.nodes))


def _renamed(node: AnyNode, prefix: str) -> AnyNode:
    match node:
        case Source():
            return replace(node, topics=tuple(prefix + topic for topic in node.topics))
        case TopicSink():
            return replace(node, topic=prefix + node.topic)
        case ExchangeSink():
            return replace(node, exchange=prefix + node.exchange)
        case _:
            return node


def _parts(run: Run, prefix: str) -> list[tuple[RecordBatch, ...]]:
    batches = [batch.records for batch in run.batches if batch.records]
    return [tuple(_with_topic(part, prefix + part.topic) for part in records) for records in batches]


def _without(prefix: str, batch: MicroBatch) -> tuple[RecordBatch, ...]:
    mine = (part for part in batch.records if part.topic.startswith(prefix))
    return tuple(_with_topic(part, part.topic.removeprefix(prefix)) for part in mine)


def _with_topic(part: RecordBatch, topic: str) -> RecordBatch:
    return RecordBatch(topic, part.partition, part.offsets, part.timestamps_ms, part.keys, part.values, part.headers)
