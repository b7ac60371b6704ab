"""`topology`, `produce`, `run`, `stop`: the pipelines in `jobs/`."""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import Steps, out
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.dsl.pipeline import Pipeline

_POLL_S = 0.2
_PYTHON_ERROR = re.compile(r"(error: |(?!org\.|java\.|py4j\.|pyspark\.)[\w.]*(Error|Exception): )")
_START_TIMEOUT_S = 180.0
Name = Annotated[str, typer.Argument(help="Of the pipeline: that of its file in jobs/.")]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (topology, produce, run, stop):
        app.command(rich_help_panel="Pipelines")(command)


def load(settings: Settings, name: str) -> Pipeline:
    """The object `pipeline` of `jobs/<name>.py`.

    Raises:
        ConfigurationError: there is no such file, or it defines no pipeline.
    """
    module = load_module(settings, name)
    pipeline = getattr(module, "pipeline", None)
    if pipeline is None:
        raise ConfigurationError(
            f"{module.__file__} defines no pipeline.", hint="pipeline = Pipeline(name=..., topology=...)"
        )
    return pipeline  # type: ignore[no-any-return]


def load_module(settings: Settings, name: str) -> ModuleType:
    """`jobs/<name>.py` of the project."""
    folder = settings.project / "jobs"
    if not (folder / f"{name}.py").is_file():
        known = sorted(path.stem for path in folder.glob("*.py") if "pipeline = " in path.read_text())
        raise ConfigurationError(
            f"There is no {folder / name}.py.",
            hint=f"pipelines here: {', '.join(known) or 'none; see DELTAWORKS_PROJECT'}",
        )
    if str(settings.project) not in sys.path:
        sys.path.insert(0, str(settings.project))
    return importlib.import_module(f"jobs.{name}")


def topology(
    name: Name, mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False
) -> None:
    """Describe a pipeline's topology, in Kafka Streams' format."""
    plan = load(Settings.from_environment(), name).plan()
    out.out(plan.mermaid() if mermaid else plan.describe())


def produce(
    name: Name,
    orders: Annotated[int, typer.Option(help="How many records; more than before continues what is there.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Other seeds give other data.")] = 7,
    rate: Annotated[float | None, typer.Option(help="Records per second; default: as fast as possible.")] = None,
) -> None:
    """Write sample data into a pipeline's topics, none twice."""
    settings = Settings.from_environment()
    pipeline = load(settings, name)
    data = load_module(settings, f"{name}_data")
    with Steps().step("topics") as report:
        report(create_topics(settings, pipeline))
    with Steps().step("produce") as report:
        written = data.produce(
            settings.bootstrap,
            data.records(orders, seed),
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
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; `stop` ends it.")] = False,
) -> None:
    """Run a pipeline until it is stopped (Ctrl-C, SIGTERM, `stop`: it finishes its batch).

    Exit codes: 0 stopped or caught up; 65 a record failed and the pipeline says fail; 69 Kafka or Spark is not
    available; 70 unexpected; 73 it runs already; 78 topology, settings or checkpoint do not fit.
    """
    settings = Settings.from_environment()
    pipeline = load(settings, name)
    if detach:
        with Steps().step(f"run {name}") as report:
            start_detached(settings, name, report, until_caught_up=until_caught_up)
        return
    from deltaworks.spark import streaming

    streaming.run(pipeline, settings, until_caught_up=until_caught_up)


def start_detached(
    settings: Settings, name: str, report: Callable[[str], None], *, until_caught_up: bool = False
) -> bool:
    """Starts a pipeline in the background and waits until it processes batches; False: it was running already.

    Raises:
        StackError: it ended instead, or takes too long; it is stopped then.
    """
    from deltaworks import processes
    from deltaworks.control import heartbeat

    entry = processes.find(settings.run, name)
    if entry is not None and entry.alive:
        report(f"was running: process {entry.pid}")
        return False
    log = settings.logs / f"{name}.log"
    command = [sys.executable, "-m", "deltaworks.cli", "run", name, *(["--until-caught-up"] if until_caught_up else [])]
    begun = time.time()
    entry = processes.launch(settings.run, name=name, kind="pipeline", command=command, log=log)
    try:
        while True:
            beat = heartbeat.read(settings.pipeline(name) / "heartbeat.json")
            if beat is not None and beat.pid == entry.pid and beat.state in ("running", "draining", "stopped"):
                report(f"process {entry.pid}, log {log}")
                return True
            if not entry.alive:
                raise StackError(
                    f"Pipeline {name!r} (process {entry.pid}) ended while it was starting.",
                    log=why(log),
                    hint=f"the whole log is {log}",
                )
            if time.time() - begun > _START_TIMEOUT_S:
                raise StackError(
                    f"Pipeline {name!r} (process {entry.pid}) does not process batches after {_START_TIMEOUT_S:.0f} s.",
                    log=processes.last_lines(log),
                    hint=f"the whole log is {log}; is the machine overloaded?",
                )
            report(f"{beat.state if beat is not None and beat.pid == entry.pid else 'starting'}, process {entry.pid}")
            time.sleep(1.0)
    except BaseException:
        processes.stop(settings.run, entry, timeout_s=5.0)
        raise


def why(log: Path) -> list[str]:
    """The Python errors at the end of a pipeline's log, else its last lines: Spark says everything many times over."""
    from deltaworks import processes

    lines = processes.last_lines(log, 300)
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return list(dict.fromkeys(errors))[-5:] or lines[-15:]


def stop(name: Name, timeout: Annotated[float, typer.Option(help="Seconds until it is killed.")] = 60.0) -> None:
    """Stop a pipeline that runs in the background: it finishes its batch, refreshes its snapshots and ends."""
    with Steps().step(f"stop {name}") as report:
        drain(Settings.from_environment(), name, report, timeout_s=timeout)


def drain(settings: Settings, name: str, report: Callable[[str], None], *, timeout_s: float = 60.0) -> None:
    """Asks a pipeline to end, and ends it if it does not in time."""
    from deltaworks import processes

    entry = processes.find(settings.run, name)
    if entry is None or not entry.members():
        processes.forget(settings.run, name)
        report("was not running")
        return
    from deltaworks.spark import streaming

    streaming.request_stop(settings, name)
    deadline = time.monotonic() + timeout_s
    while entry.alive and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    report("drained" if not entry.alive else f"still running after {timeout_s:.0f} s: stopping it")
    processes.stop(settings.run, entry)
