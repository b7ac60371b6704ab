"""The recorded cases on real Spark and Kafka: `make check-spark`, or `python -m tests.conformance.on_spark [options]`.

Random cases (`--random N`, 200) and all curated ones of families with several stages (`--curated N` for fewer), each
with 1 and with 4 partitions, in random cuts. Of every fifth case the driver restarts, of some on an empty disk, and a
Python worker gets SIGKILL. `--part K/N` runs a part of them. Two comparisons are made:

- with the recording of Kafka Streams: one partition, no wall clock, and the stream made the batches that were meant;
- with the same tasks in one process, which run the batches that the stream has recorded: outputs per topic and key, and
  every byte of every store.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down
from deltaworks.testing.recorded import MicroBatch
from deltaworks.testing.topics import RawRecord
from tests.conformance.cuts import Cut, arbitrary_cut
from tests.conformance.data import Case, curated, random
from tests.conformance.hosts import Observed
from tests.conformance.micro_batches import CaseInMicroBatches
from tests.conformance.streaming import Disturbances, SparkHost, spread
from tests.conformance.streaming_task import task_host
from tests.live_stack import LiveStack, own_settings, reachable

PARTITIONS = (1, 4)
_DISTURBED = 5
"""One case in so many."""


class Results:
    """Tried and equal, per family."""

    def __init__(self) -> None:
        self.tried: Counter[tuple[str, str]] = Counter()
        self.equal: Counter[tuple[str, str]] = Counter()
        self.differences: list[str] = []

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


def run(host: SparkHost, cases: Sequence[Case], results: Results, *, disturbed: int = _DISTURBED) -> None:
    """Every case with each number of partitions."""
    for number, case in enumerate(cases):
        given = CaseInMicroBatches(case)
        if given.not_comparable:
            continue
        for partitions in PARTITIONS:
            rng = Random(f"{case['name']} {partitions}")
            # Only with one partition the recording counts, so only then the order has to be the recorded one.
            cut = given.trace.random_cut(rng) if partitions == 1 else _any_cut(given, rng)
            batches = [at for at, batch in enumerate(cut.batches) if batch.records]
            if not batches:
                continue
            disturbances = _disturbances(batches, rng) if number % disturbed == 0 and not _forgets(given, cut) else None
            try:
                _one(host, given, cut, partitions, disturbances, rng, results)
            except Exception as error:
                results.note(case["family"], "ran", case["name"], f"{type(error).__name__}: {error}")


def _any_cut(given: CaseInMicroBatches, rng: Random) -> Cut:
    assert given.plan is not None
    return arbitrary_cut(given.case, given.plan, rng)


def _forgets(given: CaseInMicroBatches, cut: Cut) -> bool:
    return given.run(cut, Random(0)).forgets


def _disturbances(batches: Sequence[int], rng: Random) -> Disturbances:
    restart = rng.choice(batches)
    lost = frozenset({restart}) if rng.random() < 0.5 else frozenset[int]()
    return Disturbances(restarts=frozenset({restart}), lost_disks=lost, kills=frozenset({rng.choice(batches)}))


def _one(
    host: SparkHost,
    given: CaseInMicroBatches,
    cut: Cut,
    partitions: int,
    disturbances: Disturbances | None,
    rng: Random,
    results: Results,
) -> None:
    case, asked = given.case, given.run(cut, rng)
    if partitions > 1:
        asked = spread(asked, partitions)
    extra = {row["topic"] for row in case["expected"].get("outputs", ())} - asked.topic_partitions.keys()
    observed, recorded = host.run(asked, sorted(extra), disturbances)
    local = task_host(rng, failures=0.0)(replace(asked, batches=recorded, restarts=lambda batch, task: False))
    # What others have written to a topic that it also writes cannot be told from its own.
    local.topics = {topic: sent for topic, sent in local.topics.items() if topic not in asked.topic_partitions}
    name = f"{case['name']} with {partitions} partitions"
    results.note(case["family"], f"in process, {partitions}", name, _different(observed, local))
    feeds_itself = not asked.topic_partitions.keys().isdisjoint(asked.plan.sink_topics)
    comparable = not feeds_itself and not _depends_on_the_clock(case)
    if partitions == 1 and comparable and _as_meant(cut.batches, recorded):
        if observed.error is not None:
            observed.error = replace(observed.error, batch_id=len(cut.batches) - 1)
        found = given.compare(cut, observed)
        results.note(case["family"], "recording", name, found[0] if found else None)


def _different(observed: Observed, local: Observed) -> str | None:
    """Per topic and key the records; per task and store the entries. Times of 0 are 1 in a real topic."""
    if (observed.error is None) != (local.error is None):
        return f"error: {observed.error}, in process: {local.error}"
    ours, theirs = _per_key(observed), _per_key(local)
    if ours != theirs:
        return f"outputs: {ours}, in process: {theirs}"
    if observed.error is not None:  # the failed batch may be in the local stores until it is undone
        return None
    stores = {task: stores for task, stores in observed.stores.items() if stores}
    others = {task: stores for task, stores in local.stores.items() if stores}
    return None if stores == others else f"stores: {stores}, in process: {others}"


def _per_key(observed: Observed) -> dict[tuple[str, bytes | None], list[RawRecord]]:
    found: dict[tuple[str, bytes | None], list[RawRecord]] = {}
    for topic, records in observed.topics.items():
        for record in records:
            found.setdefault((topic, record.key), []).append(replace(record, timestamp_ms=max(record.timestamp_ms, 1)))
    return found


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
    cases = [
        *_sample(chosen, int(option("--curated", "9999"))),
        *_sample(list(random()), int(option("--random", "200"))),
    ]
    results, begun = Results(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-cases-") as folder:
        stack = LiveStack(own_settings(reachable(Path(folder))))
        try:
            stack.start("kafka")
            host = SparkHost(_small(stack.settings), Path(folder) / "cases", Random(part))
            run(host, cases[part - 1 :: parts], results)
            host.close()
        finally:
            down(stack.settings)
    results.show()
    print(f"{host.restarted} restarts, {host.killed} workers killed, {time.monotonic() - begun:.0f} s")
    return 1 if results.differences else 0


def _small(settings: Settings) -> Settings:
    return replace(settings, driver_memory="900m", cores=2)


def _sample(cases: list[Case], count: int) -> list[Case]:
    """Evenly over all of them."""
    return cases if count >= len(cases) else [cases[at * len(cases) // count] for at in range(count)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
