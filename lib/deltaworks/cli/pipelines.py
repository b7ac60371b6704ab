"""`topology`, `produce`, `run`, `deploy`, `stop`, `restart`, `set-aside`: the pipelines in `jobs/`."""

from __future__ import annotations

import dataclasses
import logging
import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deltaworks import exits, home, listeners
from deltaworks.cli.console import Steps, err, out, print_table
from deltaworks.errors import ConfigurationError, DeltaworksError, LeaseError
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates

if TYPE_CHECKING:
    from pathlib import Path

    from deltaworks.control.paths import PipelinePaths
    from deltaworks.dsl.pipeline import Pipeline

StartOffsets = Literal["earliest", "latest"]
Name = Annotated[str, typer.Argument(help="Of the pipeline: that of its file in jobs/.")]
TriggerInterval = Annotated[
    float | None,
    typer.Option(min=0.0, help="Seconds from one micro-batch to the next; default: as the pipeline says."),
]
Start = Annotated[
    StartOffsets | None,
    typer.Option("--start-offsets", help="Where a new checkpoint starts; default: DELTAWORKS_START_OFFSETS."),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Also where the pipeline belongs to another home at this Kafka, which is gone."),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (topology, produce, run, deploy, stop, restart, set_aside):
        app.command(rich_help_panel="Pipelines")(command)


def topology(
    name: Name, mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False
) -> None:
    """Describe a pipeline's topology, in Kafka Streams' format."""
    from deltaworks.control import jobs

    plan = jobs.load(Settings.from_environment(), name).plan()
    out.out(plan.mermaid() if mermaid else plan.describe())


def produce(
    name: Name,
    records: Annotated[int, typer.Option(help="How many; more than before continues what is there.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Other seeds give other data.")] = 7,
    rate: Annotated[float | None, typer.Option(help="Records per second; default: as fast as possible.")] = None,
) -> None:
    """Write sample data into a pipeline's topics, none twice."""
    from deltaworks.control import jobs

    settings = Settings.from_environment()
    listeners.require_own_kafka(settings)
    pipeline = jobs.load(settings, name)
    data = jobs.load_module(settings, f"sample_data.{name}")
    with Steps().step("topics") as report:
        report(create_topics(settings, pipeline))
    with Steps().step("produce") as report:
        written = jobs.load_module(settings, "sample_data.kafka").produce(
            settings.bootstrap,
            data.records(records, seed),
            present=records_present(settings, pipeline),
            records_per_second=rate,
            progress=lambda count: report(f"{count:,} records"),
        )
        report(f"{written:,} records")


def create_topics(settings: Settings, pipeline: Pipeline) -> str:
    """Creates what is missing; says what was."""
    from deltaworks.kafka import admin

    created = admin.create_topics(settings.bootstrap, admin.topic_specs(pipeline.topics))
    return f"created {', '.join(created)}" if created else f"{len(pipeline.topics)} are there"


def records_present(settings: Settings, pipeline: Pipeline) -> dict[tuple[str, int], int]:
    """Records per partition of the topics that a pipeline reads."""
    from deltaworks.kafka import admin

    return admin.end_offsets(settings.bootstrap, pipeline.plan().source_topics)


def run(
    name: Name,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop after everything that is in the topics now.")
    ] = False,
    trigger_interval: TriggerInterval = None,
    start_offsets: Start = None,
    take_over: TakeOver = False,
    generation: Annotated[
        int | None, typer.Option(min=1, hidden=True, help="Number of the deployment; what a launcher gives.")
    ] = None,
    finish_batch: Annotated[
        bool, typer.Option("--finish-batch", hidden=True, help="Only finish the batch that is open, for newer code.")
    ] = False,
) -> None:
    """Run a pipeline here until it is stopped (Ctrl-C, SIGTERM, `stop`: it finishes its batch).

    It runs from an archive of the code of now, so what is edited meanwhile does not matter. Nobody restarts it; see
    `deploy`. Exit codes: 0 stopped or caught up; 65 a record failed and the pipeline says
    fail; 69 Kafka or Spark is not available; 70 unexpected; 73 it runs already, or was replaced; 78 topology,
    settings or checkpoint do not fit.
    """
    from deltaworks.control import code, fence, jobs
    from deltaworks.control.paths import PipelinePaths
    from deltaworks.control.reporter import RegistryReporter, SilentReporter

    settings = Settings.from_environment()
    home.make(settings)
    code.run_from_archive(settings)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("deltaworks").setLevel(logging.INFO)
    paths = PipelinePaths.of(settings, name)
    number = generation or fence.read(paths.fence) + 1
    word = paths.finished(number) if finish_batch else paths.outcome(number)
    with code.held(settings), _leaves_word(word, number, deployed=generation is not None):
        listeners.require_own_kafka(settings)
        if not finish_batch:
            _note_code(settings, paths, number)
        pipeline = jobs.load(settings, name)
        if trigger_interval is not None:
            pipeline = dataclasses.replace(pipeline, trigger_interval=timedelta(seconds=trigger_interval))
        if start_offsets is not None:
            settings = dataclasses.replace(settings, start_offsets=start_offsets)
        from deltaworks.spark import streaming

        silent = generation is None or finish_batch
        reporter = SilentReporter() if silent else RegistryReporter(settings, name, number)
        try:
            streaming.run(
                pipeline,
                settings,
                until_caught_up=until_caught_up,
                finish_batch=finish_batch,
                take_over=take_over,
                generation=number,
                reporter=reporter,
            )
        finally:
            reporter.close()


