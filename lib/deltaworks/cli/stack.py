"""The commands for the components and the running pipelines, and for where they run: `up`, `compose` and others."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from deltaworks import clock, config, extras
from deltaworks.cli import sinks
from deltaworks.cli.console import AsJson, Force, Steps, first_line, lag_text, out, print_json, print_table, write_files
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.connectors.overview import Connectors
    from deltaworks.control.model import PipelineStatus

_CONNECTORS_S = 6.0
"""How long `status` waits for connectors: as long as the registry and Kafka Connect may take to say nothing."""


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (up, down, status, logs, compose, kubernetes, constraints):
        app.command(rich_help_panel="Stack")(command)


def up(
    components: Annotated[
        list[str] | None,
        typer.Argument(
            help="Components to start, with what they need, such as `kafka`; or one that is started only if it is "
            "named: `sql` for BI tools, `s3`, an object store, `schema-registry`, `connect`, `source-postgres` and "
            "`source-mariadb`, databases for connectors, `opensearch`, `prometheus` and "
            "`alertmanager`, or `spark`, a cluster. Default: all others."
        ),
    ] = None,
    secured: Annotated[
        bool,
        typer.Option("--secured", help="Run three Kafka brokers with TLS, passwords and ACLs; the home keeps them."),
    ] = False,
) -> None:
    """Start Kafka, PostgreSQL and Airflow unless they run."""
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    with Steps().step("up") as report:
        if secured:
            from deltaworks.stack import secured_kafka

            settings = secured_kafka.make(settings)
        stack = lifecycle.up(settings, report, only=components)
        report(f"started: {', '.join(stack.started)}" if stack.started else "already running")
    print_table(
        "Components",
        ("name", "process", "ports", "ready after s"),
        ((c.name, str(c.pid), ", ".join(map(str, c.ports)), f"{c.ready_s:.1f}") for c in stack.components.values()),
        right=("process", "ready after s"),
    )
    if (login := stack.credentials) is not None:
        password = login.password if login.created_now else f"in {login.file}"
        out.print(Text(f"Airflow  {login.url}  user {login.user}, password {password}"))
    if (login := stack.sql) is not None:
        place = "of the settings" if settings.sql_password else f"in {login.file}"
        password = login.password if login.created_now else place
        out.print(Text(f"SQL  {login.url}  user {login.user}, password {password}"))
    if (login := stack.s3) is not None:
        out.print(Text(f"S3  {login.url}  keys in {login.file}"))
    if (login := stack.schema_registry) is not None:
        out.print(Text(f"Schema registry  {login.url}  user {login.user}, password in {login.file}"))
    if (login := stack.connect) is not None:
        out.print(Text(f"Kafka Connect  {login.url}  user {login.user}, password in {login.file}"))
    if (login := stack.source_postgres) is not None:
        out.print(Text(f"Source PostgreSQL  {login.url}  password in {login.file}"))
    if (login := stack.source_mariadb) is not None:
        out.print(Text(f"Source MariaDB  {login.url}  password in {login.file}"))
    if stack.opensearch is not None:
        out.print(Text(f"OpenSearch  {stack.opensearch}  without a password"))
    if stack.alertmanager is not None:
        told = "tells the webhook" if settings.alert_webhook else "tells nobody: set DELTAWORKS_ALERT_WEBHOOK"
        out.print(Text(f"Alertmanager  {stack.alertmanager}  {told}"))
    if stack.prometheus is not None:
        out.print(Text(f"Prometheus  {stack.prometheus}  without a password"))
        if settings.metrics == "off":
            out.print(Text(f'streams serve no metrics: in {config.FILE}, metrics = "on", then deploy them again'))
    if (login := stack.spark) is not None:
        from deltaworks.stack import spark

        out.print(Text(f"Spark  {login.url}  page {spark.page(settings)}, secret in {login.file}"))
        out.print(Text(f'in {config.FILE}:\n[spark]\n"spark.master" = "{login.url}"'))


def down(
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete topics, checkpoints, tables and logs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Stop everything: first the pipelines, which finish their batch, then the components.

    Deletes data only of a home that deltaworks created; in a terminal, it asks first.
    """
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    if delete_data and settings.home.is_dir():
        _agree_to_delete(settings, yes=yes)
    with Steps().step("down") as report:
        stopped = lifecycle.down(settings, report, delete_data=delete_data)
        report(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def _agree_to_delete(settings: Settings, *, yes: bool) -> None:
    """Shows what will be deleted; raises before anything is stopped if deleting is refused or declined."""
    from deltaworks import home

    found = home.contents(settings)
    print_table(
        f"To be deleted in {settings.home}",
        ("name", "MB"),
        ((part.path.name, f"{part.size_bytes / 1e6:,.1f}") for part in found.parts),
        right=("MB",),
    )
    if found.others:
        out.print(Text(f"Kept, since deltaworks did not create them: {', '.join(path.name for path in found.others)}"))
    for what, address in (("the tables", settings.tables_address), ("the state of streams", settings.storage_address)):
        if address is not None:
            out.print(Text(f"Kept, unless its store is that of this home: {what} at {address}"))
    if not yes and sys.stdin.isatty():
        typer.confirm("Delete?", abort=True)
        yes = True
    if yes and not found.marked:
        home.mark(settings)
    home.require_marked(settings)


def status(
    name: Annotated[str | None, typer.Argument(help="Only this pipeline, with its last deployments.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of the pipelines, of the project's connectors, sinks behind the tables, and what runs."""
    from deltaworks.control.seen import seen as overview
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    connectors_soon = _asked_beside(settings, name)
    seen = overview(settings, name)
    processes = [process for process in lifecycle.status(settings) if name in (None, process.name)]
    behind = sinks.listed(settings, name)
    connectors = connectors_soon()
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.Status.of(seen, processes, connectors, behind))
    print_table(
        "Pipelines",
        (
            "name",
            "should be",
            "is",
            "generation",
            "for",
            "batch",
            "lag",
            "lag s",
            "records/s",
            "restarts",
            "incidents",
            "why",
        ),
        map(_pipeline_row, seen.pipelines),
        right=("generation", "batch", "lag", "lag s", "records/s", "restarts", "incidents"),
    )
    if seen.registry_problem:
        out.print(Text(f"This is only what this host knows. {seen.registry_problem}", "yellow"))
    if name is not None:
        for line in (line for pipeline in seen.pipelines for line in pipeline.seen.log_lines):
            out.print(Text(f"  | {line}"))
        print_table(
            "Deployments",
            ("generation", "state", "requested by", "requested at", "exit code", "why"),
            (
                (
                    d.generation,
                    d.state,
                    d.requested_by,
                    d.requested_at.replace(microsecond=0),
                    d.exit_code,
                    first_line(d.reason or ""),
                )
                for d in seen.deployments
            ),
            right=("generation", "exit code"),
        )
    if connectors is not None and (connectors.connectors or connectors.problem):
        _show_connectors(connectors)
    if behind:
        sinks.show(behind)
    print_table(
        "Processes",
        ("name", "state", "pid", "memory MB", "ports", "log"),
        ((s.name, s.state, str(s.pid), s.memory_mb, ", ".join(map(str, s.ports)), s.log) for s in processes),
        right=("pid", "memory MB"),
    )


def _asked_beside(settings: Settings, name: str | None) -> Callable[[], Connectors | None]:
    """Asks for the connectors beside everything else; the result waits for an answer, but not for long."""
    answer: Future[Connectors | None] = Future()
    until = clock.ticks_s() + _CONNECTORS_S

    def ask() -> None:
        try:
            answer.set_result(_connectors(settings, name))
        except BaseException as error:
            answer.set_exception(error)

    def soon() -> Connectors | None:
        try:
            return answer.result(max(0.0, until - clock.ticks_s()))
        except TimeoutError:
            from deltaworks.connectors.overview import Connectors

            return Connectors(problem=f"nothing is known of them after {_CONNECTORS_S:g} s: does Kafka Connect answer?")

    Thread(target=ask, daemon=True).start()  # nobody waits for it at the end: a name server may take a minute
    return soon


def _connectors(settings: Settings, name: str | None) -> Connectors | None:
    """The connectors of the project; None: it has no files of any, so nobody is asked."""
    if not (settings.jobs / "connectors").is_dir():
        return None
    try:
        from deltaworks.connectors.overview import overview

        return overview(settings, name)
    except ModuleNotFoundError as error:
        if extras.missing(error) is None:
            raise
        return None  # somebody runs streams beside connectors of a project, without the extra for these


def _show_connectors(found: Connectors) -> None:
    if found.problem is not None:
        out.print(Text(f"Connectors: {found.problem}", "yellow"))
    if not found.connectors:
        return
    print_table(
        "Connectors",
        (
            *("name", "should be", "is", "tasks", "running", "failed"),
            *("lag", "dead letters", "restarts", "incidents", "why"),
        ),
        (
            (
                c.name,
                c.desired,
                c.state,
                c.tasks,
                c.running_tasks,
                c.failed_tasks,
                lag_text(c.lag_records, c.lag_bytes),
                c.dead_letters,
                c.restarts,
                c.incidents,
                first_line(c.reason or ""),
            )
            for c in found.connectors
        ),
        right=("tasks", "running", "failed", "lag", "dead letters", "restarts", "incidents"),
    )


def logs(
    name: Annotated[str, typer.Argument(help="Name of the process, as `status` shows it.")],
    lines: Annotated[int, typer.Option("--lines", "-n", help="Number of lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until interrupted.")] = False,
) -> None:
    """Show the end of a log."""
    from deltaworks.stack import lifecycle

    log = lifecycle.log_of(Settings.from_environment(), name)
    with log.open(errors="replace") as file:
        for line in deque(file, lines):
            out.out(line, end="")
        while follow:
            if line := file.readline():
                out.out(line, end="")
            else:
                time.sleep(0.2)


def compose(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The compose file; default: docker-compose.yml in the project."),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(help="A wheel of deltaworks in the project, which the image installs; default: from the index."),
    ] = None,
    force: Force = False,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Instead, print new passwords and keys, as .env has them.")
    ] = False,
) -> None:
    """Write docker-compose.yml, Dockerfile and .dockerignore for this project: the same stack in containers."""
    from deltaworks.stack.compose import compose_files, new_secrets

    if secrets:
        out.out(new_secrets(), end="")
        return
    settings = Settings.from_environment()
    file = output or settings.project / "docker-compose.yml"
    files = compose_files(settings, wheel)
    others = {file.parent / name: text for name, text in files.items() if name != "docker-compose.yml"}
    write_files({file: files["docker-compose.yml"], **others}, force=force)


def kubernetes(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder; default: `k8s` in the project.")
    ] = None,
    force: Force = False,
) -> None:
    """Write manifests for Kubernetes, for kustomize: a base, and an example of an overlay."""
    from deltaworks.stack.kubernetes import kubernetes_files

    settings = Settings.from_environment()
    folder = output or settings.project / "k8s"
    write_files({folder / name: text for name, text in kubernetes_files(settings).items()}, force=force)


def constraints(
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Print the hashes, too, for `pip install --require-hashes -r`.")
    ] = False,
) -> None:
    """Print the versions of packages that deltaworks was tested with, for `pip install -c`."""
    from deltaworks.stack import constraints as found

    settings = Settings.from_environment()
    out.out(found.locked(settings) if hashes else found.versions(settings), end="", highlight=False)


def _pipeline_row(pipeline: PipelineStatus) -> tuple[object, ...]:
    seen, beat = pipeline.seen, pipeline.seen.heartbeat
    return (
        pipeline.name,
        pipeline.desired,
        seen.state,
        seen.generation,
        _duration(pipeline.for_s),
        beat and beat.batch_id,
        beat and beat.lag_records,
        round(beat.lag_seconds) if beat and beat.lag_seconds is not None else None,
        round(beat.records_per_second) if beat and seen.state in ("running", "draining") else None,
        pipeline.restarts,
        pipeline.incidents or None,
        first_line(pipeline.reason or ""),
    )


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    whole = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
