"""A stream that is asked over HTTP all the time, and what was answered."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import reachable
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.queries.asking import Asked, KeyFollower, StoreFollower, WindowFollower, differences
from tests.system.queries.flow import KEYS, TOPIC
from tests.system.queries.history import ALL, records
from tests.system.replays.project import Project

JOB = "asked"
_SHOWN = 5
_WAIT_S, _WITHOUT_A_SAFEGUARD_S = 120.0, 20.0


@dataclass
class Run:
    """One stream with its own topics and home, its server, and what was asked.

    Args:
        settings: of the stack, in whose home the stream is.
        work: a folder for the project.
        mutation: a safeguard that is taken away, in the stream and in the server; None: none.
        placed: settings of a project that has the job -> those with which it runs.
        environment: further variables of the driver.
    """

    settings: Settings
    work: Path
    mutation: str | None = None
    placed: Callable[[Settings], Settings] = lambda settings: settings
    environment: Mapping[str, str] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    asked: Asked = field(default_factory=Asked)
    wrong: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.settings = Project.empty(self.settings, self.work / "project", cores=2).settings
        shutil.copy(Path(__file__).parent / "job" / f"{JOB}.py", self.settings.project / "jobs")
        self.settings = self.placed(self.settings)
        self.stream = StreamUnderKills(
            self.settings, self.work, job=JOB, mutation=self.mutation, environment=self.environment
        )
        (self.port,) = ports.free_ports(1)
        self.server: subprocess.Popen[str] | None = None
        self.of_store = StoreFollower(self.port, self.asked)
        self.of_windows = WindowFollower(self.port, KEYS[3], self.asked)
        self.followers = [
            *(KeyFollower(self.port, key, self.asked) for key in KEYS[:3]),
            self.of_store,
            self.of_windows,
        ]

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
        patience_s = _WAIT_S if self.mutation is None else _WITHOUT_A_SAFEGUARD_S
        words, end = records(self.settings.bootstrap, TOPIC), time.monotonic() + patience_s
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
            f"{sum(each.events for each in self.followers)} events, "
            f"{self.of_store.gaps + self.of_windows.gaps} gaps; "
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


@contextmanager
def stack(folder: Path) -> Iterator[Settings]:
    """Kafka and PostgreSQL in a home of their own."""
    settings = own_settings(reachable(folder) / "home")
    up(settings, print, only=("kafka", "registry"), tethered=True)
    try:
        yield replace(settings, control_url=settings.registry_url)
    finally:
        down(settings)


def verdict(begun: float, killed: Counter[str], answers: int, wrong: list[str], enough: tuple[int, int]) -> int:
    """Says what a check has found; its exit code.

    Args:
        begun: when it began, by `time.monotonic`.
        killed: what got SIGKILL, how often.
        answers: how many were compared.
        wrong: what was wrong.
        enough: so many kills and answers there have to be at least.
    """
    kinds = ", ".join(f"{kind} {count}" for kind, count in killed.most_common())
    print(f"\n{answers} answers compared; {killed.total()} SIGKILLs in {time.monotonic() - begun:.0f} s: {kinds}")
    are_enough = killed.total() >= enough[0] and answers >= enough[1]
    print("EXACT" if are_enough and not wrong else f"NOT EXACT: {wrong[:_SHOWN]}" if wrong else "TOO FEW")
    return 0 if are_enough and not wrong else 1
