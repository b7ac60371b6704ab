"""Streams on a Spark cluster with everything on S3, under SIGKILLs: `make check-cluster [PARTS="jobs elastic host"]`.

- `jobs`: every job of `jobs/` that has sample data, one after the other, while executors, whole workers, the master,
  the driver, its JVM and the store are killed at random;
- `elastic`: workers are added and taken away under load;
- `host`: a driver is cut off with all below it, and another home takes the stream over, as another machine would.

In the end each stream goes on without a cluster, with its state from the store, and everything is compared with its
recomputation: tables, topics under `read_committed`, stores, rebuilt stores.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deltaworks import exits
from deltaworks.control import jobs
from deltaworks.control.topics import all_topics, prepare
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import control_topic
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from tests.system.kills.machines import Machines, machines
from tests.system.kills.store_under_kills import StoreUnderKills, share_keys, stored
from tests.system.kills.stream_under_kills import Outcome, StreamUnderKills, print_outcome
from tests.system.sample_data import flowing

PARTS = ("jobs", "elastic", "host")
VICTIMS = ("executor", "executor", "executor", "worker", "driver", "jvm", "store", "master", "executor")
RATE = 60.0
_KILLS_AT_LEAST = 60
_TASK_S = 120.0


def on_cluster(settings: Settings, cluster: Machines, folder: Path, *, cores: int = 4) -> Settings:
    """Settings of a project, made in a new folder, whose streams run there, on so many cores at most."""
    shutil.copytree(settings.project / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "deltaworks.toml").write_text(cluster.table())
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(cluster.secret)
    return replace(settings, project=folder, cores=cores)


def kill(victim: str, stream: StreamUnderKills, cluster: Machines, store: StoreUnderKills, rng: random.Random) -> None:
    """SIGKILL to one of `VICTIMS`, somewhere within a batch of a stream that is at work."""
    if victim in ("driver", "jvm"):
        stream.kill(victim, rng)
        return
    stream.at_work(rng)
    match victim:
        case "store":
            store.kill()
        case "master":
            cluster.kill_master()
        case "worker":
            cluster.kill_worker(rng.choice(list(cluster.workers)))
        case _:
            cluster.kill_executor(rng.choice(list(cluster.workers)))


def check_alone(stream: StreamUnderKills, settings: Settings) -> Outcome:
    """The comparisons, after the stream has gone on without the cluster."""
    stream.settings = replace(stream.settings, project=settings.project, cores=2)
    return stream.check()


class _Check:
    """All parts, and what was killed."""

    def __init__(self, settings: Settings, work: Path, seed: int) -> None:
        self._settings, self._work, self._rng = settings, work, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.wrong: list[str] = []

    def jobs(self) -> None:
        for name in jobs.names_with(self._settings, "sample_data"):
            with self._cluster(name) as (cluster, store, settings):
                stream = StreamUnderKills(settings, cluster.folder, job=name)
                with flowing(self._settings, RATE, job=name), stream.running():
                    for victim in self._rng.sample(VICTIMS, len(VICTIMS)):
                        kill(victim, stream, cluster, store, self._rng)
                store.await_back()
                self._judge(name, check_alone(stream, store.settings), cluster, store)

    def elastic(self) -> None:
        with self._cluster("orders", workers=1, cores=6) as (cluster, store, settings):
            stream = StreamUnderKills(settings, cluster.folder)
            with flowing(self._settings, RATE), stream.running():
                stream.at_work(self._rng)
                for number in (1, 2):
                    cluster.add_worker(number)
                    stream.until(lambda number=number: cluster.has_run(number), _TASK_S, "a new worker gets no task")  # type: ignore[misc]
                    print(f"worker {number} runs tasks; {cluster.executors()} executors", flush=True)
                for number in (0, 1):
                    cluster.remove_worker(number)
                    stream.at_work(self._rng)
                    print(f"worker {number} is gone; {cluster.executors()} executors", flush=True)
                cluster.add_worker(0)
                stream.at_work(self._rng)
            self._judge("elastic", check_alone(stream, store.settings), cluster, store)

    def host(self) -> None:
        with self._cluster("orders", cores=2) as (cluster, store, here):  # two drivers have room
            there = replace(here, home=self._work / "there")
            share_keys(here, there)
            first = StreamUnderKills(here, cluster.folder)
            second = StreamUnderKills(there, cluster.folder)
            with flowing(self._settings, RATE):
                with first.cut_off() as old, second.running():
                    for victim in ("executor", "driver", "worker"):
                        kill(victim, second, cluster, store, self._rng)
                if (code := old.wait(timeout=240)) != exits.LEASE:
                    self.wrong.append(f"host: the driver that was cut off ended with {code}")
            store.await_back()
            self._judge("host", check_alone(second, store.settings), cluster, store)

    @contextmanager
    def _cluster(
        self, name: str, *, workers: int = 2, cores: int = 4
    ) -> Iterator[tuple[Machines, StoreUnderKills, Settings]]:
        """A cluster, a store and a project for one job, in a home of its own."""
        begun = time.monotonic()
        settings = replace(self._settings, home=self._work / f"{name}-{time.monotonic_ns()}")
        pipeline = jobs.load(settings, name)
        plan = pipeline.plan()
        prepare(settings.cluster, pipeline, plan, begun=False)
        with machines(workers) as cluster, stored(settings, everything=True) as store:
            project = self._work / f"project-{time.monotonic_ns()}"
            yield cluster, store, on_cluster(store.settings, cluster, project, cores=cores)
        admin.delete_topics(settings.cluster, [*all_topics(pipeline, plan), control_topic(name)])
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)

    def _judge(self, name: str, outcome: Outcome, cluster: Machines, store: StoreUnderKills) -> None:
        kills = [*cluster.kills, *(victim for victim, _ in outcome.kills), *("store" for _ in store.kills)]
        self.kills.update(kills)
        print(f"\n{name}: {len(kills)} SIGKILLs, {outcome.starts} starts of the driver")
        print_outcome(outcome)
        if not outcome.exact:
            self.wrong.append(name)


def main(parts: Sequence[str]) -> int:
    if unknown := set(parts) - set(PARTS):
        print(f"There is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
        return 2
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-on-cluster-") as folder:
        settings = own_settings(Path(folder) / "home")
        up(settings, print, only=("kafka",), tethered=True)
        try:
            check = _Check(settings, Path(folder), seed=1)
            for part in parts:
                getattr(check, part)()
        finally:
            down(settings)
    kinds = ", ".join(f"{kind} {count}" for kind, count in check.kills.most_common())
    print(f"\n{check.kills.total()} SIGKILLs in {time.monotonic() - begun:.0f} s: {kinds}")
    enough = check.kills.total() >= _KILLS_AT_LEAST or set(parts) != set(PARTS)
    print("EXACT" if not check.wrong and enough else f"NOT EXACT: {check.wrong}" if check.wrong else "TOO FEW KILLS")
    return 0 if not check.wrong and enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PARTS))
