"""`demo`: the orders pipeline on real components, every result recomputed and compared.

A second call finds the stack running, produces nothing twice and compares again. More `--orders` continue the data.
What a call has started is stopped if it fails.
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
from deltaworks.errors import StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline

_NAME = "orders"
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
    """Start Kafka, produce untidy orders, run the pipeline, recompute every result from the topics and compare.

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
        self._pipeline: Pipeline = pipelines.load(settings, _NAME)
        self._data: Any = pipelines.load_module(settings, f"{_NAME}_data")

    def everything(self) -> bool:
        """All steps; whether every result is equal to its recomputation."""
        step = self._steps.step
        with step("preflight") as report:
            self._preflight(report)
        with step("jars") as report:
            self._jars(report)
        with step("kafka") as report:
            self._kafka(report)
        with step("topics") as report:
            report(pipelines.create_topics(self._settings, self._pipeline))
        with step("produce, before the stream runs") as report:
            present = self._orders_present()
            self._produce((present + self._orders) // 2, None, report)
        if present < self._orders or self._missing() or not self._was_drained():
            with step("start the pipeline, wait for its first batch") as report:
                if pipelines.start_detached(self._settings, _NAME, report):
                    self._started.append(_NAME)
                self._wait(report, for_all=False)
            with step("produce, while the stream runs") as report:
                self._produce(self._orders, self._rate, report)
            with step("wait until everything is in the tables") as report:
                self._wait(report, for_all=True)
            with step("drain the pipeline") as report:
                pipelines.drain(self._settings, _NAME, report)
        with step("recompute everything from the topics") as report:
            comparisons = self._check(report)
        self._print(comparisons)
        return all(comparison.equal for comparison in comparisons)

    def stop_what_was_started(self) -> None:
        """Leaves running what ran before."""
        from deltaworks import processes
        from deltaworks.stack import lifecycle

        if "kafka" in self._started:
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

    def _kafka(self, report: Report) -> None:
        from deltaworks.stack import lifecycle

        broker = lifecycle.up(self._settings, report)
        if broker.started_now:
            self._started.append("kafka")
        report(f"{'started' if broker.started_now else 'was running'} on {broker.bootstrap}, process {broker.pid}")

    def _orders_present(self) -> int:
        there = pipelines.records_present(self._settings, self._pipeline)
        return sum(count for (topic, _), count in there.items() if topic == self._data.ORDERS_TOPIC)

    def _produce(self, orders: int, rate: float | None, report: Report) -> None:
        written: int = self._data.produce(
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

    def _was_drained(self) -> bool:
        from deltaworks.control import heartbeat

        beat = heartbeat.read(self._settings.pipeline(_NAME) / "heartbeat.json")
        return beat is not None and beat.state == "stopped"

    def _wait(self, report: Report, *, for_all: bool) -> None:
        """Until a batch has been committed, or all records are in the tables."""
        from deltaworks import processes
        from deltaworks.control import heartbeat
        from deltaworks.stack import lifecycle

        path = self._settings.pipeline(_NAME) / "heartbeat.json"
        log = self._settings.logs / f"{_NAME}.log"
        least, since = sys.maxsize, time.monotonic()
        while missing := self._missing():
            if missing < least:
                least, since = missing, time.monotonic()
            entry, beat = processes.find(self._settings.run, _NAME), heartbeat.read(path)
            stuck = time.monotonic() - since > _STUCK_S
            if entry is None or not entry.alive or (beat and beat.state == "failed") or stuck:
                what = f"makes no progress for {_STUCK_S:.0f} s" if stuck else "ended"
                raise StackError(
                    f"Pipeline {_NAME!r} {what}; {missing:,} records are not in the tables.",
                    log=pipelines.why(log),
                    hint=f"the whole log is {log}",
                )
            self._memory_mb = max(self._memory_mb, sum(s.memory_mb for s in lifecycle.status(self._settings)))
            if beat is None or beat.batch_id is None:
                report(f"{missing:,} records to go, the first batch is under way")
            elif for_all:
                report(f"{missing:,} records to go, batch {beat.batch_id}, {beat.records_per_second:,.0f} records/s")
            else:
                break
            time.sleep(_POLL_S)
        report(f"{missing:,} records to go" if missing else "no record is missing")

    def _check(self, report: Report) -> list[Any]:
        check: Any = pipelines.load_module(self._settings, f"{_NAME}_check")
        comparisons: list[Any] = check.check(
            self._settings.bootstrap, self._settings.tables, self._settings.pipeline(_NAME) / "batches"
        )
        report(f"{sum(c.expected for c in comparisons):,} rows and records")
        return comparisons

    def _print(self, comparisons: list[Any]) -> None:
        out.print()
        census = self._data.census(self._data.records(max(self._orders, self._orders_present()), self._seed))
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
        me = sys.argv[0] if sys.argv[0].endswith("deltaworks") else "deltaworks"
        out.print(
            Text(
                f"query   {me} tables\n"
                f'        {me} sql "SELECT * FROM user_revenue ORDER BY value DESC LIMIT 5"\n'
                f"go on   {me} demo --orders {2 * self._orders}\n"
                f"stop    {me} down                 keeps topics and tables\n"
                f"        {me} down --delete-data   does not (make down)"
            )
        )


def _notice_signals() -> list[int]:
    """SIGINT and SIGTERM end the demo as an error does; the list then holds the signal."""
    stopped_by: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped_by
