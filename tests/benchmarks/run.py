"""`make bench`: every cell in one run, interleaved, into `bench-results.json`.

    python -m tests.benchmarks.run                    everything, about 30 minutes
    python -m tests.benchmarks.run --quick            every cell once with few records: does it work?
    python -m tests.benchmarks.run --cells count,join --repeats 3

How to read the results, and what they do not say: `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
from confluent_kafka.admin import AdminClient

from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.ports import free_ports
from tests.benchmarks import data, live, throughput
from tests.benchmarks.systems import CORES, Job, System, SystemName, Topology, clear, system

BROKER_OPTIONS = ("-Xms256m", "-Xmx768m", "-XX:+UseSerialGC")
_KEPT = (
    *("records_per_cpu_s", "steady_records_per_cpu_s", "peak_memory_mb", "records_out"),
    *("p50_ms", "p99_ms", "cpu_s_per_s"),
    *("idle_cpu_s_per_minute", "tiny_batch_cpu_s"),
)
"""What is shown while it runs and compared between the systems."""


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """A throughput cell: the same topology for several systems."""

    topology: Topology
    record_cache: bool = True
    systems: tuple[SystemName, ...] = ("deltaworks", "kafka-streams")

    @property
    def input(self) -> str:
        """The topic."""
        return data.BIDS_IN_AVRO if self.topology.endswith("-avro") else data.BIDS


@dataclass(frozen=True, kw_only=True)
class Latency:
    """A latency cell: the join at a steady rate."""

    rate: int
    transactions: bool = False
    """The records come in transactions, as from another pipeline."""
    table: str | None = None
    """Read this Delta table instead of the output topic."""
    pipeline: str | None = None
    systems: tuple[SystemName, ...] = ("deltaworks", "kafka-streams")


@dataclass(frozen=True, kw_only=True)
class Idle:
    """The cost of doing nothing, and of very little, with the count."""

    systems: tuple[SystemName, ...] = ("deltaworks", "kafka-streams")


@dataclass(frozen=True, kw_only=True)
class WindowTables:
    """How the cost of a commit depends on the size of a window table; deltaworks only."""

    systems: tuple[SystemName, ...] = ("deltaworks",)


Cell = Backlog | Latency | Idle | WindowTables

CELLS: Mapping[str, Cell] = {
    "filter": Backlog(topology="filter"),
    "count": Backlog(topology="count", systems=("deltaworks", "kafka-streams", "spark-native")),
    "count-uncached": Backlog(topology="count", record_cache=False),
    "filter-avro": Backlog(topology="filter-avro"),
    "count-avro": Backlog(topology="count-avro"),
    "session": Backlog(topology="session"),
    "session-uncached": Backlog(topology="session", record_cache=False),
    "join": Backlog(topology="join"),
    "latency-1000": Latency(rate=1_000),
    "latency-10000": Latency(rate=10_000),
    "latency-1000-transactions": Latency(rate=1_000, transactions=True),
    "latency-1000-delta": Latency(rate=1_000, table="enriched_bids", pipeline="join_delta", systems=("deltaworks",)),
    "latency-10000-delta": Latency(rate=10_000, table="enriched_bids", pipeline="join_delta", systems=("deltaworks",)),
    "idle": Idle(),
    "window-tables": WindowTables(),
}
CONTROL_TOPICS = "__deltaworks-"
ONCE = frozenset(name for name, cell in CELLS.items() if not isinstance(cell, Backlog))
"""Cells that are long and steady: one run each."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line decides."""

    cells: tuple[str, ...]
    systems: tuple[str, ...]
    records: int
    repeats: int
    minutes: float
    """No run is repeated that would not end within this time; every cell runs once."""
    quick: bool
    output: Path
    bootstrap: str | None
    collector: str
    """Garbage collector of Kafka Streams' JVM."""


