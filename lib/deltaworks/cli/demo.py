"""`demo`: the orders pipeline on real components, deployed through Airflow, every result recomputed and compared.

The stream stays running under its supervisor, for a look. A second call finds everything there, produces nothing twice
and compares again; more `--orders` continue the data. What a call has started is stopped if it fails.
"""

from __future__ import annotations

import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from deltaworks.cli import pipelines
from deltaworks.cli.console import Steps, out, print_table
from deltaworks.control import jobs
from deltaworks.errors import StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.stack.airflow import Credentials

_NAME = "orders"
_DAG = f"{_NAME}__stream"
_STUCK_S = 180.0
_POLL_S = 0.5
Report = Callable[[str], None]


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Demo")(demo)


def demo(
    orders: Annotated[
        int, typer.Option(min=1_000, help="How many; more than before continues what is there.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Other seeds give other data.")] = 7,
    rate: Annotated[float, typer.Option(help="Records per second while the stream runs.")] = 2_000.0,
) -> None:
    """Start Kafka, PostgreSQL and Airflow, deploy the pipeline, recompute every result from the topics and compare.

    Exit code 1 if a single row differs.
    """
    stopped_by = _notice_signals()
    settings, steps = Settings.from_environment(), Steps()
    run = _Demo(settings, steps, orders, seed, rate)
    try:
        equal = run.everything()
    except BaseException:
        run.stop_what_was_started()
        if stopped_by:  # whatever the interrupted library made of it
            raise SystemExit(128 + stopped_by[0]) from None
        raise
    if not equal:
        run.stop_what_was_started()
        raise typer.Exit(1)


