"""Cases in micro-batches.

A case was recorded one input at a time: each was processed to its end before the next. A micro-batch brings several,
and each stage takes all of its records at once, in the order of the order contract. `Trace` finds out which consecutive
inputs may share a batch because every stage then still takes its records in the recorded order; then the results have
to be the recorded ones. It looks at what each stage read, record by record, when every input had a batch of its own:
for a stage with one partition at hand the order stays by itself, for others the lowest head must go first.

Alone stays an input
- that leads to an error, and an advance of the wall clock (a tick);
- that the topology has written itself, into a topic that it reads;
- where commits show: with a record cache;
- where records go in a cycle: with a foreign-key join;
- where two stages write to one topic: what the later stage writes comes after all of the earlier one.

Records of global tables are applied before all others of their batch, so they can only come first in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from deltaworks import Plan
from deltaworks.errors import StreamsError
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.testing.recorded import MicroBatch, Recording, Restarts, run_recorded
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.stages import Stage
from tests.conformance.hosts import noting
from tests.conformance.inputs import Case, errors_of, initial_wall_clock_ms, record_of


@dataclass(frozen=True)
class Arrival:
    """A record at its place in a topic of one partition."""

    step: int
    """Of the input in the case."""
    topic: str
    offset: int
    record: RawRecord
    fed_back: bool = False
    """The topology has written it itself, into a topic that it reads. A host whose topics do that by themselves has to
    leave it out."""


@dataclass(frozen=True)
class Tick:
    """The wall clock has come to a time."""

    step: int
    wall_clock_ms: int


Step = Arrival | Tick


def steps(case: Case) -> list[Step]:
    """The inputs of a case; what the topology feeds back to itself is not among them, see `Trace`."""
    now_ms = initial_wall_clock_ms(case)
    found: list[Step] = []
    offsets: dict[str, int] = {}
    for number, given in enumerate(case["inputs"]):
        if "advance_wall_clock_ms" in given:
            now_ms += given["advance_wall_clock_ms"]
            found.append(Tick(number, now_ms))
        else:
            topic = given["topic"]
            found.append(Arrival(number, topic, offsets.get(topic, 0), record_of(case, given)))
            offsets[topic] = offsets.get(topic, 0) + 1
    return found


@dataclass(frozen=True)
class Cut:
    """Micro-batches, and the steps that each stands for. The first is an empty tick: the start of the clock."""

    batches: list[MicroBatch]
    steps: list[tuple[Step, ...]]

    @property
    def fed_back(self) -> frozenset[int]:
        """Batches whose only record the topology has written itself."""
        return frozenset(
            number
            for number, steps in enumerate(self.steps)
            if any(isinstance(step, Arrival) and step.fed_back for step in steps)
        )


def arbitrary_cut(case: Case, plan: Plan, rng: Random) -> Cut:
    """Any cut: to compare two hosts with each other, not with the recording."""
    runs: list[list[Step]] = []
    for step in Trace(case, plan).steps:
        if runs and not _stands_alone(step) and not _stands_alone(runs[-1][-1]) and rng.random() < 0.7:
            runs[-1].append(step)
        else:
            runs.append([step])
    return _cut(case, runs)


def random_cut(case: Case, plan: Plan, rng: Random) -> Cut:
    """A cut with the recorded results; for several cuts of a case make the `Trace` once."""
    return Trace(case, plan).random_cut(rng)


def random_restarts(case: Case, rng: Random) -> Restarts:
    """Restarts that change nothing: none where a processor of the case keeps something in its own fields."""
    share = 0.0 if forgets(case) else rng.choice([0.0, 0.2, 0.6])
    seed = rng.random()
    return lambda batch_id, task: Random(f"{seed} {batch_id} {task}").random() < share


def topic_partitions(case: Case, plan: Plan) -> dict[str, int]:
    """One for every topic that the topology reads."""
    given = {step["topic"] for step in case["inputs"] if "topic" in step}
    read = {topic for topic in given if any(stage.reads(topic) for stage in plan.stages)}
    return dict.fromkeys(sorted({*plan.source_topics, *read}), 1)


def is_read(plan: Plan, topic: str) -> bool:
    """Some stage reads a topic."""
    return any(stage.reads(topic) for stage in (*plan.global_stages, *plan.stages))


class Trace:
    """What every stage of a case reads, step by step."""

    def __init__(self, case: Case, plan: Plan) -> None:
        """
        Args:
            plan: Its topology; it is run.
        """
        self.case = case
        self.plan = plan
        self.failing: int | None = None
        """Position of the step that leads to an error; nothing comes after it."""
        self.steps, recording = self._with_feedback()
        self.alone = case.get("config", {}).get("cache_max_bytes", 0) > 0 or bool(plan.loops) or _shared(recording)
        """No two inputs may share a batch."""
        self._read = [self._read_by(stage, recording) for stage in plan.stages]
        self._globals = {topic for stage in plan.global_stages for topic in stage.topics}

    def random_cut(self, rng: Random) -> Cut:
        """A cut with the recorded results."""
        return _cut(self.case, list(self._runs(rng)))

    def single(self) -> Cut:
        """Each step in a batch of its own."""
        return _cut(self.case, [[step] for step in self.steps])

    def may_share_a_batch(self, first: int, last: int) -> bool:
        """Whether these steps and those between them, by position, lead to the recorded results in one batch."""
        if first == last:
            return True
        span = range(first, last + 1)
        if self.alone or self.failing in span or any(_stands_alone(self.steps[at]) for at in span):
            return False
        are_global = [self._is_global(at) for at in span]
        return are_global == sorted(are_global, reverse=True) and all(
            _keeps_order([read[at] for at in span], _extracts_times(stage))
            for stage, read in zip(self.plan.stages, self._read, strict=True)
        )

    def _runs(self, rng: Random) -> Iterator[list[Step]]:
        first = 0
        while first < len(self.steps):
            wanted = min(rng.choice([1, 2, 3, 5, 8, 100]), len(self.steps) - first)
            last = first
            while last - first + 1 < wanted and self.may_share_a_batch(first, last + 1):
                last += 1
            yield self.steps[first : last + 1]
            first = last + 1

    def _is_global(self, at: int) -> bool:
        step = self.steps[at]
        return isinstance(step, Arrival) and step.topic in self._globals

    def _run(self, given: Sequence[Step]) -> Recording:
        """Each step in a batch of its own."""
        single = _cut(self.case, [[step] for step in given]).batches
        partitions, errors = topic_partitions(self.case, self.plan), errors_of(self.case)
        taken: list[MicroBatch] = []
        try:
            return run_recorded(self.plan, partitions, noting(single, taken), errors=errors)
        except StreamsError:
            self.failing = len(taken) - 2
            return run_recorded(self.plan, partitions, single[: len(taken) - 1], errors=errors)

    def _with_feedback(self) -> tuple[list[Step], Recording]:
        """The steps, each with the records behind it that the topology then writes into topics which it reads."""
        given = steps(self.case)
        recording = self._run(given)
        fed = {topic for topic in _written(recording) if is_read(self.plan, topic)}
        if not fed:
            return given, recording
        found: list[Step] = []
        read = dict.fromkeys(fed, 0)
        arrived: dict[str, int] = {}
        for step in given:
            found.append(_moved(step, arrived))
            while True:
                written = _written(self._run(found))
                heads = [
                    (written[topic][at].timestamp_ms, topic)
                    for topic, at in read.items()
                    if at < len(written.get(topic, ()))
                ]
                if not heads:
                    break
                _, topic = min(heads)
                found.append(_moved(Arrival(step.step, topic, 0, written[topic][read[topic]], fed_back=True), arrived))
                read[topic] += 1
        return found, self._run(found)

    def _read_by(self, stage: Stage, recording: Recording) -> list[dict[str, list[int]]]:
        """Per step: topic or exchange -> timestamps, in the order of the partition."""
        found: list[dict[str, list[int]]] = []
        for position, step in enumerate(self.steps):
            read: dict[str, list[int]] = {}
            if isinstance(step, Arrival) and stage.reads(step.topic):
                read[step.topic] = [step.record.timestamp_ms]
            hopped = recording.exchanges[position + 1] if position + 1 < len(recording.exchanges) else {}
            for records in hopped.get((stage.index, 0), ()):
                read.setdefault(records.topic, []).extend(records.timestamps_ms)
            found.append(read)
        return found


def _written(recording: Recording) -> dict[str, list[RawRecord]]:
    written: dict[str, list[RawRecord]] = {}
    for output in recording.tasks.values():
        for topic, records in output.topics.items():
            written.setdefault(topic, []).extend(records)
    return written


def _keeps_order(reads: Sequence[Mapping[str, Sequence[int]]], extracts_times: bool) -> bool:
    """Taken together, records come in the order in which they come step by step."""
    names = sorted({name for read in reads for name in read})
    if len(names) < 2:
        return True
    if extracts_times:
        return False
    one_by_one = [each for read in reads for each in lowest_head_first(read)]
    return one_by_one == lowest_head_first(
        {name: [at for read in reads for at in read.get(name, ())] for name in names}
    )


def lowest_head_first(partitions: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """The order contract, word by word: `(topic, timestamp)` of the records of a batch."""
    left = {name: list(times) for name, times in partitions.items()}
    taken: list[tuple[str, int]] = []
    while heads := [(times[0], name) for name, times in left.items() if times]:
        time_ms, name = min(heads)
        left[name].pop(0)
        taken.append((name, time_ms))
    return taken


def _cut(case: Case, runs: Sequence[Sequence[Step]]) -> Cut:
    """Of consecutive steps."""
    now_ms = initial_wall_clock_ms(case)
    found = [MicroBatch(now_ms, (), tick=True)]
    for run in runs:
        match run:
            case [Tick(wall_clock_ms=now_ms)]:
                found.append(MicroBatch(now_ms, (), tick=True))
            case _:
                found.append(MicroBatch(now_ms, _records([step for step in run if isinstance(step, Arrival)])))
    return Cut(found, [(), *map(tuple, runs)])


def forgets(case: Case) -> bool:
    processors = {node["processor"][0] for node in case["spec"]["nodes"] if "processor" in node}
    return not processors.isdisjoint(("wall_clock_count", "cancel_after"))


def _stands_alone(step: Step) -> bool:
    return isinstance(step, Tick) or step.fed_back


def _moved(step: Step, arrived: dict[str, int]) -> Step:
    """With the next offset of its topic."""
    if isinstance(step, Tick):
        return step
    offset = arrived[step.topic] = arrived.get(step.topic, -1) + 1
    return replace(step, offset=offset)


def _extracts_times(stage: Stage) -> bool:
    return any(source.timestamp_extractor is not None for source in stage.sources)


def _shared(recording: Recording) -> bool:
    """Two stages write to one topic; all dead letters go to one."""
    written: dict[str, set[int]] = {}
    for (stage, _), output in recording.tasks.items():
        for topic in output.topics:
            written.setdefault(topic, set()).add(stage)
        if output.dead_letters:
            written.setdefault("", set()).add(stage)
    return any(len(stages) > 1 for stages in written.values())


def _records(arrivals: Sequence[Arrival]) -> tuple[RecordBatch, ...]:
    by_topic: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        by_topic.setdefault(arrival.topic, []).append(arrival)
    return tuple(
        RecordBatch(
            topic,
            0,
            [each.offset for each in found],
            [each.record.timestamp_ms for each in found],
            [each.record.key for each in found],
            [each.record.value for each in found],
            _headers(found),
        )
        for topic, found in by_topic.items()
    )


def _headers(arrivals: Sequence[Arrival]) -> list[Headers] | None:
    headers = [each.record.headers for each in arrivals]
    return headers if any(headers) else None