@dataclass
class Bench:
    """One invocation."""

    options: Options
    settings: Settings
    scratch: Path
    report: dict[str, Any]
    systems: dict[SystemName, System] = field(default_factory=dict)
    runs: dict[tuple[str, SystemName], list[dict[str, Any]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: dict[tuple[str, SystemName], float] = field(default_factory=dict)
    """What the last run of a cell took, preparation and check included."""

    def run_all(self) -> None:
        """Every cell for every system; the runs of a cell alternate between the systems."""
        for repeat in range(self.options.repeats):
            for name in self.options.cells:
                if repeat and name in ONCE:
                    continue
                for system_name in CELLS[name].systems:
                    if system_name in self.options.systems and self._fits(name, system_name):
                        self._run(name, system_name)

    def _fits(self, cell: str, system_name: SystemName) -> bool:
        expected_s = self.seconds.get((cell, system_name))
        if expected_s is None:
            return True
        return elapsed_s() + expected_s <= self.options.minutes * 60

    def _run(self, cell: str, system_name: SystemName) -> None:
        label = f"{cell} on {system_name}"
        begin = time.monotonic()
        try:
            result = self._measure(cell, system_name)
        except (throughput.RunFailed, subprocess.CalledProcessError) as problem:
            self.failures.append(f"{label}: {problem}")
            self.seconds[cell, system_name] = float("inf")
            say(f"{label}: FAILED after {time.monotonic() - begin:.0f} s: {problem}")
            return
        self.seconds[cell, system_name] = time.monotonic() - begin
        self.runs.setdefault((cell, system_name), []).append(result)
        shown = ", ".join(f"{key} {result[key]:,}" for key in _KEPT if key in result)
        say(f"{label}: {time.monotonic() - begin:.0f} s; {shown}")
        self.save()

    def _measure(self, cell_name: str, system_name: SystemName) -> dict[str, Any]:
        cell, quick = CELLS[cell_name], self.options.quick
        if isinstance(cell, WindowTables):
            return window_tables(self.scratch, quick=quick)
        target = self._system(system_name)
        name = f"bench-{cell_name}-{system_name}-{time.time_ns() // 1_000_000}"
        job = Job(
            topology="count",
            record_cache=True,
            input=f"{name}-in",
            output=f"{name}-out",
            folder=clear(self.scratch / name),
            name=name,
        )
        bootstrap = self.settings.bootstrap
        try:
            match cell:
                case Backlog():
                    job = replace(job, topology=cell.topology, record_cache=cell.record_cache, input=cell.input)
                    return throughput.run(target, job, bootstrap, self.options.records).as_json()
                case Latency():
                    job = replace(job, topology="join", pipeline=cell.pipeline)
                    return asdict(
                        live.measure_latency(
                            target,
                            job,
                            bootstrap,
                            rate=cell.rate,
                            warm_up_s=3 if quick else 5,
                            measured_s=5 if quick else 20,
                            transactions=cell.transactions,
                            table=cell.table,
                        )
                    )
                case Idle():
                    return asdict(
                        live.measure_idle(
                            target,
                            job,
                            bootstrap,
                            settle_s=3 if quick else 10,
                            idle_s=10 if quick else 60,
                            bursts=5 if quick else 10,
                        )
                    )
        finally:
            drop_topics(bootstrap, name, CONTROL_TOPICS)  # the next run has another home, so it is another lineage
            shutil.rmtree(job.folder, ignore_errors=True)

    def _system(self, name: SystemName) -> System:
        if name not in self.systems:
            self.systems[name] = system(name, self.settings, self.scratch, self.options.collector)
        return self.systems[name]

    def save(self) -> None:
        """Writes everything measured so far."""
        self.report["cells"] = [
            {"cell": cell, "system": name, "summary": summary(runs), "runs": runs}
            for (cell, name), runs in self.runs.items()
        ]
        self.report["comparisons"] = list(self.comparisons())
        self.report["failures"] = self.failures
        temporary = self.options.output.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self.report), indent=1))
        temporary.replace(self.options.output)

    def comparisons(self) -> Iterator[dict[str, Any]]:
        """deltaworks over Kafka Streams, by medians, for every cell that both ran."""
        for cell in self.options.cells:
            ours, theirs = self.runs.get((cell, "deltaworks")), self.runs.get((cell, "kafka-streams"))
            if not ours or not theirs:
                continue
            mine, other = summary(ours), summary(theirs)
            compared: dict[str, Any] = {"cell": cell}
            for key in mine.keys() & other.keys() & set(_KEPT):
                if mine[key]["median"] and other[key]["median"]:
                    compared[f"{key}_ratio"] = round(mine[key]["median"] / other[key]["median"], 3)
            if "result_hash" in ours[0]:
                compared["same_results"] = len({run["result_hash"] for run in [*ours, *theirs]}) == 1
            yield compared


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Minimum, median and maximum of every number over the runs of a cell."""
    numbers = [key for key, value in runs[0].items() if isinstance(value, int | float)]
    return {
        key: {
            "min": min(run[key] for run in runs),
            "median": statistics.median(run[key] for run in runs),
            "max": max(run[key] for run in runs),
        }
        for key in numbers
    }


def window_tables(scratch: Path, *, quick: bool) -> dict[str, Any]:
    """The flatness of window tables; measured by its own module in a process of its own."""
    output = scratch / "window-tables.json"
    sizes = ["--sizes", "10000,100000"] if quick else []
    folder = clear(scratch / "window-tables")
    command = [sys.executable, "-m", "tests.benchmarks.window_tables", "--scratch", str(folder)]
    subprocess.run([*command, *sizes, "--output", str(output)], check=True)
    shutil.rmtree(folder)
    measured: dict[str, Any] = {"table": msgspec.json.decode(output.read_bytes())}
    return measured


def drop_topics(bootstrap: str, *prefixes: str) -> None:
    """Removes the topics of one run, Kafka Streams' internal ones and the control topics of pipelines too."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefixes)]
    if names:
        for future in admin.delete_topics(names).values():
            future.result(timeout=60)
    while not admin.list_topics(timeout=30).topics.keys().isdisjoint(names):
        time.sleep(0.05)  # the broker answers before it has heard of it itself


