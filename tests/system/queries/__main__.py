"""`make check-queries`: stores of a stream are asked over HTTP all the time, while everything is killed.

Clients ask for keys, several keys, pages and windows, and follow keys, as fast as they get answers; driver, JVM,
workers and the server get SIGKILL, and the stream is stopped and started. Then a stream is replayed, rolled back,
handed over, and gets more partitions. Each answer is compared with what the records of the topics say as of its
offsets. Then safeguards are taken away, one at a time: it must turn red.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka.admin import NewPartitions

from deltaworks.kafka import admin
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import reachable
from tests.system.breakages import begin_anew, not_missed
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.queries.asking import Asked, KeyFollower, StoreFollower, asking, differences
from tests.system.queries.flow import KEYS, TOPIC, flowing
from tests.system.queries.history import ALL, records
from tests.system.queries.job.asked import pipeline
from tests.system.replays.project import Project

JOB = "asked"
_RATE = 300.0
_KILLS_AT_LEAST = 20
_ANSWERS_AT_LEAST = 100_000
_SHOWN = 5
_WAIT_S, _START_S = 60.0, 180.0
_KNOWN = 100
"""Records of a partition after which all producers use it."""
BREAKAGES = (
    "changes that are not committed shown",
    "changes of the newest batch not shown",
    "another task asked for a key",
    "a batch not waited for",
)


@dataclass
class Run:
    """One stream with its own topics and home, its server, and what was asked.

    Args:
        settings: of the stack, in whose home the stream is.
        work: a folder for the project.
        mutation: a safeguard that is taken away, in the stream and in the server; None: none.
    """

    settings: Settings
    work: Path
    mutation: str | None = None
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    asked: Asked = field(default_factory=Asked)
    wrong: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.settings = Project.empty(self.settings, self.work / "project", cores=2).settings
        shutil.copy(Path(__file__).parent / "job" / f"{JOB}.py", self.settings.project / "jobs")
        self.stream = StreamUnderKills(self.settings, self.work, job=JOB, mutation=self.mutation)
        (self.port,) = ports.free_ports(1)
        self.server: subprocess.Popen[str] | None = None
        self.of_store = StoreFollower(self.port, self.asked)
        self.followers = [*(KeyFollower(self.port, key, self.asked) for key in KEYS[:3]), self.of_store]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The server runs."""
        self.server = self._started()
        try:
            yield
        finally:
            self.server.terminate()
            self.server.communicate(timeout=60)

    def _started(self) -> subprocess.Popen[str]:
        words = ("store", "serve", "--port", str(self.port))
        server = Project(self.settings).launch(*words, faults=self.work / "faults")
        assert server.stdout is not None
        line = server.stdout.readline()
        assert f":{self.port}/" in line, line + server.stdout.read()
        return server

    def kill(self, victim: str) -> None:
        """SIGKILL to part of the stream, or to the server, which is started again."""
        if victim == "server":
            assert self.server is not None
            self.server.kill()
            self.server.communicate()
            self.kills[victim] += 1
            self.server = self._started()
        else:
            self.stream.kill(victim, self.rng)

    def await_events(self) -> None:
        """Until those who follow keys were told the last values; what they were told at the end is judged later."""
        words, end = records(self.settings.bootstrap, TOPIC), time.monotonic() + _WAIT_S
        while any(each.differences(words) for each in self.followers):
            if time.monotonic() > end:
                return
            time.sleep(0.1)

    def judge(self) -> None:
        """Compares every answer with what the records say."""
        words, users = (records(self.settings.bootstrap, topic) for topic in (TOPIC, "asked-users"))
        found = [*self.asked.wrong, *differences(self.asked.answers, words, users)]
        for each in self.followers:
            found += each.differences(words)
        times = sorted(self.asked.milliseconds) or [0.0]
        answers = self.asked.answers
        print(
            f"{len(answers)} answers of {len({each.batch for each in answers})} batches, "
            f"{dict(Counter(each.kind for each in answers))}, "
            f"{sum(each.events for each in self.followers)} events, {self.of_store.gaps} gaps; "
            f"no answer: {dict(self.asked.refused)}; "
            f"{sum(words.counts(ALL).values())} records; "
            f"p50 {times[len(times) // 2]:.1f} ms, p99 {times[len(times) * 99 // 100]:.1f} ms: "
            f"{f'{len(found)} WRONG: {found[:_SHOWN]}' if found else 'equal'}",
            flush=True,
        )
        self.wrong += found

    @property
    def killed(self) -> Counter[str]:
        return self.kills + Counter(victim for victim, _ in self.stream.outcome.kills)


def whole(settings: Settings, folder: Path, victims: Sequence[str], *, mutation: str | None = None) -> Run:
    """The stream is asked while these are killed; halfway it is stopped and started. The last answers are of all."""
    run = Run(settings, folder, mutation)
    half = len(victims) // 2
    with ExitStack() as clients:
        with flowing(settings.bootstrap, run.rng, _RATE):
            for part in (victims[:half], victims[half:]):
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


@contextmanager
def stack(folder: Path) -> Iterator[Settings]:
    """Kafka and PostgreSQL in a home of their own."""
    settings = own_settings(reachable(folder) / "home")
    up(settings, print, only=("kafka", "registry"), tethered=True)
    try:
        yield replace(settings, control_url=settings.registry_url)
    finally:
        down(settings)


def main() -> int:
    """The check, and then the breakages."""
    begun, rng = time.monotonic(), random.Random(7)
    victims = [*("driver",) * 5, *("jvm",) * 5, *("worker",) * 6, *("server",) * 6]
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
    kinds = ", ".join(f"{kind} {count}" for kind, count in killed.most_common())
    print(
        f"\n{number} answers compared; {killed.total()} SIGKILLs in {time.monotonic() - begun:.0f} s: {kinds}; "
        f"{red} breakages red"
    )
    enough = killed.total() >= _KILLS_AT_LEAST and number >= _ANSWERS_AT_LEAST
    print("EXACT" if enough and not wrong else f"NOT EXACT: {wrong[:_SHOWN]}" if wrong else "TOO FEW")
    return 0 if enough and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
