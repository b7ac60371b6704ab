"""The command `demo`: it deploys sample pipelines through Airflow on real components and recomputes every result.

The streams keep running under their supervisors. A second call finds everything in place, produces nothing twice and
compares again; a higher `--records` continues the data. If a call fails, it stops what it started.
"""

from __future__ import annotations

import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from deltaworks import clock, home
from deltaworks.cli import pipelines
from deltaworks.cli.console import Steps, out, print_table
from deltaworks.control import jobs
from deltaworks.errors import StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.serdes.schemas import Schemas
    from deltaworks.stack.credentials import Credentials
    from deltaworks.testing.sample_data import SampleRecord

_STUCK_S = 180.0
_POLL_S = 0.5
Report = Callable[[str], None]


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Demo")(demo)


def demo(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PIPELINE]...", help="Pipelines with sample data; default: orders.", show_default=False
        ),
    ] = None,
    all_of_them: Annotated[
        bool, typer.Option("--all", help="Every pipeline that has sample data and can run here, at once.")
    ] = False,
    records: Annotated[
        int,
        typer.Option(min=1_000, help="Records per pipeline in total; more than before continues the existing data."),
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the random data.")] = 7,
    rate: Annotated[float, typer.Option(help="Records per second while the streams run.")] = 2_000.0,
) -> None:
    """Start Kafka, PostgreSQL and Airflow, deploy pipelines, and compare every result with a recomputation.

    Exit code 1 if a single row differs.
    """
    stopped_by = _notice_signals()
    settings, steps = Settings.from_environment(), Steps()
    chosen = _all(settings) if all_of_them else names or ["orders"]
    run = _Demo(settings, steps, [_Job.of(settings, name) for name in chosen], records, seed, rate)
    try:
        equal = run.everything()
    except BaseException:
        run.stop_what_was_started()
        if stopped_by:  # whatever error the interrupted library raised
            raise SystemExit(128 + stopped_by[0]) from None
        raise
    if not equal:
        run.stop_what_was_started()
        raise typer.Exit(1)


def _all(settings: Settings) -> list[str]:
    """The pipelines of `--all`; says which ones it leaves out."""
    chosen = jobs.with_sample_data(settings)
    if left_out := set(jobs.names_with(settings, "sample_data")) - set(chosen):
        out.print(
            Text(f"Without a schema registry (`deltaworks up schema-registry`): not {', '.join(sorted(left_out))}.")
        )
    return chosen


@dataclass(frozen=True)
class _Job:
    """A pipeline with its sample data and its recomputation."""

    pipeline: Pipeline
    data: Any
    recomputation: Any
    schemas: Schemas

    @classmethod
    def of(cls, settings: Settings, name: str) -> _Job:
        return cls(
            jobs.load(settings, name),
            jobs.load_module(settings, f"sample_data.{name}"),
            jobs.load_module(settings, f"recomputed.{name}").recomputation,
            jobs.schemas_of(settings, name),
        )

    @property
    def name(self) -> str:
        return self.pipeline.name

    def records(self, count: int, seed: int) -> Iterator[SampleRecord]:
        """Its sample data."""
        from deltaworks.testing.sample_data import records_of

        return records_of(self.data, count, seed, self.schemas)

    @property
    def dag_id(self) -> str:
        return f"{self.name}__stream"