class _Demo:
    """One call of the demo: knows what it has started."""

    def __init__(self, settings: Settings, steps: Steps, orders: int, seed: int, rate: float) -> None:
        self._settings, self._steps = settings, steps
        self._orders, self._seed, self._rate = orders, seed, rate
        self._started: list[str] = []
        self._memory_mb = 0
        self._login: Credentials | None = None
        self._pipeline: Pipeline = jobs.load(settings, _NAME)
        self._data: Any = jobs.load_module(settings, f"sample_data.{_NAME}")
        self._kafka: Any = jobs.load_module(settings, "sample_data.kafka")

    def everything(self) -> bool:
        """All steps; whether every result is equal to its recomputation."""
        step = self._steps.step
        with step("preflight") as report:
            self._preflight(report)
        with step("jars") as report:
            self._jars(report)
        with step("kafka, postgres, airflow") as report:
            self._up(report)
        with step("topics") as report:
            report(pipelines.create_topics(self._settings, self._pipeline))
        with step("produce, before the stream runs") as report:
            present = self._orders_present()
            self._produce((present + self._orders) // 2, None, report)
        with step(f"deploy: trigger {_DAG} in Airflow, wait until its supervisor watches") as report:
            self._deploy(report)
        with step("produce, while the stream runs") as report:
            self._produce(self._orders, self._rate, report)
        with step("wait until everything is in the tables") as report:
            self._wait(report)
        with step("recompute everything from the topics") as report:
            comparisons = self._check(report)
        self._print(comparisons)
        return all(comparison.equal for comparison in comparisons)

    def stop_what_was_started(self) -> None:
        """Leaves running what ran before."""
        from deltaworks import processes
        from deltaworks.stack import lifecycle

        if "stack" in self._started:
            lifecycle.down(self._settings, lambda line: out.print(Text(f"  {line}")))
        elif _NAME in self._started and (entry := processes.find(self._settings.run, _NAME)) is not None:
            processes.stop(self._settings.run, entry)

    def _preflight(self, report: Report) -> None:
        import psutil

        from deltaworks.stack.components import read_components
        from deltaworks.stack.java import find_java

        java = find_java(self._settings, read_components(self._settings.infra).java_versions)
        self._settings.home.mkdir(parents=True, exist_ok=True)
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
        report(f"{len(stack.components)} components, {len(new)} of them started now" if new else "all were running")

    def _deploy(self, report: Report) -> None:
        """Leaves a stream alone that runs."""
        from deltaworks.control import actions
        from deltaworks.control.model import ALIVE
        from deltaworks.control.registry import Registry
        from deltaworks.stack.airflow_api import AirflowApi

        record = Registry.of(self._settings).pipeline(_NAME)
        if record is not None and actions.observe(self._settings, _NAME, record.generation).state in ALIVE:
            report(f"was running: generation {record.generation}")
            return
        with AirflowApi.of(self._settings) as airflow:
            report("waiting until Airflow has read the DAG")
            airflow.wait(f"DAG {_DAG}", lambda: any(d.dag_id == _DAG for d in airflow.dags()), timeout_s=_STUCK_S)
            run_id = airflow.trigger(_DAG)
            self._started.append(_NAME)
            while (supervise := airflow.task(_DAG, run_id, "supervise")).state != "deferred":
                states = {task.task_id: task.state or "waiting" for task in airflow.tasks(_DAG, run_id)}
                if airflow.run(_DAG, run_id).ended or supervise.state in ("failed", "upstream_failed", "skipped"):
                    failed = next((name for name, state in states.items() if state == "failed"), "preflight")
                    raise StackError(
                        f"The run {run_id} of {_DAG} failed: task {failed}.",
                        log=airflow.log(_DAG, run_id, failed).splitlines()[-20:],
                        hint=f"the whole log is at {airflow.address}/dags/{_DAG}/runs/{run_id}",
                    )
                report(", ".join(f"{name} {state}" for name, state in states.items() if state != "skipped"))
                self._measure_memory()
                time.sleep(_POLL_S)
            report(f"run {run_id}, supervise is deferred")

    def _orders_present(self) -> int:
        there = pipelines.records_present(self._settings, self._pipeline)
        return sum(count for (topic, _), count in there.items() if topic == self._data.MAIN_TOPIC)

    def _produce(self, orders: int, rate: float | None, report: Report) -> None:
        written: int = self._kafka.produce(
            self._settings.bootstrap,
            self._data.records(orders, self._seed),
            present=pipelines.records_present(self._settings, self._pipeline),
            records_per_second=rate,
            progress=lambda count: report(f"{count:,} records"),
        )
        report(f"{written:,} records" if written else "everything is there")

    def _missing(self) -> int:
        """Records in the topics that are not in the tables yet."""
        from deltaworks.control import batches

        read: dict[tuple[str, int], int] = {}
        for batch in batches.read(self._settings.pipeline(_NAME) / "batches"):
            for topic, ranges in batch.offsets.items():
                read |= {(topic, int(partition)): stop for partition, (_, stop) in ranges.items()}
        ends = pipelines.records_present(self._settings, self._pipeline)
        return sum(max(0, end - read.get(at, 0)) for at, end in ends.items())

    def _wait(self, report: Report) -> None:
        """Until all records are in the tables, and the snapshots show them."""
        from deltaworks import processes
        from deltaworks.control import heartbeat, logs

        path = self._settings.pipeline(_NAME) / "heartbeat.json"
        log = self._settings.logs / f"{_NAME}.log"
        least, since = sys.maxsize, time.monotonic()
        while True:
            missing, beat = self._missing(), heartbeat.read(path)
            if not missing and beat is not None and not beat.stale_snapshots:
                break
            if missing < least:
                least, since = missing, time.monotonic()
            entry = processes.find(self._settings.run, _NAME)
            if time.monotonic() - since > _STUCK_S:
                alive = entry is not None and entry.alive
                raise StackError(
                    f"Pipeline {_NAME!r} {'makes no progress' if alive else 'does not run'} for {_STUCK_S:.0f} s; "
                    f"{missing:,} records are not in the tables.",
                    log=logs.why(log),
                    hint=f"the whole log is {log}",
                )
            self._measure_memory()
            if missing and beat is not None:
                report(f"{missing:,} records to go, batch {beat.batch_id}, {beat.records_per_second:,.0f} records/s")
            else:
                report("all records are in, the snapshots follow")
            time.sleep(_POLL_S)
        report("no record is missing")

    def _measure_memory(self) -> None:
        from deltaworks.stack import lifecycle

        self._memory_mb = max(self._memory_mb, sum(status.memory_mb for status in lifecycle.status(self._settings)))

    def _check(self, report: Report) -> list[Any]:
        check: Any = jobs.load_module(self._settings, f"recomputed.{_NAME}")
        comparisons: list[Any] = check.recomputation.check(
            self._settings.bootstrap, self._settings.tables, self._settings.pipeline(_NAME) / "batches"
        )
        report(f"{sum(c.expected for c in comparisons):,} rows and records")
        return comparisons

    def _print(self, comparisons: list[Any]) -> None:
        out.print()
        census = self._kafka.census(self._data.records(max(self._orders, self._orders_present()), self._seed))
        print_table(
            "What was produced",
            ("records", "what"),
            ((count, kind.value) for kind, count in census.items()),
            right=("records",),
        )
        print_table(
            "Results and their recomputation from the topics",
            ("result", "kind", "expected", "found", "equal"),
            (
                (
                    c.name,
                    c.kind,
                    c.expected,
                    c.found,
                    Text("yes", "green") if c.equal else Text(f"NO, {c.different:,} rows", "red"),
                )
                for c in comparisons
            ),
            right=("expected", "found"),
        )
        for comparison in comparisons:
            for line in comparison.differences:
                out.print(Text(f"{comparison.name}: {line}"))
        print_table("Seconds", ("s", "step"), ((f"{s:.1f}", title) for title, s in self._steps.seconds), right=("s",))
        total = sum(seconds for _, seconds in self._steps.seconds)
        verdict = "Everything is equal" if all(c.equal for c in comparisons) else "SOME RESULTS DIFFER"
        memory = f", {self._memory_mb:,} MB of memory at the peak" if self._memory_mb else ""
        out.print(Text(f"{verdict} after {total:.0f} s{memory}.", "bold"))
        if verdict != "Everything is equal":
            out.print(Text("Topics and tables stay as they are, for a look; `down --delete-data` begins anew."))
        self._print_login()
        me = sys.argv[0] if sys.argv[0].endswith("deltaworks") else "deltaworks"
        out.print(
            Text(
                f"look    {me} status                the stream goes on\n"
                f"query   {me} tables\n"
                f'        {me} sql "SELECT * FROM user_revenue ORDER BY value DESC LIMIT 5"\n'
                f"go on   {me} demo --orders {2 * self._orders}\n"
                f"stop    {me} stop {_NAME}           or with Airflow: {_DAG}, action stop\n"
                f"        {me} down                 everything; keeps topics and tables\n"
                f"        {me} down --delete-data   does not (make down)"
            )
        )

    def _print_login(self) -> None:
        """The password is shown once, when it was made; later only where it is kept."""
        if (login := self._login) is None:
            return
        known = f"password {login.password}" if login.created_now else f"the password is in {login.file}"
        out.print(Text(f"Airflow {login.url}  user {login.user}, {known}", "bold"))


def _notice_signals() -> list[int]:
    """SIGINT and SIGTERM end the demo as an error does; the list then holds the signal."""
    stopped_by: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped_by