def _note_code(settings: Settings, paths: PipelinePaths, generation: int) -> None:
    from deltaworks.control import retention

    if settings.code is not None:
        retention.note(paths, generation, settings.code.name)
        retention.tidy(settings)


@contextmanager
def _leaves_word(path: Path, generation: int, *, deployed: bool) -> Iterator[None]:
    """Writes how the driver ended, for whoever launched it or looks at it later."""
    from deltaworks.control import outcome

    code, reason, let_in = exits.OK, None, True
    try:
        yield
    except DeltaworksError as error:
        code, reason = exits.code_of(error), str(error)
        let_in = deployed or not isinstance(error, LeaseError)  # else the number is not its own
        raise
    except KeyboardInterrupt:
        code, reason = exits.INTERRUPTED, "interrupted"
        raise
    except BaseException as error:
        code, reason = exits.INTERNAL, f"{type(error).__name__}: {error}"
        raise
    finally:
        if let_in:
            try:
                outcome.write(path, generation, code, reason)
            except OSError as error:  # the disk is full: what ended the driver must be told all the same
                err.print(f"no room for the last word of the driver: {error}", style="yellow")


def deploy(
    name: Name,
    launcher: Annotated[str, typer.Option(help="Where the driver runs: `local`.")] = "local",
    trigger_interval: TriggerInterval = None,
    start_offsets: Start = None,
    take_over: TakeOver = False,
) -> None:
    """Start a pipeline in the background, in place of the one that runs.

    It runs from an archive of the code of now. It goes on when this command ends, and should run until `stop`: the
    supervisor starts it again when it dies.
    """
    from deltaworks.control import actions
    from deltaworks.control.model import DeployOptions

    settings = Settings.from_environment()
    options = DeployOptions(launcher=launcher, trigger_interval_s=trigger_interval, start_offsets=start_offsets)
    with Steps().step("preflight") as report:
        actions.preflight(settings, name, options, report, take_over=take_over)
    if take_over:
        with Steps().step("take over") as report:
            report(str(actions.take_over(settings, name)))
    with Steps().step(f"deploy {name}") as report:
        done = actions.deploy(settings, name, options, requested_by=user(), report=report)
        report(f"generation {done.generation} is {done.state}, log {done.log}")


def restart(name: Name) -> None:
    """Deploy a pipeline again, with the options and the code of its last deployment."""
    from deltaworks.control import actions

    settings = Settings.from_environment()
    listeners.require_own_kafka(settings)
    with Steps().step(f"restart {name}") as report:
        done = actions.restart(settings, name, requested_by=user(), report=report)
        report(f"generation {done.generation} is {done.state}, log {done.log}")


def stop(name: Name, timeout: Annotated[float, typer.Option(help="Seconds until it is killed.")] = 60.0) -> None:
    """Stop a pipeline, and keep it stopped: it finishes its batch, refreshes its snapshots and ends."""
    from deltaworks.control import actions
    from deltaworks.control.paths import PipelinePaths

    settings = Settings.from_environment()
    with Steps().step(f"stop {name}") as report:
        actions.stop(settings, name, requested_by=user(), timeout_s=timeout, report=report)
    if PipelinePaths.of(settings, name).stop.exists():
        out.print("PostgreSQL is away. That the pipeline shall not run is noted, and holds when it is back.")


def set_aside(
    name: Name,
    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC-PARTITION@OFFSET...", help="As the error that ended the stream names them."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; kept with them.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Show what was set aside.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Process them after all; not once their batch began.")
    ] = False,
) -> None:
    """Make dead letters of records that always fail, whatever code runs and whatever the pipeline says.

    The stream has to be stopped. The next driver sets them aside, and so does every replay. A pipeline without dead
    letters logs them.
    """
    from deltaworks.control import jobs
    from deltaworks.control import set_aside as records_set_aside
    from deltaworks.control.paths import PipelinePaths

    settings = Settings.from_environment()
    paths = PipelinePaths.of(settings, name)
    if show:
        print_table(
            f"Records of {name} that were set aside",
            ("record", "at", "by", "reason"),
            (
                (entry.record.name, datetime.fromtimestamp(entry.at_ms // 1000, UTC), entry.by, entry.reason)
                for entry in records_set_aside.entries(paths)
            ),
        )
        return
    if not records:
        raise ConfigurationError(
            "Which records?", hint=f"deltaworks set-aside {name} TOPIC-PARTITION@OFFSET, or --list"
        )
    try:
        named = [Coordinates.of(record) for record in records]
    except ValueError as error:
        raise ConfigurationError(f"{error}.", hint=f"deltaworks set-aside {name} orders-0@1234") from None
    pipeline = jobs.load(settings, name)
    if remove:
        records_set_aside.remove(paths, pipeline, named)
        out.print(f"{len(named)} will be processed.")
        return
    new = records_set_aside.add(paths, pipeline, named, by=user(), reason=reason)
    out.print(f"{len(new)} will be set aside, {len(named) - len(new)} were before. Now: deltaworks deploy {name}")


def user() -> str:
    """Who uses the command line."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user} at {socket.gethostname()}"