class _Demo:
    """One call of the demo; it knows what it started."""

    def __init__(
        self, settings: Settings, steps: Steps, chosen: Sequence[_Job], records: int, seed: int, rate: float
    ) -> None:
        self._settings, self._steps, self._jobs = settings, steps, chosen
        self._records, self._seed, self._rate = records, seed, rate
        self._started: list[str] = []
        self._memory_mb = 0
        self._login: Credentials | None = None

    def everything(self) -> bool:
        """Does all steps; returns whether every result equals its recomputation."""
        step = self._steps.step
        with step("preflight") as report:
            self._preflight(report)
        with step("jars") as report:
            self._jars(report)
        with step("kafka, postgres, airflow") as report:
            self._up(report)
        for job in self._jobs:
            with step(f"{job.name}: create topics, produce records before the stream runs") as report:
                pipelines.create_topics(self._settings, job.pipeline)
                self._produce(job, (self._present(job) + self._records) // 2, None, report)
        for job in self._jobs:
            with step(f"deploy: trigger {job.dag_id} in Airflow, wait until it supervises the stream") as report:
                self._deploy(job, report)
        for job in self._jobs:
            with step(f"{job.name}: produce records while the stream runs") as report:
                self._produce(job, self._records, self._rate, report)
        for job in self._jobs:
            with step(f"{job.name}: wait until the tables hold everything") as report:
                self._wait(job, report)
        results = []
        for job in self._jobs:
            with step(f"{job.name}: recompute everything from the topics") as report:
                results.append((job, self._check(job, report)))
        self._print(results)
        return all(comparison.equal for _, comparisons in results for comparison in comparisons)

    def stop_what_was_started(self) -> None:
        """Stops what this call started; what ran before keeps running."""
        from deltaworks import processes
        from deltaworks.stack import lifecycle

        if "stack" in self._started:
            lifecycle.down(self._settings, lambda line: out.print(Text(f"  {line}")))
            return
        for name in self._started:
            if (entry := processes.find(self._settings.run, name)) is not None:
                processes.stop(self._settings.run, entry)

    def _preflight(self, report: Report) -> None:
        import psutil

        from deltaworks.stack.components import read_components
        from deltaworks.stack.java import find_java

        java = find_java(self._settings, read_components(self._settings.infra).java_versions)
        home.make(self._settings)
        free_gb = shutil.disk_usage(self._settings.home).free / 1e9
        memory_gb = psutil.virtual_memory().available / 1e9
        report(
            f"Python {platform.python_version()}, Java {java.version}, "
            f"{memory_gb:.1f} GB of memory and {free_gb:.0f} GB of disk free"
        )

    def _jars(self, report: Report) -> None:
        from deltaworks.stack.jars import ensure_jars

        paths = ensure_jars(self._settings, "kafka", report)
        report(f"{len(paths)} jars, checked")

    def _up(self, report: Report) -> None:
        from deltaworks.stack import lifecycle

        stack = lifecycle.up(self._settings, report)
        self._login = stack.credentials
        new = [running for running in stack.components.values() if running.started_now]
        if new:
            self._started.append("stack")
        report(f"{len(stack.components)} components, {len(new)} of them started now" if new else "already running")

    def _deploy(self, job: _Job, report: Report) -> None:
        """Deploys the stream unless it runs."""
        from deltaworks.control import actions
        from deltaworks.control.model import ALIVE
        from deltaworks.control.registry import Registry
        from deltaworks.stack.airflow_api import AirflowApi

        name, dag_id = job.name, job.dag_id
        record = Registry.of(self._settings).pipeline(name)
        if record is not None and actions.observe(self._settings, name, record.generation).state in ALIVE:
            report(f"already running: generation {record.generation}")
            return
        with AirflowApi.of(self._settings) as airflow:
            report("waiting until Airflow has read the DAG")
            airflow.wait(f"DAG {dag_id}", lambda: any(d.dag_id == dag_id for d in airflow.dags()), timeout_s=_STUCK_S)
            run_id = airflow.trigger(dag_id)
            self._started.append(name)
            while (supervise := airflow.task(dag_id, run_id, "supervise")).state != "deferred":
                states = {task.task_id: task.state or "waiting" for task in airflow.tasks(dag_id, run_id)}
                if airflow.run(dag_id, run_id).ended or supervise.state in ("failed", "upstream_failed", "skipped"):
                    failed = next((name for name, state in states.items() if state == "failed"), "preflight")
                    raise StackError(
                        f"The run {run_id} of {dag_id} failed: task {failed}.",
                        log=airflow.log(dag_id, run_id, failed).splitlines()[-20:],
                        hint=f"see the full log at {airflow.address}/dags/{dag_id}/runs/{run_id}",
                    )
                report(", ".join(f"{name} {state}" for name, state in states.items() if state != "skipped"))
                self._measure_memory()
                time.sleep(_POLL_S)
            report(f"run {run_id}, supervise is deferred")

    def _present(self, job: _Job) -> int:
        there = pipelines.records_present(self._settings, job.pipeline)
        return sum(count for (topic, _), count in there.items() if topic == job.data.MAIN_TOPIC)

    def _produce(self, job: _Job, records: int, rate: float | None, report: Report) -> None:
        from deltaworks.testing.sample_data import produce

        written = produce(
            self._settings.cluster_of(job.name),
            job.records(records, self._seed),
            present=pipelines.records_present(self._settings, job.pipeline),
            records_per_second=rate,
            progress=lambda count: report(f"{count:,} records"),
        )
        report(f"{written:,} records" if written else "nothing new to produce")

    def _missing(self, job: _Job) -> int:
        """The number of records in the topics that are not yet in the tables."""
        from deltaworks.control import batches

        read: dict[tuple[str, int], int] = {}
        for batch in batches.read(self._settings.pipeline(job.name) / "batches"):
            for topic, ranges in batch.offsets.items():
                read |= {(topic, int(partition)): stop for partition, (_, stop) in ranges.items()}
        ends = pipelines.records_present(self._settings, job.pipeline)
        return sum(max(0, end - read.get(at, 0)) for at, end in ends.items())

    def _wait(self, job: _Job, report: Report) -> None:
        """Waits until all records are in the tables and the snapshots show them."""
        from deltaworks import processes
        from deltaworks.control import heartbeat, logs

        path = self._settings.pipeline(job.name) / "heartbeat.json"
        log = self._settings.logs / f"{job.name}.log"
        least, since = sys.maxsize, clock.ticks_s()
        while True:
            missing, beat = self._missing(job), heartbeat.read(path)
            if not missing and beat is not None and not beat.stale_snapshots:
                break
            if missing < least:
                least, since = missing, clock.ticks_s()
            entry = processes.find(self._settings.run, job.name)
            if clock.ticks_s() - since > _STUCK_S:
                alive = entry is not None and entry.alive
                raise StackError(
                    f"Pipeline {job.name!r} {'makes no progress' if alive else 'does not run'} for {_STUCK_S:.0f} s; "
                    f"{missing:,} records are not in the tables.",
                    log=logs.why(log),
                    hint=f"see the full log in {log}",
                )
            self._measure_memory()
            if missing and beat is not None:
                report(f"{missing:,} records to go, batch {beat.batch_id}, {beat.records_per_second:,.0f} records/s")
            else:
                report("all records are in; waiting for the snapshots")
            time.sleep(_POLL_S)
        report("no record is missing")

    def _measure_memory(self) -> None:
        from deltaworks.stack import lifecycle

        self._memory_mb = max(self._memory_mb, sum(status.memory_mb for status in lifecycle.status(self._settings)))

    def _check(self, job: _Job, report: Report) -> list[Any]:
        batches = self._settings.pipeline(job.name) / "batches"
        cluster = self._settings.cluster_of(job.name)
        comparisons: list[Any] = job.recomputation.check(cluster, self._settings.tables, batches, job.schemas)
        report(f"{sum(c.expected for c in comparisons):,} rows and records")
        return comparisons

    def _print(self, results: Sequence[tuple[_Job, list[Any]]]) -> None:
        from deltaworks.testing.sample_data import census

        out.print()
        if len(results) == 1:
            ((job, _),) = results
            sample = job.records(max(self._records, self._present(job)), self._seed)
            print_table(
                f"What was produced for {job.name}",
                ("records", "what"),
                ((count, kind.value) for kind, count in census(sample).items()),
                right=("records",),
            )
        print_table(
            "Results and their recomputation from the topics",
            ("pipeline", "result", "kind", "expected", "found", "equal"),
            (
                (
                    job.name,
                    c.name,
                    c.kind,
                    c.expected,
                    c.found,
                    Text("yes", "green") if c.equal else Text(f"NO, {c.different:,} rows", "red"),
                )
                for job, comparisons in results
                for c in comparisons
            ),
            right=("expected", "found"),
        )
        comparisons = [comparison for _, compared in results for comparison in compared]
        for comparison in comparisons:
            for line in comparison.differences:
                out.print(Text(f"{comparison.name}: {line}"))
        print_table("Seconds", ("s", "step"), ((f"{s:.1f}", title) for title, s in self._steps.seconds), right=("s",))
        total = sum(seconds for _, seconds in self._steps.seconds)
        verdict = "Everything is equal" if all(c.equal for c in comparisons) else "SOME RESULTS DIFFER"
        memory = f", {self._memory_mb:,} MB of memory at the peak" if self._memory_mb else ""
        out.print(Text(f"{verdict} after {total:.0f} s{memory}.", "bold"))
        if verdict != "Everything is equal":
            out.print(Text("Topics and tables are kept for inspection; `down --delete-data` starts afresh."))
        self._print_login()
        me = sys.argv[0] if sys.argv[0].endswith("deltaworks") else "deltaworks"
        job, *others = self._jobs
        names = f" {' '.join(each.name for each in self._jobs)}" if others or job.name != "orders" else ""
        table = job.recomputation.tables[0]
        out.print(
            Text(
                f"look    {me} status                everything keeps running\n"
                f"query   {me} tables\n"
                f'        {me} sql "SELECT * FROM {table} LIMIT 5"\n'
                f"check   {me} quality {job.name}\n"
                f"go on   {me} demo{names} --records {2 * self._records}\n"
                f"stop    {me} stop {job.name}           or in Airflow: {job.dag_id}, action stop\n"
                f"        {me} down                 stops everything, keeps topics and tables\n"
                f"        {me} down --delete-data   deletes them too (make down)"
            )
        )

    def _print_login(self) -> None:
        """Shows the password once, when it is created; later, only where it is kept."""
        if (login := self._login) is None:
            return
        known = f"password {login.password}" if login.created_now else f"the password is in {login.file}"
        out.print(Text(f"Airflow {login.url}  user {login.user}, {known}", "bold"))


def _notice_signals() -> list[int]:
    """Makes SIGINT and SIGTERM end the demo as an error does; the returned list then holds the signal."""
    stopped_by: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped_by
