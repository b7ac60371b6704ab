"""A stream on a Spark cluster with everything on S3 and three secured brokers, and what kills and compares it.

The parts of `make check-cluster` (`check_cluster`) and the test of CI use it. In the end a stream goes on without the
cluster, with its state from the store, and everything is compared with its recomputation: tables, topics under
`read_committed`, stores, rebuilt stores.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltaworks.config import FILE, Reference
from deltaworks.control import jobs
from deltaworks.control.topics import all_topics, prepare
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import control_topic
from deltaworks.settings import Settings
from deltaworks.stack.secured_kafka import NODES
from tests.support.object_stores import Faults
from tests.support.repeated import repeated
from tests.system.kills.brokers_under_kills import Brokers
from tests.system.kills.machines import Machines, machines
from tests.system.kills.store_under_kills import StoreUnderKills, share_keys, stored
from tests.system.kills.stream_under_kills import Outcome, StreamUnderKills, print_outcome

VICTIMS = ("executor", "executor", "executor", "worker", "driver", "jvm", "store", "master", "executor")
RATE = 60.0
STARTS = 3
"""Of a driver that nothing ends: the stream, and catching up with its local stores and without (`check_alone`)."""
LAUNCH_S = 180.0
"""Until a driver that was deployed is at work."""
BY = "check-cluster"
REPLAYED = ("enriched_orders", "order_counts", "user_revenue", "dead_letters")
"""The tables of orders that may be published at any time: sessions of a day that has just ended may still grow."""
_EVERY_S = 30.0
_ALONE = "alone.toml"
"""The settings of the project without the cluster."""


_Table = Mapping[str, str | Reference]


def on_cluster(
    settings: Settings,
    cluster: Machines,
    folder: Path,
    *,
    cores: int = 4,
    spark: _Table | None = None,
    s3: _Table | None = None,
) -> Settings:
    """Settings of a project, made in a new folder, whose streams run there.

    Args:
        settings: of the home; those of Kafka's clients and of the store are the project's, too.
        cluster: where tasks run.
        folder: of the project.
        cores: so many at most.
        spark: further settings of Spark.
        s3: what differs in those of the store.
    """
    found = project(settings, "".join([cluster.table(), *_lines(spark or {})]), folder, cores=cores, s3=s3)
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(cluster.secret)
    return found


def project(settings: Settings, spark: str, folder: Path, *, cores: int, s3: _Table | None = None) -> Settings:
    """As `on_cluster`, with the text of a table `[spark]`, whatever cluster that names."""
    shutil.copytree(settings.project / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    tables = {"kafka": settings.values.table("kafka"), "s3": {**settings.values.table("s3"), **(s3 or {})}}
    text = "".join(line for name, table in tables.items() for line in (f"[{name}]\n", *_lines(table)))
    (folder / _ALONE).write_text(text)
    (folder / FILE).write_text(spark + text)
    package, *others = settings.python_path
    return replace(settings, project=folder, cores=cores, python_path=(package, folder, *others))


def _lines(table: _Table) -> list[str]:
    return [f'"{name}" = {_toml(value)}\n' for name, value in table.items()]


def _toml(value: str | Reference) -> str:
    if isinstance(value, str):
        return value if value in ("true", "false") else f'"{value}"'
    assert value.file is not None
    return f'{{ file = "{Path(value.folder, value.file)}" }}'


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
            cluster.kill_any_executor(rng)


def check_alone(stream: StreamUnderKills) -> Outcome:
    """The comparisons, after the stream has gone on without the cluster."""
    project = stream.settings.project
    (project / _ALONE).replace(project / FILE)
    stream.settings = replace(stream.settings, cores=2)
    return stream.check()


@dataclass
class Stage:
    """What one stream of a check runs on."""

    cluster: Machines
    store: StoreUnderKills
    settings: Settings
    """Of a project that uses the cluster."""
    proxy: Faults
    """Before the store."""

    @contextmanager
    def executors_killed(self, rng: random.Random) -> Iterator[None]:
        """Executors get SIGKILL again and again during the block."""
        before = len(self.cluster.kills)
        with repeated(nullcontext(lambda: self.cluster.kill_one_of_several(rng)), _EVERY_S):
            yield
        print(f"{len(self.cluster.kills) - before} executors killed meanwhile", flush=True)


@dataclass
class Check:
    """What all parts of a check share: the brokers, what was killed, what was wrong."""

    settings: Settings
    work: Path
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    of_jobs: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = Brokers(self.settings)

    @contextmanager
    def stage(
        self,
        name: str,
        *,
        workers: int = 2,
        cores: int = 4,
        spark: _Table | None = None,
        proxied: bool = False,
        job: str = "orders",
    ) -> Iterator[Stage]:
        """A cluster, a store and a project for one job, in a home of its own.

        Args:
            name: what is checked.
            workers: how many.
            cores: so many tasks run at once at most.
            spark: further settings of Spark.
            proxied: the stream reaches the store through a proxy that can lose answers.
            job: the pipeline.
        """
        begun = time.monotonic()
        settings = replace(self.settings, home=self.work / f"{name}-{time.monotonic_ns()}")
        pipeline = jobs.load(settings, job)
        plan = pipeline.plan()
        prepare(settings.cluster, pipeline, plan, begun=False)
        try:
            with ExitStack() as opened:
                cluster = opened.enter_context(machines(workers))
                store = opened.enter_context(stored(settings, everything=True))
                proxy = opened.enter_context(Faults(endpoint_of(store.settings)))
                folder = self.work / f"project-{time.monotonic_ns()}"
                own = on_cluster(
                    store.settings, cluster, folder, cores=cores, spark=spark,
                    s3={"endpoint": proxy.endpoint} if proxied else None,
                )  # fmt: skip
                yield Stage(cluster, store, own, proxy)
        finally:
            admin.delete_topics(settings.cluster, [*all_topics(pipeline, plan), control_topic(job)])
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)

    def other_home(self, stage: Stage) -> Settings:
        """Of another machine, which knows the store, and whose streams run on the same cluster."""
        there = replace(stage.settings, home=self.work / f"there-{time.monotonic_ns()}")
        share_keys(stage.settings, there)
        return there

    def kill(self, victim: str, stream: StreamUnderKills, stage: Stage) -> None:
        """SIGKILL to a broker, or to one of `VICTIMS`, somewhere within a batch of a stream that is at work."""
        if victim == "broker":
            stream.at_work(self.rng)
            self.brokers.kill(self.rng.choice(NODES))
        else:
            kill(victim, stream, stage.cluster, stage.store, self.rng)

    def judge(self, name: str, stream: StreamUnderKills, stage: Stage, mutation: str | None = None) -> bool:
        """Compares everything, prints what was found and what was killed; whether all of it is exact.

        Args:
            name: what was checked.
            stream: of the stage; all of its safeguards are back from now on.
            stage: where it ran.
            mutation: what was taken away; then nothing of this counts for the check.
        """
        self.brokers.await_all()
        stage.store.await_back()
        stream.lift_mutation()
        outcome = check_alone(stream)
        kills = [*stage.cluster.kills, *(victim for victim, _ in outcome.kills), *("store" for _ in stage.store.kills)]
        kills += ["broker"] * (len(self.brokers.kills) - self.kills["broker"])
        print(f"\n{name}: {len(kills)} SIGKILLs, {outcome.starts} starts of the driver")
        print_outcome(outcome)
        if mutation is None:
            self.kills.update(kills)
            self.of_jobs[name] = len(kills)
            if not outcome.exact:
                self.wrong.append(name)
        return outcome.exact


def endpoint_of(settings: Settings) -> str:
    """Where the store of a home answers."""
    return str(settings.values.table("s3")["endpoint"])
