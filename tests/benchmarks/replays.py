"""`make bench-replay`: a replay beside the live host and a plain Spark SQL recomputation, and publishes under a stream.

    python -m tests.benchmarks.replays                                           everything
    python -m tests.benchmarks.replays --records 100000 --repeats 1 --pairs 1     does it work? not a measurement

The pipeline is `jobs/orders.py` with its sample data. In every round the live host works through the records that are
in Kafka, then a replay goes through what it has recorded, then Spark SQL computes the tables from the same records. A
replay of which a single row differs from the live tables fails the run. What the figures say: `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from deltalake import DeltaTable

from deltaworks.control import heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import prepare
from deltaworks.lakehouse.publish import comparison
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.replay.model import Order, ReplayPaths
from deltaworks.settings import Settings
from deltaworks.stack.jars import ensure_jars
from deltaworks.testing.sample_data import SampleRecord, produce
from jobs.orders import pipeline
from jobs.sample_data import orders
from tests.benchmarks import publishing, spark_sql
from tests.benchmarks.measure import Watch, cost, end_tree
from tests.benchmarks.run import (
    CONTROL_TOPICS,
    broker,
    broker_settings,
    drop_topics,
    elapsed_s,
    new_report,
    say,
    summary,
)
from tests.benchmarks.systems import CORES, HEAP, clear
from tests.benchmarks.throughput import RunFailed, tail

_SAMPLE_S = 0.2
_TIMEOUT_S = 900.0
_QUARTER = "orders-quarter"
_ENDLESS = 100_000_000
_BATCH = 25_000
_SMALL_BATCH = 5_000
"""A second of a stream that gets 5,000 records a second."""
_WORKING = "working_records_per_cpu_s"
"""Without the start: from the moment that Spark's session is up."""
_SOURCES = tuple(pipeline.plan().source_topics)
_PUBLISHED = ("enriched_orders", "order_counts", "user_revenue", "dead_letters")
"""Not `user_sessions`: the busiest users' sessions never end, so its first day stays open and is not published."""
_COMPARED = {
    "order_counts": ("user_id, window_start", "orders"),
    "user_revenue": ("user_id, window_start", "revenue"),
    "user_sessions": ("user_id, window_start", "orders"),
    "enriched_orders": ("source_partition, source_offset", "user_name"),
}
"""Of the tables that Spark SQL computes too: what a row is, and what it says."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line decides."""

    records: int
    repeats: int
    pairs: int
    """Publishes, each with its rollback, of all days and as many of a quarter of them."""
    rate: int
    output: Path
    bootstrap: str | None


