"""The recorded cases, replayed from a later batch: `python -m tests.hosts.replayed_from_later [--every N]`.

What a replay sends with times from a moment on is what the stream has sent, wherever `lookback` says that it may begin
later; the moment is any.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from deltaworks import Plan
from deltaworks.runtime.replay.steps import Step, begun_later
from deltaworks.topology.lookback import NeedsAllHistory, lookback_ms, tables_from_the_beginning
from deltaworks.topology.nodes import ExtractedTopicSink, TopicSink
from tests.conformance.data import Case
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replayed_cases import cases, run_of, sent_records, streamed_case
from tests.hosts.replays import replay_host, steps_of
from tests.support.in_memory import temporary_folder


@dataclass
class Tried:
    """What was tried, and what was wrong."""

    moments: int = 0
    """Topics and moments."""
    left_out: int = 0
    """Records that were not read again."""
    compared: int = 0
    """Records that were sent."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Kinds of operators that need all history."""
    wrong: dict[str, str] = field(default_factory=dict)


def try_case(case: Case, partitions: int, rng: Random, tried: Tried) -> str | None:
    """What a replay from a later batch has that the stream has not; None: nothing, or nothing was left out."""
    run = run_of(case, partitions, rng)
    if run is None:
        return None
    plan = run.plan
    whole = tables_from_the_beginning(plan, plan.source_topics)
    reaches: dict[int, list[str]] = defaultdict(list)
    for topic, back_ms in _reaches(plan, whole, tried).items():
        reaches[back_ms].append(topic)
    if not reaches:
        return None
    with temporary_folder("deltaworks-case-") as home:
        stream = streamed_case(run, Path(home))
        assert stream.kafka is not None
        steps = steps_of(stream)
        stream.worker.close()
        for back_ms, topics in reaches.items():
            for number, from_ms in enumerate(_moments(stream.kafka, plan, rng)):
                shorter = _begun(stream.kafka, steps, from_ms - back_ms, whole)
                left_out = sum(step.records for step in steps) - sum(step.records for step in shorter)
                if left_out == 0:
                    continue
                root = Path(home) / f"{back_ms}-{number}"
                with sent_records() as sent:
                    replay_host(stream, root, max_records=rng.choice([1, 40, 1_000])).run(shorter)
                for topic in topics:
                    expected = Counter(
                        each for each in stream.kafka.sent.get(topic, ()) if each.timestamp_ms >= from_ms
                    )
                    found = Counter({e: n for (t, e), n in sent.items() if t == topic and e.timestamp_ms >= from_ms})
                    tried.moments += 1
                    tried.compared += expected.total()
                    if found != expected:
                        return (
                            f"{topic} from {from_ms} on, {back_ms} ms back, {left_out} left out: "
                            f"more {found - expected}, less {expected - found}"
                        )
                tried.left_out += left_out
    return None


def _reaches(plan: Plan, whole: Iterable[str], tried: Tried) -> dict[str, int]:
    """Topic -> how far back what it gets depends on; those without an answer are left out."""
    found: dict[str, int] = {}
    sinks = [node for node in plan.nodes if isinstance(node, TopicSink)]
    if any(isinstance(node, ExtractedTopicSink) for node in plan.nodes):
        return {}
    for topic in plan.sink_topics:
        try:
            mine = [sink for sink in sinks if sink.topic == topic]
            found[topic] = lookback_ms(plan, mine, dead_letters=False, whole=frozenset(whole))
        except NeedsAllHistory as reason:
            tried.reasons[str(reason)[:40]] += 1
    return found


def _moments(kafka: MemoryKafka, plan: Plan, rng: Random) -> list[int]:
    times = sorted({record.timestamp_ms for topic in plan.source_topics for _, _, record in kafka.read(topic)})
    chosen = rng.sample(times, min(3, len(times)))
    return [each + rng.choice([0, 0, 1, -1]) for each in chosen]


def _begun(kafka: MemoryKafka, steps: Sequence[Step], since_ms: int, whole: Iterable[str]) -> list[Step]:
    """From the first batch on that has a record of the time or later."""
    first = next(
        (
            step.batch
            for step in steps
            for each in step.ranges
            if each.topic not in whole
            and any(
                record.timestamp_ms >= since_ms
                for record in kafka.records[each.topic][each.partition][each.start : each.stop]
            )
        ),
        steps[-1].batch + 1,
    )
    return list(begun_later(steps, first, frozenset(whole)))


def try_all(chosen: Iterable[Case], report: Callable[[str], None] = lambda line: None) -> Tried:
    """Each with 1 partition and with 3."""
    tried = Tried()
    for number, case in enumerate(chosen):
        for partitions in (1, 3):
            name = f"{case['name']}, {partitions}"
            try:
                wrong = try_case(case, partitions, Random(f"later {name}"), tried)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong is not None:
                tried.wrong[name] = wrong
                report(f"{name}: {wrong[:1000]}")
        if number % 50 == 49:
            report(f"{number + 1} cases, {tried.moments} moments, {tried.compared} records")
    return tried


if __name__ == "__main__":
    begun = time.monotonic()
    chosen = cases(int(sys.argv[sys.argv.index("--every") + 1]) if "--every" in sys.argv else 1)
    tried = try_all(chosen, print)
    print(
        f"{len(chosen)} cases, {tried.moments} moments, {tried.left_out:,} records left out, {tried.compared:,} sent "
        f"records compared, {len(tried.wrong)} wrong, {time.monotonic() - begun:.0f} s"
    )
    for reason, count in tried.reasons.most_common():
        print(f"  needs all history: {reason} ({count})")
    sys.exit(1 if tried.wrong else 0)
