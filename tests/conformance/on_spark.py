"""The recorded cases on real Spark and Kafka: `make check-spark`, or `python -m tests.conformance.on_spark [options]`.

Random cases (`--random N`, 210) and all curated ones of families with several stages (`--curated N` for fewer), each
with 1 and with 4 partitions, in random cuts. Of every tenth case, which has a query of its own, the driver restarts, of
some on an empty disk, and a Python worker gets SIGKILL; of the others `--together N` (16) share a query. `--part K/N`
runs a part of them, `--names A,B` certain ones. Two comparisons are made:

- with the recording of Kafka Streams: one partition, no wall clock, and the stream made the batches that were meant;
- with the same tasks in one process, which run the batches that the stream has recorded: outputs per topic and key, and
  every byte of every store. With 4 partitions, keys that are in another order are compared without it, and counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down
from deltaworks.testing.recorded import MicroBatch
from deltaworks.testing.topics import RawRecord
from tests.conformance.cuts import Cut, arbitrary_cut
from tests.conformance.data import Case, curated, random
from tests.conformance.hosts import Observed, Run
from tests.conformance.merging import Merged, can_be_merged
from tests.conformance.micro_batches import CaseInMicroBatches
from tests.conformance.streaming import Disturbances, SparkHost, spread
from tests.conformance.streaming_task import task_host
from tests.support.live_stack import LiveStack, reachable

PARTITIONS = (1, 4)
_DISTURBED = 10
"""One case in so many."""


class Results:
    """Tried and equal, per family."""

    def __init__(self) -> None:
        self.tried: Counter[tuple[str, str]] = Counter()
        self.equal: Counter[tuple[str, str]] = Counter()
        self.differences: list[str] = []
        self.reordered = 0
        """Cases in which several tasks wrote one key, and took turns otherwise than in one process."""

    def note(self, family: str, what: str, name: str, difference: str | None) -> None:
        """One comparison."""
        self.tried[family, what] += 1
        self.equal[family, what] += difference is None
        if difference is not None:
            self.differences.append(f"{name}, {what}: {difference}")
            print(self.differences[-1][:2_000], flush=True)

    def show(self) -> None:
        """Prints the table."""
        columns = sorted({what for _, what in self.tried})
        print(f"{'tried and equal':32}", *(f"{what:>24}" for what in columns))
        for family in [*sorted({family for family, _ in self.tried}), "all"]:
            cells = [self._cell(family, what) for what in columns]
            print(f"{family:32}", *(f"{cell:>24}" for cell in cells))

    def _cell(self, family: str, what: str) -> str:
        def count(of: Counter[tuple[str, str]]) -> int:
            return sum(n for (each, kind), n in of.items() if kind == what and family in (each, "all"))

        return f"{count(self.equal)} of {count(self.tried)}"


def several_stages(cases: Sequence[Case]) -> list[Case]:
    """All cases of families in which some topology has more than one stage."""
    stages = {case["name"]: each.plan for case in cases if (each := CaseInMicroBatches(case)).plan is not None}
    families = {c["family"] for c in cases if (plan := stages.get(c["name"])) and len(plan.stages) > 1}
    return [case for case in cases if case["family"] in families and case["name"] in stages]


@dataclass(frozen=True)
class Asked:
    """A case in one cut, with a number of partitions."""

    given: CaseInMicroBatches
    cut: Cut
    run: Run
    partitions: int

    @property
    def name(self) -> str:
        return f"{self.given.case['name']} with {self.partitions} partitions"

    @property
    def fails(self) -> bool:
        """It ends with an error."""
        return "error" in self.given.case["expected"]


def asked(case: Case, partitions: int, rng: Random) -> Asked | None:
    """None: it cannot be compared, has no records, or counts in attributes of a processor, which stay behind."""
    given = CaseInMicroBatches(case)
    if given.not_comparable:
        return None
    # Only with one partition the recording counts, so only then the order has to be the recorded one.
    cut = given.trace.random_cut(rng) if partitions == 1 else _any_cut(given, rng)
    run = given.run(cut, rng)
    if run.forgets or not any(batch.records for batch in run.batches):
        return None
    return Asked(given, cut, run if partitions == 1 else spread(run, partitions), partitions)


def run_all(host: SparkHost, cases: Sequence[Case], results: Results, together: int) -> None:
    """Every case with each number of partitions; those that can be merged, so many in one query."""
    waiting: dict[int, list[Asked]] = {partitions: [] for partitions in PARTITIONS}
    for number, case in enumerate(cases):
        for partitions in PARTITIONS:
            rng = Random(f"{case['name']} {partitions}")
            each = asked(case, partitions, rng)
            if each is None:
                continue
            if number % _DISTURBED == 0 or each.fails or not can_be_merged(each.run):
                batches = [at for at, batch in enumerate(each.run.batches) if batch.records]
                _try(host, [each], _disturbances(batches, rng) if number % _DISTURBED == 0 else None, results)
                continue
            waiting[partitions].append(each)
            if len(waiting[partitions]) == together:
                _try(host, waiting[partitions], None, results)
                waiting[partitions] = []
        if number % 10 == 9:
            print(f"{number + 1} of {len(cases)} cases", flush=True)
    for group in waiting.values():
        if group:
            _try(host, group, None, results)


def _try(host: SparkHost, group: Sequence[Asked], disturbances: Disturbances | None, results: Results) -> None:
    try:
        _compare(host, group, disturbances, results)
    except Exception as error:
        for each in group:
            results.note(each.given.case["family"], "ran", each.name, f"{type(error).__name__}: {error}")


def _disturbances(batches: Sequence[int], rng: Random) -> Disturbances:
    restart = rng.choice(batches)
    lost = frozenset({restart}) if rng.random() < 0.5 else frozenset[int]()
    return Disturbances(restarts=frozenset({restart}), lost_disks=lost, kills=frozenset({rng.choice(batches)}))


def _compare(host: SparkHost, group: Sequence[Asked], disturbances: Disturbances | None, results: Results) -> None:
    merged = Merged([each.run for each in group])
    run = merged.run if len(group) > 1 else group[0].run
    known = {row["topic"] for each in group for row in each.given.case["expected"].get("outputs", ())}
    extra = [] if len(group) > 1 else sorted(known - run.topic_partitions.keys())
    # Of a single case, the stages are operators of their own; of many, one operator runs all.
    observed, recorded = host.run(run, extra, disturbances, shards=2 if len(group) == 1 else 1)
    local = task_host(Random(0), failures=0.0)(replace(run, batches=recorded, restarts=lambda batch, task: False))
    _bring_forward(observed, local, run, recorded)
    # What others have written to a topic that it also writes cannot be told from its own.
    local.topics = {topic: sent for topic, sent in local.topics.items() if topic not in run.topic_partitions}
    if disturbances is not None and disturbances.lost_disks:
        # What has had no record since has no local store.
        local.stores = {task: stores for task, stores in local.stores.items() if observed.stores.get(task)}
    if len(group) == 1:
        _note(group[0], observed, local, recorded, results)
        return
    there, here = merged.parts(observed, recorded), merged.parts(local, recorded)
    for each, (found, batches), (wanted, _) in zip(group, there, here, strict=True):
        _note(each, found, wanted, batches, results)


def _bring_forward(observed: Observed, local: Observed, run: Run, recorded: Sequence[MicroBatch]) -> None:
    """A local store may lack the last batch of its task, and nothing else: Spark's state has it."""
    left = {task for task, found in observed.stores.items() if found != local.stores.get(task, {})}
    for count in range(len(recorded) - 1, -1, -1) if observed.error is None else ():
        if not left:
            return
        batches = recorded[:count]
        before = task_host(Random(0), failures=0.0)(replace(run, batches=batches, restarts=lambda batch, task: False))
        for task in sorted(left):
            if before.stores.get(task, {}) != local.stores.get(task, {}):  # it lacks that batch, or is wrong
                left.discard(task)
                if observed.stores[task] == before.stores.get(task, {}):
                    observed.stores[task] = local.stores.get(task, {})


