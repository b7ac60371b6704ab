"""`make check-formats`: a job that reads Avro and writes Protobuf, while its types change, and everything is killed.

1. JSON moves to Avro, both in one topic, with records that nobody can read;
2. producers begin to use a newer schema that the stream has never seen, while the registry is suspended;
3. the job gets the new fields, in its stores, topics and tables; then all of it once more;
4. history is replayed with the newest types, after the registry has lost everything.

Driver, JVM, workers and registry get SIGKILL meanwhile. Then safeguards are taken away, one at a time: it must turn
red.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from confluent_kafka.schema_registry import SchemaRegistryClient

from deltaworks import exits
from deltaworks.config import FILE
from deltaworks.control import batches
from deltaworks.control.paths import PipelinePaths
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports, schema_registry
from deltaworks.stack.lifecycle import down, status, up
from tests.support.live_stack import await_restart, kill_component, reachable
from tests.system.breakages import not_missed
from tests.system.formats import versions
from tests.system.formats.checking import Switch, differences, expected, of_tables
from tests.system.formats.flow import TOPIC, Flow
from tests.system.formats.job.parcels import pipeline
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.replays.project import Project

JOB, REGISTRY = "parcels", "schema-registry"
_TABLES = ("parcels_sent", "parcel_totals", "parcels_unreadable")
_KILLS_AT_LEAST = 20
_RATE = 150.0
_WAIT_S = 120.0
_AWAY = "a registry that is away taken for a bad record"
BREAKAGES = (
    "schemas of records not kept",
    "schema of a writer ignored",
    _AWAY,
    "records without an id refused",
)


@dataclass
class Run:
    """One stream with its own topics and home, and what it has gone through.

    Args:
        settings: of the stack, in whose home the stream is.
        work: a folder for the project.
        rng: decides what comes, and when.
        mutation: a safeguard that is taken away; None: none.
    """

    settings: Settings
    work: Path
    rng: random.Random
    mutation: str | None = None
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project = self.work / "project"
        self.settings = Project.empty(self.settings, self.project, cores=2).settings
        self.stream = StreamUnderKills(self.settings, self.work, job=JOB, mutation=self.mutation)
        login = schema_registry.credentials(self.settings)
        conf = {"url": login.url, "basic.auth.user.info": f"{login.user}:{login.password}"}
        self.registry = SchemaRegistryClient(conf)
        self.flow = Flow(self.settings.bootstrap, self.registry, _RATE, self.rng)

    def deploy(self, version: int) -> None:
        """The next start runs this version of the job, from the next record on."""
        ends: dict[int, int] = {}
        for each in batches.read(PipelinePaths.of(self.settings, JOB).batches):
            ends |= {int(partition): end for partition, (_, end) in each.offsets.get(TOPIC, {}).items()}
        self.switches.append(Switch(version, ends))
        (self.project / "jobs" / f"{JOB}.py").write_text(versions.of(version))
        print(f"version {version} of the job, from {ends} on", flush=True)

    def kill(self, victim: str) -> None:
        """SIGKILL to part of the stream, or to the registry."""
        if victim == "registry":
            killed = kill_component(self.settings, REGISTRY)
            await_restart(self.settings, REGISTRY, killed)
            self.kills["registry"] += 1
        else:
            self.stream.kill(victim, self.rng)

    def meet(self, version: int) -> None:
        """Producers use a schema that the stream does not know."""
        self.flow.register(version)
        self.flow.versions.append(version)

    def meet_while_away(self, version: int) -> None:
        """Likewise, and the registry does not answer: the stream waits."""
        self.stream.at_work(self.rng)
        self.flow.register(version)
        registry = psutil.Process(next(each.pid for each in status(self.settings) if each.name == REGISTRY))
        registry.suspend()
        try:
            self.flow.versions.append(version)
            log, before = self.work / "driver.log", (self.work / "driver.log").stat().st_size
            self.stream.until(
                lambda: b"does not answer when asked for schema" in log.read_bytes()[before:],
                _WAIT_S,
                "nobody asks for it",
            )
        finally:  # producers wait for it, too
            registry.kill()
            self.kills["registry"] += 1
        await_restart(self.settings, REGISTRY, registry.pid)

    def judge(self, name: str, version: int) -> None:
        """Compares everything with what the records say."""
        wanted = expected(self.settings, self.registry, self.switches)
        tables = {each: str(self.settings.tables / each) for each in _TABLES}
        found = differences(self.settings, self.registry, wanted, newest=version, tables=tables)
        print(
            f"{name}: {len(wanted.sent)} parcels of {dict(Counter(each for each, _ in wanted.sent))}, "
            f"{len(wanted.unreadable)} unreadable: {'; '.join(found) or 'equal'}",
            flush=True,
        )
        self.wrong += [f"{name}: {each}" for each in found]

    @property
    def killed(self) -> Counter[str]:
        return self.kills + Counter(victim for victim, _ in self.stream.outcome.kills)


def live(run: Run, victims: Sequence[str]) -> None:
    """All versions and a replay; without a safeguard, a replay after each version, until it is missed."""
    run.flow.json = 0.9
    for version in range(1, versions.NEWEST + 1):
        run.deploy(version)
        with run.flow.running(), run.stream.running():
            run.stream.at_work(run.rng)
            run.flow.json = {1: 0.4, 2: 0.2, 3: 0.1}[version]
            for victim in run.rng.sample(victims, len(victims)):
                run.kill(victim)
            if version < versions.NEWEST:
                (run.meet_while_away if run.mutation in (None, _AWAY) else run.meet)(version + 1)
            run.stream.at_work(run.rng)
        run.stream.catch_up()
        if version == versions.NEWEST or run.mutation is not None:
            run.judge(f"version {version}", version)
            if not run.wrong:
                replayed(run, version)
        if run.wrong:
            return


def replayed(run: Run, version: int) -> None:
    """History again with the newest types, from schemas that the registry has lost."""
    project = Project(run.settings)
    (run.project / FILE).write_text(f'[schema_registry]\nurl = "http://127.0.0.1:{ports.free_ports(1)[0]}"\n')
    tables = [word for table in _TABLES for word in ("--table", table)]  # that of a KTable only if it is named
    words = ("replay", JOB, *tables, "--reason", "all with the newest types", "--yes")
    answer = project.deltaworks(*words, faults=run.work / "faults")
    (run.project / FILE).unlink()
    if answer.code != exits.OK:
        run.wrong.append(f"replay: exit code {answer.code}: {answer.text[-800:]}")
        return
    wanted = expected(run.settings, run.registry, [Switch(version, {})])
    folders = {each: str(run.settings.tables / each) for each in _TABLES}
    found = list(of_tables(wanted, version, folders))
    print(f"replay: {'; '.join(found) or 'equal'}", flush=True)
    run.wrong += [f"replay: {each}" for each in found]


@contextmanager
def stack(folder: Path) -> Iterator[Settings]:
    """Kafka, PostgreSQL and the registry, in a home of their own."""
    settings = replace(own_settings(reachable(folder) / "home"), schema_registry_port=ports.free_ports(1)[0])
    up(settings, print, only=("kafka", "registry", REGISTRY), tethered=True)
    try:
        yield replace(settings, control_url=settings.registry_url)
    finally:
        down(settings)


def whole(settings: Settings, folder: Path, *, mutation: str | None = None) -> Run:
    """A run of everything; of a mutation, a short one."""
    victims = ("driver", "jvm", "worker", "registry")
    run = Run(settings, folder, random.Random(1), mutation)
    live(run, (*victims, "worker", "driver") if mutation is None else ())
    return run


def main() -> int:
    """The check, and then the breakages."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-formats-") as folder, stack(Path(folder)) as settings:
        run = whole(settings, Path(folder) / "whole")
        wrong, killed = list(run.wrong), run.killed
        broken = () if wrong else BREAKAGES
        green = not_missed(
            settings, pipeline, broken, lambda name: whole(settings, Path(folder) / name, mutation=name).wrong
        )
        wrong += [f"'{mutation}' is not missed" for mutation in green]
        red = len(broken) - len(green)
    kinds = ", ".join(f"{kind} {count}" for kind, count in killed.most_common())
    print(f"\n{killed.total()} SIGKILLs in {time.monotonic() - begun:.0f} s: {kinds}; {red} breakages red")
    exact = not wrong and killed.total() >= _KILLS_AT_LEAST
    print("EXACT" if exact else f"NOT EXACT: {wrong}" if wrong else "TOO FEW KILLS")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
