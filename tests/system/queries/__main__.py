"""`make check-queries`: stores of a stream are asked over HTTP all the time, while everything is killed.

Clients ask for keys, several keys, pages and windows, and follow keys, as fast as they get answers; driver, JVM,
workers and the server get SIGKILL, and the stream is stopped and started. Then a stream is replayed, rolled back,
handed over, and gets more partitions. Each answer is compared with what the records of the topics say as of its
offsets. Then safeguards are taken away, one at a time: it must turn red.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import NewPartitions

from deltaworks.kafka import admin
from deltaworks.settings import Settings
from tests.system.breakages import begin_anew, not_missed
from tests.system.queries.asking import asking
from tests.system.queries.flow import TOPIC, flowing
from tests.system.queries.job.asked import pipeline
from tests.system.queries.run import JOB, Run, stack, verdict
from tests.system.replays.project import Project

_RATE = 300.0
_KILLS_AT_LEAST = 20
_ANSWERS_AT_LEAST = 100_000
_START_S = 180.0
_KNOWN = 100
"""Records of a partition after which all producers use it."""
BREAKAGES = (
    "changes that are not committed shown",
    "changes of the newest batch not shown",
    "another task asked for a key",
    "a batch not waited for",
)


def whole(settings: Settings, folder: Path, victims: Sequence[str], *, mutation: str | None = None) -> Run:
    """The stream is asked while these are killed; halfway it is stopped and started. The last answers are of all."""
    run = Run(settings, folder, mutation)
    half = len(victims) // 2
    with ExitStack() as clients:
        with flowing(settings.bootstrap, run.rng, _RATE):
            for part in (victims[:half], victims[half:]) if victims else ((),):
                with run.stream.running():
                    run.stream.at_work(run.rng)
                    if run.server is None:
                        clients.enter_context(run.serving())
                        clients.enter_context(asking(run.port, run.rng, run.asked, run.followers))
                    for victim in part:
                        run.kill(victim)
                    run.stream.at_work(run.rng)
        run.stream.catch_up()
        run.await_events()
    run.judge()
    return run


def operated(settings: Settings, folder: Path) -> Run:
    """A stream of a supervisor is asked while it is replayed and published, rolled back, handed over, gets more
    partitions, and is stopped and deployed."""
    run = Run(settings, folder)
    project = Project(run.settings)

    def done(*words: str) -> str:
        answer = project.deltaworks(*words)
        print(f"{' '.join(words[:3])}: exit code {answer.code}", flush=True)
        run.wrong += [] if answer.code == 0 else [f"{words}: exit code {answer.code}: {answer.text[-800:]}"]
        return answer.run

    try:
        with ExitStack() as clients:
            with flowing(settings.bootstrap, run.rng, _RATE):
                done("deploy", JOB)
                run.stream.until(lambda: run.stream.batches() > 5, _START_S, "the stream does not run")
                clients.enter_context(run.serving())
                clients.enter_context(asking(run.port, run.rng, run.asked, run.followers))
                replayed = done("replay", JOB, "--table", "asked_counts", "--reason", "looks again", "--yes")
                done("rollback", replayed)
                done("replay", JOB, "--hand-over", "--reason", "goes on with it", "--yes")
                grow(run)
                done("rescale", JOB, "--yes")
                done("stop", JOB)
                done("deploy", JOB)
                committed = run.stream.batches()
                run.stream.until(lambda: run.stream.batches() > committed + 2, _START_S, "the stream does not go on")
            run.await_events()
    finally:
        done("stop", JOB)
    run.judge()
    return run


def grow(run: Run) -> None:
    """The topic gets partitions, and until producers know it, what they write is read by the tasks that are there."""
    client = admin.admin(run.settings.cluster)
    before = admin.partition_counts(run.settings.cluster)[TOPIC]
    client.create_partitions([NewPartitions(TOPIC, 2 * before)])[TOPIC].result(30)
    ends = {(TOPIC, part) for part in range(before, 2 * before)}
    run.stream.until(
        lambda: all(admin.end_offsets(run.settings.cluster, [TOPIC])[part] > _KNOWN for part in ends),
        _START_S, "producers do not use the new partitions",
    )  # fmt: skip


def main() -> int:
    """The check, and then the breakages."""
    begun, rng = time.monotonic(), random.Random(7)
    victims = [*("driver",) * 5, *("jvm",) * 4, *("worker",) * 6, *("server",) * 6]
    rng.shuffle(victims)
    with tempfile.TemporaryDirectory(prefix="deltaworks-queries-") as folder, stack(Path(folder)) as settings:
        run = whole(settings, Path(folder) / "whole", victims)
        begin_anew(settings, pipeline)
        second = operated(settings, Path(folder) / "operated")
        wrong, killed = [*run.wrong, *second.wrong], run.killed
        number = len(run.asked.answers) + len(second.asked.answers)
        broken = () if wrong else BREAKAGES
        green = not_missed(
            settings, pipeline, broken, lambda name: whole(settings, Path(folder) / name, (), mutation=name).wrong
        )
        wrong += [f"'{mutation}' is not missed" for mutation in green]
        red = len(broken) - len(green)
    print(f"\n{red} breakages red")
    return verdict(begun, killed, number, wrong, (_KILLS_AT_LEAST, _ANSWERS_AT_LEAST))


if __name__ == "__main__":
    sys.exit(main())
