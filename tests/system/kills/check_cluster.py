"""Streams on a Spark cluster, with everything on S3 and three secured brokers: `make check-cluster [PARTS=...]`.

- `jobs`: every job of `jobs/` that has sample data, one after the other, while executors, whole workers, the master,
  the driver, its JVM, the store and brokers are killed at random; without those that need a schema registry, which is
  not started (`make check-formats` has one);
- `elastic`: workers are added and taken away under load;
- `host`: a driver is cut off with all below it, and another home takes the stream over, as another machine would;
- `operations`: a replay, its publication and rollback, a hand-over and a rescale, while executors are killed;
- `airflow`: a stream that Airflow deploys, supervises, replays and stops, while executors and Airflow are killed;
- `breakages`: safeguards are taken away, one at a time, and the checks must turn red (`breakages`);
- `cuts`: a driver and an executor do not reach S3, Kafka, PostgreSQL, the master, each alone (`cuts`).
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from deltaworks import exits
from deltaworks.control import jobs
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import reachable
from tests.system.kills.breakages import breakages
from tests.system.kills.cluster import RATE, STARTS, VICTIMS, Check
from tests.system.kills.cuts import cuts
from tests.system.kills.on_airflow import airflow
from tests.system.kills.operations import operations
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

_KILLS_AT_LEAST = 60
_TASK_S = 120.0


def all_jobs(check: Check) -> None:
    """Every job under SIGKILLs of whatever it runs on."""
    for name in jobs.with_sample_data(check.settings):
        with check.stage(name, job=name) as stage:
            stream = StreamUnderKills(stage.settings, stage.cluster.folder, job=name)
            with flowing(check.settings, RATE, job=name), stream.running():
                for victim in check.rng.sample([*VICTIMS, "broker"], len(VICTIMS) + 1):
                    check.kill(victim, stream, stage)
            check.judge(name, stream, stage)


def elastic(check: Check) -> None:
    """Workers come under load, and go."""
    with check.stage("elastic", workers=1, cores=6) as stage:
        cluster, stream = stage.cluster, StreamUnderKills(stage.settings, stage.cluster.folder)
        with flowing(check.settings, RATE), stream.running():
            stream.at_work(check.rng)
            for number in (1, 2):
                cluster.add_worker(number)
                stream.until(partial(cluster.has_run, number), _TASK_S, "a new worker gets no task")
                print(f"worker {number} runs tasks; {cluster.executors()} executors", flush=True)
            for number in (0, 1):
                cluster.remove_worker(number)
                stream.at_work(check.rng)
                print(f"worker {number} is gone; {cluster.executors()} executors", flush=True)
            cluster.add_worker(0)
            stream.at_work(check.rng)
        check.judge("elastic", stream, stage)
        if stream.outcome.starts > STARTS:
            check.wrong.append(f"elastic: {stream.outcome.starts} starts of the driver")


def host(check: Check) -> None:
    """Another home takes over from a driver that is suspended, and wakes up."""
    with check.stage("host", cores=2) as stage:  # two drivers have room
        first = StreamUnderKills(stage.settings, stage.cluster.folder)
        second = StreamUnderKills(check.other_home(stage), stage.cluster.folder)
        with flowing(check.settings, RATE):
            with first.cut_off() as old, second.running():
                for victim in ("executor", "driver", "worker"):
                    check.kill(victim, second, stage)
            if (code := old.wait(timeout=240)) != exits.LEASE:
                check.wrong.append(f"host: the driver that was cut off ended with {code}")
        check.judge("host", second, stage)


PARTS: Mapping[str, Callable[[Check], None]] = {
    "jobs": all_jobs,
    "elastic": elastic,
    "host": host,
    "operations": operations,
    "airflow": airflow,
    "breakages": breakages,
    "cuts": cuts,
}


def main(parts: Sequence[str]) -> int:
    """Runs parts of the check, all if none are named."""
    if unknown := set(parts) - set(PARTS):
        print(f"There is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
        return 2
    begun, chosen = time.monotonic(), parts or list(PARTS)
    with tempfile.TemporaryDirectory(prefix="deltaworks-on-cluster-") as folder:
        settings = own_settings(reachable(Path(folder)) / "home", secured=True)
        up(settings, print, only=("kafka", "registry"), tethered=True)
        settings = replace(settings, control_url=settings.registry_url)
        try:
            check = Check(settings, Path(folder), random.Random(1))
            for part in chosen:
                PARTS[part](check)
        finally:
            down(settings)
    kinds = ", ".join(f"{kind} {count}" for kind, count in check.kills.most_common())
    jobs_of = ", ".join(f"{job} {count}" for job, count in check.of_jobs.items())
    print(f"\n{check.kills.total()} SIGKILLs in {time.monotonic() - begun:.0f} s: {kinds}\n{jobs_of}")
    enough = check.kills.total() >= _KILLS_AT_LEAST or "jobs" not in chosen
    print("EXACT" if not check.wrong and enough else f"NOT EXACT: {check.wrong}" if check.wrong else "TOO FEW KILLS")
    return 0 if not check.wrong and enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