def _note(each: Asked, observed: Observed, local: Observed, recorded: Sequence[MicroBatch], results: Results) -> None:
    case = each.given.case
    difference = _different(each, observed, local)
    results.note(case["family"], f"in process, {each.partitions}", each.name, difference)
    results.reordered += difference is None and observed.error is None and _per_key(observed) != _per_key(local)
    feeds_itself = not each.run.topic_partitions.keys().isdisjoint(each.run.plan.sink_topics)
    comparable = each.partitions == 1 and not feeds_itself and not _depends_on_the_clock(case)
    if comparable and _as_meant(each.cut.batches, recorded):
        if observed.error is not None:
            observed.error = replace(observed.error, batch_id=len(each.cut.batches) - 1)
        found = each.given.compare(each.cut, observed)
        results.note(case["family"], "recording", each.name, found[0] if found else None)


def _any_cut(given: CaseInMicroBatches, rng: Random) -> Cut:
    assert given.plan is not None
    return arbitrary_cut(given.case, given.plan, rng)


def _different(each: Asked, observed: Observed, local: Observed) -> str | None:
    """Per topic and key the records; per task and store the entries. Times of 0 are 1 in a real topic.

    A batch that fails is not recorded, so that in one process nothing fails.
    """
    if (observed.error is not None) is not each.fails:
        return f"error: {observed.error}"
    ours, theirs = _per_key(observed), _per_key(local)
    if ours != theirs and (each.partitions == 1 or _sorted(ours) != _sorted(theirs)):
        return f"outputs: {ours}, in process: {theirs}"
    if observed.error is not None:  # nobody has waited for the local stores
        return None
    stores = {task: stores for task, stores in observed.stores.items() if stores}
    others = {task: stores for task, stores in local.stores.items() if stores}
    return None if stores == others else f"stores: {stores}, in process: {others}"


