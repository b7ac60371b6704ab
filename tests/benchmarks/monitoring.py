"""`make bench-monitoring`: what metrics cost a stream: with an endpoint that is asked as Prometheus does, and without.

    python -m tests.benchmarks.monitoring
    python -m tests.benchmarks.monitoring --repeats 1 --quick   does it work? not a measurement

Each run has a home of its own and the same sample data at the same rate; with and without take turns, and so does which
of them is first. The endpoint is asked as often as `deltaworks metrics --scrape-config` says; who asks it is not
counted, like the broker. CPU seconds are those of the driver with its JVM and workers, and of its Python process alone,
which has the endpoint: there, a small cost is not lost in the noise of Spark.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltaworks.metrics import endpoint, prometheus
from deltaworks.settings import Settings
from tests.benchmarks.run import broker, broker_settings, describe_machine, say
from tests.benchmarks.start import ROOT, Clone, Driver, Sample, home

WITH, WITHOUT = "with metrics", "without"
LIMIT = 0.02
"""The share of a stream's CPU that metrics may cost."""
_ALL, _PYTHON, _BATCHES = "CPU s/batch", "Python CPU s/batch", "batches"
_FIRST, _PER_S = 5_000, 500
_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
"""As Prometheus 2.42 asks."""


@dataclass
class Scraper:
    """Asks an endpoint as Prometheus does.

    Args:
        settings: of the home.
        job: the stream; until its driver serves metrics, nobody is asked.
        every_s: the pause between two scrapes.
    """

    settings: Settings
    job: str
    every_s: float
    scrapes: int = 0
    size_bytes: int = 0
    """Of the last answer."""
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[Scraper]:
        """It asks until the end of the block."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self.every_s):
            if (address := endpoint.targets(self.settings).get(self.job)) is not None:
                headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip"}
                request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
                with urllib.request.urlopen(request, timeout=10) as answer:
                    self.size_bytes = len(answer.read())
                self.scrapes += 1


def interval_s(settings: Settings) -> float:
    """How often Prometheus asks drivers."""
    (first, *_) = re.findall(r"scrape_interval: (\d+)s", prometheus.scrape_config(settings))
    return float(first)


def measured(settings: Settings, job: str, fed_s: float, *, asked: bool) -> dict[str, float]:
    """A stream with a steady flow: what a batch costs.

    Args:
        settings: of a home that nobody has used.
        job: the stream.
        fed_s: how long records flow, in seconds.
        asked: whether it has metrics, and somebody asks for them.
    """
    own = replace(settings, metrics="on" if asked else "off")
    sample = Sample.of(own, job)
    sample.more(_FIRST)
    driver = Driver(Clone(name="this", root=ROOT), own, job)
    scraper = Scraper(own, job, interval_s(own))
    try:
        with scraper.running():
            driver.until(lambda: driver.caught_up(own.bootstrap))
            sample.more(round(_PER_S * fed_s / 3), _PER_S)  # classes, compiled code
            driver.until(lambda: driver.caught_up(own.bootstrap, snapshots=False))
            scraped, committed, used, python = scraper.scrapes, driver.batches(), driver.cpu_s, driver.python_cpu_s
            sample.more(round(_PER_S * fed_s), _PER_S)
            driver.until(lambda: driver.caught_up(own.bootstrap, snapshots=False))
            batches = max(1, driver.batches() - committed)
            found = {
                _ALL: (driver.cpu_s - used) / batches,
                _PYTHON: (driver.python_cpu_s - python) / batches,
                _BATCHES: batches,
                "scrapes": scraper.scrapes - scraped,
                "bytes": scraper.size_bytes,
            }
    finally:
        driver.end()
    least, most = (0.5 * fed_s / scraper.every_s, float("inf")) if asked else (0.0, 0.0)
    if not least <= found["scrapes"] <= most:
        raise AssertionError(f"{job} {WITH if asked else WITHOUT}: {found['scrapes']:g} scrapes, not {least:g} or more")
    return found


def verdict(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> tuple[str, bool]:
    """What pairs of runs say, each with metrics and without, and whether metrics cost less than the limit.

    The whole decides if its pairs are close enough to each other for that; else what the Python process has used more,
    as a share of the whole.
    """
    shares = [there[_ALL] / bare[_ALL] - 1 for there, bare in pairs]
    of_python = [(there[_PYTHON] - bare[_PYTHON]) / bare[_ALL] for there, bare in pairs]
    is_close = len(shares) > 1 and max(shares) - min(shares) < LIMIT
    share = statistics.median(shares if is_close else of_python)
    told = (
        f"CPU per batch with metrics is {1 + statistics.median(shares):.3f} of that without "
        f"({', '.join(f'{1 + each:.3f}' for each in shares)}); its Python process uses "
        f"{statistics.median(of_python):+.2%} of all more ({', '.join(f'{each:+.2%}' for each in of_python)}): "
        f"{share:+.2%} by {'the whole' if is_close else 'the Python process'}, at most {LIMIT:.0%} wanted"
    )
    return told, share <= LIMIT


def main(arguments: Sequence[str]) -> int:
    """Measures, prints; 1 if metrics cost more than they may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--job", default="orders")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    fed_s = 15.0 if options.quick else 60.0
    pairs = []
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        settings = broker_settings(Path(folder), None)
        with broker(settings):
            for number in range(options.repeats):
                pair = {}
                for asked in (number % 2 == 0, number % 2 != 0):
                    name = WITH if asked else WITHOUT
                    with home(settings, f"{number}-{'on' if asked else 'off'}") as own:
                        pair[asked] = measured(own, options.job, fed_s, asked=asked)
                    told = ", ".join(f"{each} {value:,.3f}" for each, value in pair[asked].items())
                    say(f"{options.job} {name}: {told}")
                pairs.append((pair[True], pair[False]))
    print(describe_machine())
    told, is_right = verdict(pairs)
    print(f"{options.job}, {len(pairs)} pairs: {told}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