def preload(bootstrap: str, records: int) -> None:
    """Fills the bids and the table, unless they are there already."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    known = admin.list_topics(timeout=30).topics
    topics = (data.BIDS, data.BIDS_IN_AVRO)
    if {*topics, data.AUCTIONS} <= known.keys() and all(
        sum(data.end_offsets(bootstrap, each)) == records for each in topics
    ):
        return
    begin = time.monotonic()
    data.recreate(bootstrap, *topics)
    data.recreate(bootstrap, data.AUCTIONS, compacted=True)
    data.load(bootstrap, data.AUCTIONS, data.auctions())
    data.load(bootstrap, data.BIDS, data.bids(records))
    data.load(bootstrap, data.BIDS_IN_AVRO, data.bids_in_avro(records))
    say(f"{records:,} bids loaded in {time.monotonic() - begin:.0f} s")


@contextmanager
def broker(settings: Settings) -> Iterator[None]:
    """A broker of our own for the time of the benchmark; it leaves nothing."""
    up(settings, say, only=("kafka",), tethered=True)
    try:
        yield
    finally:
        down(settings, say, delete_data=True)


def describe_machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {"cpu": model, "cores": os.cpu_count(), "cores_per_system": CORES, "python": platform.python_version()}


def revision() -> str:
    """The commit that is measured, marked when files differ from it."""
    try:
        commit = _git("rev-parse", "HEAD")
        return commit + ("-changed" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def elapsed_s() -> float:
    """Since this process began."""
    return time.time() - psutil.Process().create_time()


def say(text: str) -> None:
    """Progress, a line at a time."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def table(report: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    rows = [
        "| cell | system | steady k/CPU-s | whole k/CPU-s | memory MB | out | p50 / p99 ms | idle, tiny CPU-s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in report["cells"]:
        found = entry["summary"]

        def show(key: str, scale: float = 1.0, found: Any = found) -> str:
            if key not in found:
                return ""
            if not found[key]["max"]:
                return "-"
            low, middle, high = (found[key][part] / scale for part in ("min", "median", "max"))
            digits = 0 if middle >= 10 else 2
            spread = f" ({low:,.{digits}f}-{high:,.{digits}f})" if high > low else ""
            return f"{middle:,.{digits}f}{spread}"

        idle = f"{show('idle_cpu_s_per_minute')}, {show('tiny_batch_cpu_s')}" if "tiny_batch_cpu_s" in found else ""
        latency = f"{show('p50_ms')} / {show('p99_ms')}" if "p50_ms" in found else ""
        rows.append(
            f"| {entry['cell']} | {entry['system']} | {show('steady_records_per_cpu_s', 1e3)} "
            f"| {show('records_per_cpu_s', 1e3)} | {show('peak_memory_mb')} | {show('records_out')} "
            f"| {latency} | {idle} |"
        )
    return "\n".join(rows)