@dataclass
class Bench:
    """One invocation."""

    options: Options
    settings: Settings
    scratch: Path
    report: dict[str, Any]
    records: int = 0
    """In the source topics when the rounds begin."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def run_all(self) -> None:
        """Rounds, all of the same records, with publishes in the last one, then what is measured once."""
        prepare(self.settings.bootstrap, pipeline, pipeline.plan(), begun=False)
        later = self._load()
        for number in range(self.options.repeats):
            home = self._home(f"round-{number}")
            self._add("orders", "live", self._live(home, self.records, _BATCH))
            run_id = self._replay("orders", home)
            self._add("orders", "spark-sql", self._spark_sql(home, run_id))
            if number == self.options.repeats - 1 and self.options.pairs:
                self._publish(home, run_id, later)
            shutil.rmtree(home.home)
        for cell, batch in ((_QUARTER, _BATCH), ("orders-small-batches", _SMALL_BATCH)):
            home = self._home(cell)
            self._add(cell, "live", self._live(home, self.records // 4, batch))
            run_id = self._replay(cell, home)
            if cell == _QUARTER:
                self._add(cell, "spark-sql", self._spark_sql(home, run_id))
                self._discard(home, run_id)
                self._replay(cell, home, order="time")
            shutil.rmtree(home.home)

    def _load(self) -> Iterator[SampleRecord]:
        """Produces the records of the rounds; returns those that come after them."""
        begin = time.monotonic()
        sample = orders.records(_ENDLESS)
        self.records = produce(self.settings.bootstrap, islice(sample, self.options.records))
        say(f"{self.records:,} records loaded in {time.monotonic() - begin:.0f} s")
        return sample

    def _home(self, name: str) -> Settings:
        """Settings of a stream that has a folder of its own; the broker knows of none before it."""
        drop_topics(self.settings.bootstrap, CONTROL_TOPICS)
        return replace(self.settings, home=clear(self.scratch / name), cores=CORES, driver_memory=HEAP)

    def _live(self, home: Settings, records: int, batch: int) -> dict[str, Any]:
        """The stream until it has committed so many records; it ends after the batch in which it is then."""
        beat = PipelinePaths.of(home, pipeline.name).heartbeat

        def progress() -> int:
            latest = heartbeat.read(beat)
            return 0 if latest is None else sum(sum(latest.next_offsets.get(topic, {}).values()) for topic in _SOURCES)

        def is_up() -> bool:
            latest = heartbeat.read(beat)
            return latest is not None and latest.state == "running"

        environment = replace(home, max_records_per_batch=batch).process_environment()
        command = [sys.executable, "-m", "deltaworks.cli", "run", pipeline.name]
        with _started(command, environment, home.home / "live.log") as (process, log):
            run = _Run(process, log, progress, is_up)
            run.until(records)
        return {"max_records_per_batch": batch, **run.cost()}

    def _replay(self, cell: str, home: Settings, order: Order = "recorded") -> str:
        """The phase `run`, from the start of the process to its end. Compares all tables; returns the id of the run."""
        own = PipelinePaths.of(home, pipeline.name)

        def paths() -> ReplayPaths | None:
            found = list(own.replays.glob("*/plan.json"))
            return ReplayPaths.of(own, found[0].parent.name) if found else None

        def is_up() -> bool:
            run = paths()
            return run is not None and (run.root / "progress.json").exists()

        def progress() -> int:
            run = paths()
            return run.read_plan().records if run is not None and "run" in run.read_state().done else 0

        options = ["--order", order, "--until", "run", *(f"--table={table}" for table in _PUBLISHED)]
        command = [sys.executable, "-m", "deltaworks.cli", "replay", pipeline.name, *options]
        with _started(command, home.process_environment(), home.home / f"replay-{order}.log") as (process, log):
            replayed = _Run(process, log, progress, is_up)
            replayed.until_end()
        run = paths()
        assert run is not None
        plan = run.read_plan()
        measured = {
            "batches": plan.last_batch - plan.first_batch + 1,
            **replayed.cost(),
            **self._differences(home, run, same_batches=order == "recorded"),
        }
        if order == "recorded" and measured["rows_that_differ"]:
            raise RunFailed(f"{measured['rows_that_differ']:,} rows of the replay are not those of the live tables")
        self._add(cell, "replay" if order == "recorded" else "replay-by-time", measured)
        return plan.run_id

    def _differences(self, home: Settings, run: ReplayPaths, *, same_batches: bool) -> dict[str, int]:
        """All tables, whole; days with open windows are left out."""
        plan = run.read_plan()
        schemas = plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)
        found = comparison.compare(
            schemas,
            home.tables,
            run.tables,
            from_ms=None,
            to_ms=None,
            end_offsets=plan.end_offsets,
            last_batch=plan.last_batch,
            tables=[schema.name for schema in schemas],
            same_batches=same_batches,
            limits=comparison.Limits(memory_mb=2_048),
        )
        return {
            "rows_compared": sum(table.rows.production for table in found.tables),
            "rows_that_differ": found.differences,
        }

    def _spark_sql(self, home: Settings, run_id: str) -> dict[str, Any]:
        """The records of a replay; from the start of the process to its end."""
        plan = ReplayPaths.of(PipelinePaths.of(home, pipeline.name), run_id).read_plan()
        folder = clear(home.home / "spark-sql")
        jars = [*ensure_jars(self.settings, "spark-kafka"), *ensure_jars(self.settings, "spark")]
        options = {
            "bootstrap": self.settings.bootstrap,
            "folder": str(folder),
            "jars": ",".join(map(str, jars)),
            "cores": str(CORES),
            "heap": HEAP,
            "end_offsets": msgspec.json.encode(plan.end_offsets).decode(),
        }
        command = [sys.executable, "-m", "tests.benchmarks.spark_sql", msgspec.json.encode(options).decode()]

        def is_up() -> bool:
            return (folder / spark_sql.READY).exists()

        def progress() -> int:
            return plan.records if (folder / spark_sql.DONE).exists() else 0

        with _started(command, {}, folder / "log.txt") as (process, log):
            run = _Run(process, log, progress, is_up)
            run.until_end()
        rows, different = spark_sql_differences(home.tables, folder / "tables")
        return {
            **run.cost(),
            "rows_compared": rows,
            **{f"rows_that_differ_in_{table}": count for table, count in different.items()},
            "rows_that_differ": sum(different.values()),
        }

    def _publish(self, home: Settings, run_id: str, later: Iterator[SampleRecord]) -> None:
        """All days and a quarter of them, in turn, while records arrive."""
        with publishing.stream(home, later, self.options.rate) as stream:
            cells = publishing.cells(home, run_id)
            for _ in range(self.options.pairs):
                for name, request in cells.items():
                    for command in stream.publish_and_roll_back(request):
                        self._add(f"{command.kind}-{name}", "live", asdict(command))
            self._add("publish-beside", "live", asdict(stream.undisturbed()))

    def _discard(self, home: Settings, run_id: str) -> None:
        command = [sys.executable, "-m", "deltaworks.cli", "discard", run_id]
        subprocess.run(command, env={**os.environ, **home.process_environment()}, check=True, capture_output=True)

    def _add(self, cell: str, system: str, measured: Mapping[str, Any]) -> None:
        run = {"load_average": round(os.getloadavg()[0], 2), **measured}
        self.runs.setdefault((cell, system), []).append(run)
        say(f"{cell} {system}: " + ", ".join(f"{name} {value}" for name, value in run.items()))
        self.save()

    def save(self) -> None:
        """Writes everything measured so far."""
        self.report["records"] = self.records
        self.report["cells"] = [
            {"cell": cell, "system": system, "summary": summary(runs), "runs": runs}
            for (cell, system), runs in self.runs.items()
        ]
        self.report["comparisons"] = list(self.comparisons())
        temporary = self.options.output.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self.report), indent=1))
        temporary.replace(self.options.output)

    def comparisons(self) -> Iterator[dict[str, Any]]:
        """Records per CPU-second of the replay over those of the others, by medians."""
        for (cell, system), runs in self.runs.items():
            replayed = self.runs.get((cell, "replay"))
            if replayed is None or system == "replay":
                continue
            ours, other = summary(replayed), summary(runs)
            keys = ("records_per_cpu_s", _WORKING)
            compared = {f"{key}_ratio": round(ours[key]["median"] / other[key]["median"], 3) for key in keys}
            if cell == "orders" and (rates := self._rates(system)):
                compared["further_records_per_cpu_s"], compared["further_records_per_cpu_s_ratio"] = rates
            yield {"cell": cell, "systems": f"replay / {system}", **compared}

    def _rates(self, system: str) -> tuple[float, float] | None:
        """What a CPU-second does with further records, and how many times that the replay does: everything that does
        not depend on the number of records is in both cells."""
        rates = []
        for each in (system, "replay"):
            if (_QUARTER, each) not in self.runs:
                return None
            whole, quarter = (summary(self.runs[cell, each]) for cell in ("orders", _QUARTER))
            records, cpu_s = (whole[key]["median"] - quarter[key]["median"] for key in ("records", "cpu_s"))
            rates.append(round(records / cpu_s, 1))
        return rates[0], round(rates[1] / rates[0], 3)


def spark_sql_differences(live: Path, recomputed: Path) -> tuple[int, dict[str, int]]:
    """Rows of the live tables that Spark SQL has too, and per table rows that are other, missing or additional."""
    rows, different = 0, dict[str, int]()
    with duckdb.connect() as connection:
        for name, (identity, value) in _COMPARED.items():
            for side, root in (("live", live), ("recomputed", recomputed)):
                connection.register(side, DeltaTable(root / name).to_pyarrow_dataset())
            counted = connection.execute(
                f"SELECT count(l.{value}), count(*) FILTER (l.{value} IS DISTINCT FROM r.{value}) "
                f"FROM live l FULL JOIN recomputed r USING ({identity})"
            ).fetchall()
            rows, different[name] = rows + counted[0][0], counted[0][1]
    return rows, different


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process, which is told to end in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, log
    finally:
        end_tree(process.pid, timeout_s=120)
        process.wait(timeout=30)


class _Run:
    """A process that works on the records, sampled until they are done."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, progress: Callable[[], int], is_up: Callable[[], bool]
    ) -> None:
        """
        Args:
            process: root of the tree that is measured.
            log: what it says.
            progress: committed records.
            is_up: Spark's session is there, and work on the records begins.
        """
        self._process, self._log, self._is_up = process, log, is_up
        self._watch = Watch(process.pid, progress)
        self._start_cpu_s: float | None = None

    def until(self, records: int) -> None:
        """Until so many are committed."""
        self._wait(lambda: self._watch.samples[-1].consumed >= records)

    def until_end(self) -> None:
        """Until it has ended well."""
        self._wait(lambda: self._process.poll() == 0)
        self._watch.sample()

    def cost(self) -> dict[str, Any]:
        """As a whole, and without the start."""
        found = cost(self._watch.samples, self._watch.samples[-1].consumed)
        working_s = found.cpu_s - (self._start_cpu_s or 0.0)
        whole = {key: value for key, value in asdict(found).items() if not key.startswith("steady")}
        return {**whole, "start_cpu_s": self._start_cpu_s, _WORKING: round(found.records / working_s, 1)}

    def _wait(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        self._sample()
        while not fact():
            if self._process.poll() or time.monotonic() > deadline:
                code = self._process.returncode
                raise RunFailed(f"{self._process.args!r} ended with {code}, or took too long:\n{tail(self._log)}")
            time.sleep(_SAMPLE_S)
            self._sample()

    def _sample(self) -> None:
        sample = self._watch.sample()
        if self._start_cpu_s is None and self._is_up():
            self._start_cpu_s = round(sample.cpu_s, 2)


def table(report: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    shown = (
        *(_WORKING, "records_per_cpu_s", "records_per_s", "peak_memory_mb", "rows_that_differ"),
        *("seconds", "delay_s", "batch_s", "rows"),
    )
    lines = ["| cell | system | " + " | ".join(shown) + " |", "|---" * (len(shown) + 2) + "|"]
    for entry in report["cells"]:
        found = entry["summary"]
        cells = [
            "{median:,.10g} ({min:,.10g}-{max:,.10g})".format(**found[name]) if name in found else "" for name in shown
        ]
        lines.append(f"| {entry['cell']} | {entry['system']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> Options:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replays", description="Benchmarks of the replay.")
    parser.add_argument("--records", type=int, default=200_000, help="in the source topics; default 200,000")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; default 3")
    parser.add_argument("--pairs", type=int, default=5, help="publishes per number of days; default 5")
    parser.add_argument("--rate", type=int, default=1_000, help="records per second while publishing; default 1,000")
    parser.add_argument("--output", type=Path, default=Path("bench-replay-results.json"))
    parser.add_argument("--bootstrap", help="use this broker, whose topics are empty, instead of starting one")
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str]) -> int:
    """Runs everything; a failure ends it, what was measured until then is written."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        scratch = Path(folder)
        settings = broker_settings(scratch, options.bootstrap)
        report = new_report(asdict(options))
        bench = Bench(options=options, settings=settings, scratch=scratch, report=report)
        if options.bootstrap is None:
            with broker(settings):
                bench.run_all()
        else:
            bench.run_all()
    report["seconds"] = round(elapsed_s())
    bench.save()
    print(table(report))
    for compared in report["comparisons"]:
        print(compared)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
