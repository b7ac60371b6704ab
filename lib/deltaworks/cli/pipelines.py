"""The commands for the pipelines in `jobs/`: `topology`, `produce`, `run`, `deploy`, `stop`, `restart`, `set-aside`."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deltaworks import exits, home, listeners
from deltaworks.cli.console import AsJson, Steps, err, out, print_json, print_table
from deltaworks.errors import ConfigurationError, DeltaworksError, LeaseError
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates

if TYPE_CHECKING:
    from pathlib import Path

    from deltaworks.control.paths import PipelinePaths
    from deltaworks.control.reporter import Reporter
    from deltaworks.dsl.pipeline import Pipeline

StartOffsets = Literal["earliest", "latest"]
Name = Annotated[str, typer.Argument(help="Name of the pipeline: its file in jobs/, without `.py`.")]
TriggerInterval = Annotated[
    float | None,
    typer.Option(min=0.0, help="Seconds between micro-batches; default: the pipeline's own interval."),
]
Start = Annotated[
    StartOffsets | None,
    typer.Option(
        "--start-offsets", help="Where a stream without a checkpoint starts; default: DELTAWORKS_START_OFFSETS."
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Take the pipeline from another home on this Kafka that no longer exists."),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (topology, produce, run, deploy, stop, restart, set_aside):
        app.command(rich_help_panel="Pipelines")(command)


def topology(
    name: Name, mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False
) -> None:
    """Describe a pipeline's topology in the format of Kafka Streams."""
    from deltaworks.control import jobs

    plan = jobs.load(Settings.from_environment(), name).plan()
    out.out(plan.mermaid() if mermaid else plan.describe())


def produce(
    name: Name,
    records: Annotated[
        int, typer.Option(help="How many records in total; more than before continues the existing data.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the random data.")] = 7,
    rate: Annotated[float | None, typer.Option(help="Records per second; default: as fast as possible.")] = None,
) -> None:
    """Write sample data to a pipeline's topics, each record once."""
    from deltaworks.control import jobs
    from deltaworks.testing import sample_data

    settings = Settings.from_environment()
    listeners.require_own_kafka(settings)
    pipeline = jobs.load(settings, name)
    data = jobs.load_module(settings, f"sample_data.{name}")
    with Steps().step("topics") as report:
        report(create_topics(settings, pipeline))
    with Steps().step("produce") as report:
        written = sample_data.produce(
            settings.cluster_of(name),
            sample_data.records_of(data, records, seed, jobs.schemas_of(settings, name)),
            present=records_present(settings, pipeline),
            records_per_second=rate,
            progress=lambda count: report(f"{count:,} records"),
        )
        report(f"{written:,} records")


def create_topics(settings: Settings, pipeline: Pipeline) -> str:
    """Creates the missing topics; returns a line that says which."""
    from deltaworks.control import topics

    created = topics.prepare(settings.cluster_of(pipeline.name), pipeline, pipeline.plan(), begun=False).missing_names
    return f"created {', '.join(created)}" if created else "all exist"


def records_present(settings: Settings, pipeline: Pipeline) -> dict[tuple[str, int], int]:
    """The number of records per partition in the topics that a pipeline reads, those of global tables included."""
    from deltaworks.kafka import admin

    plan = pipeline.plan()
    return admin.end_offsets(settings.cluster_of(pipeline.name), (*plan.source_topics, *plan.global_topics))