def parse(arguments: Sequence[str]) -> Options:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.run", description="Benchmarks of deltaworks.")
    parser.add_argument("--cells", default=",".join(CELLS), help="comma-separated; known: " + ", ".join(CELLS))
    parser.add_argument("--systems", default="deltaworks,kafka-streams,spark-native")
    parser.add_argument("--records", type=int, help="preloaded bids; 5,000,000, or 500,000 with --quick")
    parser.add_argument("--repeats", type=int, help="most runs per throughput cell; 3, or 1 with --quick")
    parser.add_argument("--minutes", type=float, default=28, help="repeat runs only as long as this; default 28")
    parser.add_argument("--quick", action="store_true", help="every cell once and short: a check, not a measurement")
    parser.add_argument("--output", type=Path, default=Path("bench-results.json"))
    parser.add_argument("--bootstrap", help="use this broker instead of starting one")
    parser.add_argument("--collector", default="-XX:+UseParallelGC", help="garbage collector of Kafka Streams' JVM")
    given = parser.parse_args(arguments)
    cells = tuple(given.cells.split(","))
    if unknown := set(cells) - CELLS.keys():
        parser.error(f"unknown cells: {', '.join(sorted(unknown))}; known: {', '.join(CELLS)}")
    return Options(
        cells=cells,
        systems=tuple(given.systems.split(",")),
        records=given.records or (500_000 if given.quick else 5_000_000),
        repeats=given.repeats or (1 if given.quick else 3),
        minutes=given.minutes,
        quick=given.quick,
        output=given.output,
        bootstrap=given.bootstrap,
        collector=given.collector,
    )


def broker_settings(scratch: Path, bootstrap: str | None) -> Settings:
    """Of a broker on free ports that keeps its data in a folder; or of the one that was given."""
    port, controller = free_ports(2)
    return replace(
        Settings.from_environment(),
        home=scratch / "broker",
        bootstrap=bootstrap or f"127.0.0.1:{port}",
        controller_port=controller,
        broker_options=BROKER_OPTIONS,
    )


def new_report(options: Mapping[str, object]) -> dict[str, Any]:
    """Where, when, of which code, and with which options."""
    return {
        "revision": revision(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": describe_machine(),
        "settings": {key: str(value) for key, value in options.items()},
    }


def main(arguments: Sequence[str]) -> int:
    """Runs what was asked for; 1 if a run failed or exact systems disagree."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        scratch = Path(folder)
        settings = broker_settings(scratch, options.bootstrap)
        report = new_report(asdict(options))
        bench = Bench(options=options, settings=settings, scratch=scratch, report=report)
        run: Callable[[], None] = bench.run_all
        if options.bootstrap is None:
            with broker(settings):
                preload(settings.bootstrap, options.records)
                run()
        else:
            preload(settings.bootstrap, options.records)
            run()
    report["seconds"] = round(elapsed_s())
    bench.save()
    print(table(report))
    for compared in report["comparisons"]:
        print(compared)
    different = [str(c) for c in report["comparisons"] if c.get("same_results") is False]
    for problem in [*bench.failures, *different]:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if bench.failures or different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
