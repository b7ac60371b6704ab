"""`make bench-cluster`: one stream on one, two and four executors of a Spark cluster, and without a cluster, in turn.

    python -m tests.benchmarks.cluster
    python -m tests.benchmarks.cluster --repeats 1 --quick   does it work? not a measurement

In each run four tasks may run at once, on the same cores: in one executor, in two, in four, or in the driver's JVM. All
that lasts is in SeaweedFS on the same cores, whose CPU is not counted, like the broker's; that of workers and executors
is. Each JVM compiles the same code, so as many records as are measured come before, which do not count. After the flow
an executor is killed: how long is it until the next batch is committed?
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deltaworks.settings import Settings
from tests.benchmarks.object_store import measure
from tests.benchmarks.run import broker, broker_settings, describe_machine, say
from tests.benchmarks.start import Clone, Driver, Sample, home
from tests.system.kills.cluster import on_cluster
from tests.system.kills.machines import Machines, machines
from tests.system.kills.store_under_kills import stored

_CORES = 4
_PER_S = 500


@contextmanager
def place(settings: Settings, executors: int, number: int) -> Iterator[tuple[Settings, Machines | None]]:
    """A new home and store, and a cluster with so many executors."""
    with home(settings, f"cluster-{executors}-{number}") as own, stored(own, everything=True) as store:
        if not executors:
            yield replace(store.settings, cores=_CORES), None
            return
        with machines(executors, cores=_CORES // executors) as cluster:
            project = own.home.with_name(f"project-{executors}-{number}")
            yield on_cluster(store.settings, cluster, project, cores=_CORES), cluster


def after_a_kill(settings: Settings, cluster: Machines, job: str) -> float:
    """Seconds from the SIGKILL of an executor, under a steady flow, to the next committed batch."""
    sample = Sample.of(settings, job)
    sample.more(_PER_S)
    driver = Driver(Clone(name="this", root=settings.project), settings, job)
    try:
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        sample.more(10 * _PER_S, _PER_S)
        committed = driver.batches()
        cluster.kill_executor(0)
        begun = time.monotonic()
        sample.more(_PER_S)
        driver.until(lambda: driver.batches() > committed)
        return time.monotonic() - begun
    finally:
        driver.end()


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--job", default="orders")
    parser.add_argument("--executors", default="0,1,2,4", help="0: no cluster")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    load = (20_000, 5.0) if options.quick else (200_000, 20.0)
    places = [int(each) for each in options.executors.split(",")]
    rounds: dict[int, list[dict[str, float]]] = {executors: [] for executors in places}
    killed: list[float] = []
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        Path(folder).chmod(0o711)
        settings = broker_settings(Path(folder), None)
        with broker(settings):
            for number in range(options.repeats):
                for executors in places if number % 2 else places[::-1]:
                    with place(settings, executors, number) as (own, cluster):
                        elsewhere = (lambda: 0.0) if cluster is None else cluster.cpu_s
                        figures = measure(own, options.job, *load, warm=load[0], elsewhere=elsewhere)
                    rounds[executors].append(figures)
                    say(
                        f"{executors} executors: "
                        + ", ".join(f"{each} {value:,.2f}" for each, value in figures.items())
                    )
                with place(settings, 2, options.repeats + number) as (own, cluster):
                    assert cluster is not None
                    killed.append(after_a_kill(own, cluster, options.job))
                    say(f"next batch {killed[-1]:.1f} s after the kill of one of two executors")
    print(describe_machine())
    for executors, found in rounds.items():
        medians = {each: statistics.median(figures[each] for figures in found) for each in found[0]}
        told = ", ".join(f"{each} {value:,.2f}" for each, value in medians.items())
        print(f"{options.job}, {executors or 'no'} executors, median of {len(found)}: {told}")
    for executors in sorted(each for each in places if each > 1 and 1 in places):
        pairs = zip(rounds[executors], rounds[1], strict=True)
        ratio = statistics.median(many["records/CPU s"] / one["records/CPU s"] for many, one in pairs)
        print(f"records per CPU second on {executors} executors are {ratio:.2f} of those on one, median of pairs")
    print(f"next batch after the kill of one of two executors: {statistics.median(killed):.1f} s, median")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