_PerKey = dict[tuple[str, bytes | None], list[RawRecord]]


def _per_key(observed: Observed) -> _PerKey:
    found: _PerKey = {}
    for topic, records in observed.topics.items():
        for record in records:
            found.setdefault((topic, record.key), []).append(replace(record, timestamp_ms=max(record.timestamp_ms, 1)))
    return found


def _sorted(found: _PerKey) -> _PerKey:
    """Where a key changes on the way, several tasks write it, and their transactions have no order."""
    return {
        at: sorted(records, key=lambda record: (record.timestamp_ms, record.value or b"", record.headers))
        for at, records in found.items()
    }


def _as_meant(meant: Sequence[MicroBatch], recorded: Sequence[MicroBatch]) -> bool:
    def counts(batches: Sequence[MicroBatch]) -> Iterator[dict[str, int]]:
        for batch in batches:
            if batch.records:
                yield {part.topic: len(part.keys) for part in sorted(batch.records, key=lambda part: part.topic)}

    return list(counts(meant)) == list(counts(recorded))


def _depends_on_the_clock(case: Case) -> bool:
    """What a case's clock says is not what Spark's says; and a real topic has no time 0."""
    config, text = case.get("config", {}), str(case["spec"])
    times = [given["timestamp"] for given in case["inputs"] if "timestamp" in given]
    clocked = any("advance_wall_clock_ms" in given for given in case["inputs"])
    return clocked or 0 in times or bool(config.get("emit_interval_ms")) or "wall_clock" in text or "metadata" in text


def main(arguments: list[str]) -> int:
    def option(name: str, default: str) -> str:
        return arguments[arguments.index(name) + 1] if name in arguments else default

    part, parts = map(int, option("--part", "1/1").split("/"))
    chosen: list[dict[str, Any]] = several_stages(list(curated()))
    cases = _sample(chosen, int(option("--curated", "9999")))
    cases += _sample(list(random()), int(option("--random", "210")))
    if "--names" in arguments:
        wanted = set(option("--names", "").split(","))
        cases = [case for case in [*curated(), *random()] if case["name"] in wanted]
    results, begun = Results(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-cases-") as folder:
        stack = LiveStack(own_settings(reachable(Path(folder))))
        try:
            stack.start("kafka")
            host = SparkHost(_small(stack.settings), Path(folder) / "cases", Random(part))
            run_all(host, cases[part - 1 :: parts], results, int(option("--together", "16")))
            host.close()
        finally:
            down(stack.settings)
    results.show()
    print(f"{results.reordered} cases whose keys several tasks wrote, in another order than in process")
    print(f"{host.restarted} restarts, {host.killed} workers killed, {time.monotonic() - begun:.0f} s")
    return 1 if results.differences else 0


def _small(settings: Settings) -> Settings:
    return replace(settings, driver_memory="900m", cores=2)


def _sample(cases: list[Case], count: int) -> list[Case]:
    """Evenly over all of them."""
    return cases if count >= len(cases) else [cases[at * len(cases) // count] for at in range(count)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
