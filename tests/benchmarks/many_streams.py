"""An Airflow with forty streams: how long its pages, `deltaworks status` and reconciling take.

`python -m tests.benchmarks.many_streams [--streams 40]`

The stack is real, and so are the DAGs, the deployments, the supervisor, leases, heartbeats and reports to the registry.
The drivers are light: they beat as an idle stream does, but start no Spark, so that forty fit on a small machine. It
prints the median and the most of several tries, after all streams are supervised in Airflow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from deltaworks.stack.airflow import credentials
from tests.integration.own_stack.conftest import NewPipeline, job_file, stack_of_a_copy
from tests.support.browser import Person, chromium

TRIES = 5
JOB = '''"""Counts of {name}."""

from deltaworks import Pipeline, StreamsBuilder, Topic


def topology(builder: StreamsBuilder) -> None:
    lines = builder.stream("{name}-lines", key=str, value=str)
    lines.group_by_key().count(store="counts").to_delta("{name}_counts")


pipeline = Pipeline(name="{name}", topology=topology, topics=(Topic("{name}-lines", partitions=1),))
'''
LIGHT = '''"""A driver that beats as an idle stream does, and starts no Spark."""

import os
import signal
import threading
import time

from deltaworks.clock import Sign
from deltaworks.control import fence, heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import SilentReporter


def run(pipeline, settings, *, generation=None, reporter=None, **_):
    paths, reporter = PipelinePaths.of(settings, pipeline.name), reporter or SilentReporter()
    end, begun = threading.Event(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    with Lease(paths.lease, pipeline.name, generation):
        fence.advance(paths.fence, generation, pipeline.name)
        while True:
            stops = end.wait(1.0) or reporter.asked_to_drain() or paths.drain(generation).exists()
            now = time.time()
            beat = Heartbeat(
                pipeline=pipeline.name,
                generation=generation,
                query_id="light",
                state="stopped" if stops else "running",
                pid=os.getpid(),
                at=now,
                sign=Sign.of(now),
                up_s=time.monotonic() - begun,
                batch_id=0,
                quiet_s=time.monotonic() - begun,
                lag_records=0,
                lag_seconds=0.0,
            )
            heartbeat.write(paths.heartbeat, beat)
            reporter.beat(beat)
            if stops:
                return
'''

DEPLOY = """
import sys
from deltaworks.control import actions
from deltaworks.control.model import DeployOptions
from deltaworks.settings import Settings

settings = Settings.from_environment()
for name in sys.argv[1:]:
    actions.preflight(settings, name, DeployOptions(), lambda _: None)
    actions.deploy(settings, name, requested_by="benchmark")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=40, help="how many")
    names = [f"stream{number:02d}" for number in range(parser.parse_args(arguments).streams)]

    def prepare(project: Path) -> None:
        for file in (project / "jobs").glob("*.py"):
            file.unlink()
        for folder in ("batch", "quality"):
            shutil.rmtree(project / "jobs" / folder)
        for name in names:
            job_file(project, name).write_text(JOB.format(name=name))
        (project / "lib/deltaworks/spark/streaming.py").write_text(LIGHT)

    with stack_of_a_copy(names[0], prepare) as stack:
        measure(stack, names)
    return 0


def measure(stack: NewPipeline, names: Sequence[str]) -> None:
    """Deploys them, waits until Airflow supervises each, and prints the times."""
    airflow = stack.airflow
    dags = {f"{name}__stream" for name in names}
    took = seconds(
        lambda: airflow.wait("all DAGs", lambda: dags <= {dag.dag_id for dag in airflow.dags()}, timeout_s=900)
    )
    print(f"DAGs of {len(names)} pipelines parsed after {took:.0f} s", flush=True)
    took = seconds(lambda: deploy(stack, names))
    print(f"deployed one after the other in {took:.0f} s", flush=True)
    took = seconds(lambda: airflow.wait("all are supervised", lambda: supervised(stack, names), timeout_s=1800))
    print(f"supervised in Airflow {took:.0f} s later", flush=True)
    say("deltaworks status", [seconds(lambda: stack.deltaworks("status")) for _ in range(TRIES)])
    say("deltaworks status --json", [seconds(lambda: stack.deltaworks("status", "--json")) for _ in range(TRIES)])
    say("streams__reconcile, task look", reconciled(stack))
    with chromium() as browser:
        login = credentials(stack.settings)
        person = Person(browser, login.url, login.file, login.user)
        for what, path, text in (
            ("page of all DAGs", "/dags", names[0]),
            ("page of DAGs with the tag stream", "/dags?tags=stream", names[0]),
            ("page of a stream's DAG", f"/dags/{names[0]}__stream", "supervise"),
            ("page of streams__reconcile", "/dags/streams__reconcile", "look"),
        ):
            say(what, [seconds(lambda path=path, text=text: person.see(path, text)) for _ in range(TRIES)])  # type: ignore[misc]


def deploy(stack: NewPipeline, names: Sequence[str]) -> None:
    """In one process that runs the code of the copy, so that the light driver is what gets deployed."""
    environment = {**os.environ, **stack.settings.process_environment()}
    subprocess.run([sys.executable, "-c", DEPLOY, *names], cwd=stack.project, env=environment, check=True)


def supervised(stack: NewPipeline, names: Sequence[str]) -> bool:
    """Whether a run of each stream's DAG watches it."""
    runs = [stack.airflow.runs(f"{name}__stream") for name in names]
    return all(
        each and stack.airflow.task(each[0].dag_id, each[0].dag_run_id, "supervise").state == "deferred"
        for each in runs
    )


def reconciled(stack: NewPipeline) -> list[float]:
    """How long the task `look` of each of the next runs takes, in seconds."""
    airflow, dag_id = stack.airflow, "streams__reconcile"
    known = {run.dag_run_id for run in airflow.runs(dag_id)}

    def ended() -> list[str]:
        return [run.dag_run_id for run in airflow.runs(dag_id) if run.dag_run_id not in known and run.ended]

    airflow.wait("some runs of streams__reconcile", lambda: len(ended()) >= TRIES, timeout_s=TRIES * 120)
    return [_duration(airflow._get(f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/look")) for run in ended()]


def _duration(task: dict[str, Any]) -> float:
    begun, ended = (datetime.fromisoformat(task[name]) for name in ("start_date", "end_date"))
    return (ended - begun).total_seconds()


def seconds(what: Callable[[], object]) -> float:
    begun = time.monotonic()
    what()
    return time.monotonic() - begun


def say(what: str, times: Sequence[float]) -> None:
    print(f"{what}: {statistics.median(times):.2f} s, at most {max(times):.2f} s ({len(times)} tries)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