def run(
    name: Name,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop after processing what the topics hold now.")
    ] = False,
    trigger_interval: TriggerInterval = None,
    start_offsets: Start = None,
    take_over: TakeOver = False,
    generation: Annotated[
        int | None, typer.Option(min=1, hidden=True, help="Generation of the deployment; set by a launcher.")
    ] = None,
    finish_batch: Annotated[
        bool, typer.Option("--finish-batch", hidden=True, help="Only finish the open batch, before newer code runs.")
    ] = False,
) -> None:
    """Run a pipeline in the foreground until Ctrl-C, SIGTERM or `stop`; it finishes its batch first.

    It runs from an archive of the current code, so later edits do not affect it. Nothing restarts it; see `deploy`.
    Exit codes: 0 stopped or caught up; 65 a record failed and the pipeline's policy is to fail; 69 Kafka or Spark is
    not available; 70 unexpected error; 73 the pipeline already runs, or was replaced; 78 topology, settings or
    checkpoint do not fit.
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
        from deltaworks.traces.tracer import tracing

        silent = generation is None or finish_batch
        reporter = SilentReporter() if silent else RegistryReporter(settings, name, number)
        try:
            with _metered(settings, name, reporter) as metered, tracing(settings, pipeline, number) as tracer:
                streaming.run(
                    pipeline,
                    settings,
                    until_caught_up=until_caught_up,
                    finish_batch=finish_batch,
                    take_over=take_over,
                    generation=number,
                    reporter=metered,
                    tracer=tracer,
                )
        finally:
            reporter.close()


def _metered(settings: Settings, name: str, reporter: Reporter) -> AbstractContextManager[Reporter]:
    """Its metrics are served, if the settings want it; only then is the library for that needed."""
    if settings.metrics == "off":
        return nullcontext(reporter)
    from deltaworks.metrics.endpoint import metered

    return metered(settings, name, reporter)


def _note_code(settings: Settings, paths: PipelinePaths, generation: int) -> None:
    from deltaworks.control import retention

    if settings.code is not None:
        retention.note(paths, generation, settings.code.name)
        retention.tidy(settings)


@contextmanager
def _leaves_word(path: Path, generation: int, *, deployed: bool) -> Iterator[None]:
    """Records how the driver ended, for the launcher and later observers."""
    from deltaworks.control import outcome

    code, reason, let_in = exits.OK, None, True
    try:
        yield
    except DeltaworksError as error:
        code, reason = exits.code_of(error), str(error)
        let_in = deployed or not isinstance(error, LeaseError)  # otherwise the generation is not this driver's
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
            except OSError as error:  # the disk is full; still report what ended the driver
                err.print(f"could not record how the driver ended: {error}", style="yellow")


def deploy(
    name: Name,
    launcher: Annotated[str, typer.Option(help="Where the driver runs: `local`.")] = "local",
    trigger_interval: TriggerInterval = None,
    start_offsets: Start = None,
    take_over: TakeOver = False,
) -> None:
    """Start a pipeline in the background; it replaces the one that runs.

    It runs from an archive of the current code, until `stop`. It outlives this command, and the supervisor restarts it
    if it dies.
    """
    from deltaworks.control import actions
    from deltaworks.control.model import DeployOptions
    from deltaworks.traces.options import require_usable

    settings = Settings.from_environment()
    options = DeployOptions(launcher=launcher, trigger_interval_s=trigger_interval, start_offsets=start_offsets)
    with Steps().step("preflight") as report:
        require_usable(settings, name)
        actions.preflight(settings, name, options, report, take_over=take_over)
    if take_over:
        with Steps().step("take over") as report:
            report(str(actions.take_over(settings, name)))
    with Steps().step(f"deploy {name}") as report:
        done = actions.deploy(settings, name, options, requested_by=user(), report=report)
        report(f"generation {done.generation} is {done.state}, log {done.log}")


def restart(name: Name) -> None:
    """Deploy a pipeline again with the options and code of its last deployment."""
    from deltaworks.control import actions

    settings = Settings.from_environment()
    listeners.require_own_kafka(settings)
    with Steps().step(f"restart {name}") as report:
        done = actions.restart(settings, name, requested_by=user(), report=report)
        report(f"generation {done.generation} is {done.state}, log {done.log}")


def stop(name: Name, timeout: Annotated[float, typer.Option(help="Seconds before it is killed.")] = 60.0) -> None:
    """Stop a pipeline and keep it stopped; it finishes its batch and refreshes its snapshots first."""
    from deltaworks.control import actions
    from deltaworks.control.paths import PipelinePaths

    settings = Settings.from_environment()
    with Steps().step(f"stop {name}") as report:
        actions.stop(settings, name, requested_by=user(), timeout_s=timeout, report=report)
    if PipelinePaths.of(settings, name).stop.exists():
        out.print("PostgreSQL is not available. The stop is recorded and applied when PostgreSQL returns.")


def set_aside(
    name: Name,
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC-PARTITION@OFFSET...", help="Records, as named in the error that ended the stream."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why you set them aside; kept with the records.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Show the records that were set aside.")] = False,
    as_json: AsJson = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Process the records after all; refused once their batch has started.")
    ] = False,
) -> None:
    """Turn records that always fail into dead letters, whatever the code and the pipeline's error policy.

    The stream has to be stopped. The next driver sets the records aside, as does every replay. A pipeline without dead
    letters logs them.
    """
    from deltaworks.control import jobs
    from deltaworks.control import set_aside as records_set_aside
    from deltaworks.control.paths import PipelinePaths

    settings = Settings.from_environment()
    paths = PipelinePaths.of(settings, name)
    if show:
        entries = records_set_aside.entries(paths)
        if as_json:
            from deltaworks.cli import listings

            records_listed = list(map(listings.RecordListed.of, entries))
            return print_json(listings.SetAside(pipeline=name, records=records_listed))
        print_table(
            f"Records of {name} that were set aside",
            ("record", "at", "by", "reason"),
            (
                (entry.record.name, datetime.fromtimestamp(entry.at_ms // 1000, UTC), entry.by, entry.reason)
                for entry in entries
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
        out.print(f"Records that will be processed: {len(named)}.")
        return
    new = records_set_aside.add(paths, pipeline, named, by=user(), reason=reason)
    out.print(f"Records set aside: {len(new)} new, {len(named) - len(new)} before. Now: deltaworks deploy {name}")


def user() -> str:
    """The user of the command line, as `name at host`."""
    import pwd  # not where only projects are made and tested, on any system

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user} at {socket.gethostname()}"
