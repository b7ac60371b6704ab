"""Safeguards of a stream on a cluster that are taken away, one at a time: the checks must turn red.

A check that stays green although its safeguard is gone would be worth nothing. Checks that no other part of
`make check-cluster` runs have to be green first, with all safeguards.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence

from deltaworks import exits
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.object_store import _TOKEN
from deltaworks.runtime.state.recovery import RecoveryAction
from tests.support.object_stores import Fault
from tests.system.kills.cluster import RATE, STARTS, Check
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

_FAILURES = 20
"""Of tasks: more than there are, so that some of them move and come back."""
_BATCH_S = 120.0
_COME_AT_LEAST = 16 + _FAILURES // 2
"""So many stores are filled by the two starts that compare, and by half of the failures."""
_ELSEWHERE = {
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "100",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "100",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "5s",
}
"""Spark does not try a task again where it has failed."""
_LOSSES: tuple[tuple[Fault, float], ...] = (
    ("answer lost", 0.03),
    ("failed after all", 0.03),
    ("refused", 0.02),
    ("slow down", 0.02),
    ("cut off", 0.02),
)
"""What happens to a request to the store, and how often."""
_LOST_CONDITIONAL = 0.25
"""How often the answer to a put with a condition is lost: there are few of them."""
_HELD_AT = "delta.before_commit:order_counts"

Scenario = Callable[[Check, str | None], bool]
"""Runs the stream with a mutation, or with none; whether everything was as it should be."""


def late(check: Check, mutation: str | None) -> bool:
    """A driver waits before a commit, another home takes over and goes on, then the first one commits."""
    with check.stage("late", cores=2) as stage:
        homes = (stage.settings, check.other_home(stage))
        first, second = (StreamUnderKills(home, stage.cluster.folder, mutation=mutation) for home in homes)
        with flowing(check.settings, RATE):
            with first.held_at(_HELD_AT) as old, second.running():
                for _ in range(3):
                    second.at_work(check.rng)
            code = old.wait(timeout=240)
        exact = check.judge("late", second, stage, mutation)
        print(f"late: the driver that waited ended with {code}", flush=True)
        return exact and code == exits.LEASE


def lossy(check: Check, mutation: str | None) -> bool:
    """Answers of the store are lost, late or wrong. Nobody needs to start the stream again for that."""
    with check.stage("lossy", proxied=True) as stage:
        rng, proxy = random.Random(1), stage.proxy
        stream = StreamUnderKills(stage.settings, stage.cluster.folder, mutation=mutation)
        with flowing(check.settings, RATE), stream.running():
            stream.at_work(check.rng)
            proxy.by_chance = lambda _, headers: _lost(rng, headers)
            for _ in range(10):
                stream.at_work(check.rng)
            proxy.by_chance = lambda _, headers: None
        exact = check.judge("lossy", stream, stage, mutation)
        print(f"lossy: {len(proxy.requests)} requests, {dict(proxy.done)}", flush=True)
        return exact and stream.outcome.starts == STARTS and proxy.done.total() > 0


def moved(check: Check, mutation: str | None) -> bool:
    """Tasks that fail go on with another executor, and come back to the stores that they left when they fail there."""
    with check.stage("moved", spark=_ELSEWHERE) as stage:
        stream = StreamUnderKills(stage.settings, stage.cluster.folder, mutation=mutation)
        with flowing(check.settings, RATE), stream.running():
            stream.at_work(check.rng)
            for _ in range(_FAILURES):
                stream.inject("task.processed", "raise")
                committed = stream.batches()
                stream.until(lambda: stream.batches() > committed, _BATCH_S, "the batch is not committed")  # noqa: B023
        exact = check.judge("moved", stream, stage, mutation)
        openings = stream.outcome.openings
        came = {each: openings[each.value] for each in (RecoveryAction.CAUGHT_UP, RecoveryAction.REBUILD)}
        print(f"moved: a task came to an executor that had to fill its store: {came}", flush=True)
        return exact and stream.outcome.starts == STARTS and sum(came.values()) > _COME_AT_LEAST


def restarted(check: Check, mutation: str | None) -> bool:
    """The driver is killed, and tasks fill their stores from the state in the store. It begins only once."""
    with check.stage("restarted") as stage:
        stream = StreamUnderKills(stage.settings, stage.cluster.folder, mutation=mutation)
        with flowing(check.settings, RATE), stream.running():
            for victim in ("driver", "executor", "driver"):
                for _ in range(3):
                    stream.at_work(check.rng)
                check.kill(victim, stream, stage)
            stream.at_work(check.rng)
        exact = check.judge("restarted", stream, stage, mutation)
        plan = stored_plan(PipelinePaths.of(stage.settings, "orders").current.plan)
        assert plan is not None
        tasks = sum(plan.tasks)
        begun = stream.outcome.openings[RecoveryAction.NEW.value]
        print(f"restarted: {begun} tasks began without a state, of {tasks}", flush=True)
        return exact and begun <= tasks and stream.outcome.starts == STARTS + 2


BREAKAGES: Sequence[tuple[str, Scenario]] = (
    ("put-if-absent of an object store ignored", late),
    ("generation of a driver not compared + generation of a table not compared", late),  # each alone is not missed
    ("own refusal of an object store taken for a conflict", lossy),
    ("content of an object not compared", lossy),
    ("version of a local store not compared + version not compared when a store is written", moved),  # likewise
    ("a changelog not copied to the folder of a start", restarted),
    ("first page of a list taken for all of it", restarted),
)


def breakages(check: Check) -> None:
    """Each scenario that no other part has with all safeguards, then each without one."""
    for name, whole in (("late", late), ("lossy", lossy), ("moved", moved), ("restarted", restarted)):
        if not whole(check, None):
            check.wrong.append(f"{name}: see above")
    for mutation, broken in BREAKAGES:
        green = _is_green(check, mutation, broken)
        print(f"{'STILL GREEN' if green else 'red, as it should be'}: {mutation}\n", flush=True)
        if green:
            check.wrong.append(f"still green: {mutation}")


def _is_green(check: Check, mutation: str, broken: Scenario) -> bool:
    try:
        return broken(check, mutation)
    except Exception:  # whatever a stream without its safeguard does
        traceback.print_exc(limit=3)
        return False


def _lost(rng: random.Random, headers: Mapping[str, str]) -> Fault | None:
    chance = rng.random()
    if f"x-amz-meta-{_TOKEN}" in headers:  # a put of ours that counts only under a condition
        return "answer lost" if chance < _LOST_CONDITIONAL else None
    for fault, share in _LOSSES:
        if chance < share:
            return fault
        chance -= share
    return None
