"""`make bench-object-store`: one stream with its tables on a local disk, in an object store, and all that lasts there.

    python -m tests.benchmarks.object_store
    python -m tests.benchmarks.object_store --repeats 1 --quick   does it work? not a measurement

Each run has a home of its own, a broker that has the sample data, and, for the store, SeaweedFS on the same cores,
whose CPU is not counted, like the broker's. Requests are those of the driver's heartbeat.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltaworks.control import heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings
from tests.benchmarks.run import broker, broker_settings, describe_machine, say
from tests.benchmarks.start import Clone, Driver, Sample, home
from tests.system.kills.store_under_kills import stored

_FIRST, _PER_S = 5_000, 500
_PLACES = ("disk", "store", "storage")
"""`store` has the tables, `storage` also what the stream needs to go on."""
_KINDS = ("PUT", "GET", "HEAD", "LIST")


@contextmanager
def place(settings: Settings, name: str, number: int) -> Iterator[Settings]:
    """A new home with its tables in one of the places."""
    with home(settings, f"{name}-{number}") as own:
        if name == "disk":
            yield own
            return
        with stored(own, everything=name == "storage") as store:
            yield store.settings


def measure(
    settings: Settings,
    job: str,
    backlog: int,
    fed_s: float,
    *,
    warm: int | None = None,
    elsewhere: Callable[[], float] = lambda: 0.0,
) -> dict[str, float]:
    """A backlog, then a steady flow.

    Args:
        settings: of the stack; their project has the job.
        job: its name.
        backlog: records at once.
        fed_s: how long the flow lasts, in seconds.
        warm: records before it, for classes and compiled code; None: a quarter of the backlog.
        elsewhere: CPU seconds of processes that work for the stream and are not below its driver.
    """
    sample = Sample.of(settings, job)
    sample.more(_FIRST)
    driver = Driver(Clone(name="this", root=settings.project), settings, job)

    def used() -> float:
        return driver.cpu_s + elsewhere()

    try:
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        sample.more(backlog // 4 if warm is None else warm)
        driver.until(lambda: driver.caught_up(settings.bootstrap, snapshots=False))
        before, begun = used(), time.monotonic()
        sample.more(backlog)
        driver.until(lambda: driver.caught_up(settings.bootstrap, snapshots=False))
        took_s, used_s = time.monotonic() - begun, used() - before
        found = {"backlog records/s": backlog / took_s, "records/CPU s": backlog / used_s}
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        before, committed, asked = used(), driver.batches(), _requests(settings, job)
        sample.more(round(_PER_S * fed_s), _PER_S)
        driver.until(lambda: driver.caught_up(settings.bootstrap, snapshots=False))
        batches = max(1, driver.batches() - committed)
        found |= {"batches": batches, "CPU s/batch": (used() - before) / batches}
        now = _requests(settings, job)
        return found | {f"{kind}/batch": (now.get(kind, 0) - asked.get(kind, 0)) / batches for kind in _KINDS}
    finally:
        driver.end()


def _requests(settings: Settings, job: str) -> dict[str, int]:
    beat = heartbeat.read(PipelinePaths.of(settings, job).heartbeat)
    return {} if beat is None else beat.store_requests


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", default="wordcount,orders")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    load = (20_000, 5.0) if options.quick else (200_000, 30.0)
    rounds: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        settings = broker_settings(Path(folder), None)
        with broker(settings):
            for number in range(options.repeats):
                for job in options.jobs.split(","):
                    for name in _PLACES:
                        with place(settings, name, number) as own:
                            figures = measure(own, job, *load)
                        rounds.setdefault((job, name), []).append(figures)
                        say(f"{job} {name}: " + ", ".join(f"{each} {value:,.2f}" for each, value in figures.items()))
    print(describe_machine())
    for (job, name), found in rounds.items():
        medians = {each: statistics.median(figures[each] for figures in found) for each in found[0]}
        told = ", ".join(f"{each} {value:,.2f}" for each, value in medians.items())
        print(f"{job:10} {name:6} of {len(found)}: {told}")
    for job in options.jobs.split(","):
        for name in _PLACES[1:]:
            pairs = zip(rounds[job, name], rounds[job, "disk"], strict=True)
            ratio = statistics.median(there["records/CPU s"] / disk["records/CPU s"] for there, disk in pairs)
            print(f"{job}: records per CPU second with {name} are {ratio:.2f} of those on the disk, median of pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
