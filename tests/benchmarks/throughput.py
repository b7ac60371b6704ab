"""One measured run: a backlog of preloaded records, from process start until the last one is committed."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import data
from tests.benchmarks.measure import Cost, Watch, cost, end_tree
from tests.benchmarks.outcome import HashKind, Outcome, read_outcome
from tests.benchmarks.systems import Job, Launch, System, Topology

_SAMPLE_S = 0.2
_TIMEOUT_S = 400.0
HASH_KIND: dict[Topology, HashKind] = {
    **dict.fromkeys(("filter", "filter-avro", "join"), "every"),
    **dict.fromkeys(("count", "count-avro", "session"), "final"),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run cost and what it wrote."""

    settings: dict[str, Any]
    load_average: float
    """One minute, when the run began: other work on the machine."""
    cost: Cost
    outcome: Outcome

    def as_json(self) -> dict[str, Any]:
        """For `bench-results.json`."""
        return {
            "settings": self.settings,
            "load_average": self.load_average,
            **asdict(self.cost),
            **asdict(self.outcome),
        }


class RunFailed(Exception):
    """A system ended, or did not finish in time; the message has the end of its log."""


def run(system: System, job: Job, bootstrap: str, records: int) -> Run:
    """Runs a job to its end and measures it."""
    data.recreate(bootstrap, job.output)
    load_average = os.getloadavg()[0]
    launch = system.launch(job)
    try:
        watch = _watch(launch, job, records)
    finally:
        launch.close()
    return Run(
        settings=dict(launch.settings),
        load_average=round(load_average, 2),
        cost=cost(watch.samples, records),
        outcome=read_outcome(bootstrap, job.output, HASH_KIND[job.topology], data.PARTITIONS),
    )


def _watch(launch: Launch, job: Job, records: int) -> Watch:
    log = job.folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            launch.command,
            env=dict(launch.environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        watch = Watch(process.pid, launch.progress)
        deadline = time.monotonic() + _TIMEOUT_S
        while watch.sample().consumed < records:
            if process.poll() is not None:
                raise RunFailed(f"{job.name} ended with {process.returncode}:\n{tail(log)}")
            if time.monotonic() > deadline:
                done = watch.samples[-1].consumed
                raise RunFailed(f"{job.name}: {done} of {records} records after {_TIMEOUT_S:.0f} s:\n{tail(log)}")
            time.sleep(_SAMPLE_S)
        return watch
    finally:
        end_tree(process.pid)
        process.wait(timeout=30)


def tail(log: Path, lines: int = 25) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
