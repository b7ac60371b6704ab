"""`up`, `down`, `status`, `logs`: what runs around the pipelines, and the pipelines that run."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from deltaworks.cli.console import Steps, out, print_table
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (up, down, status, logs):
        app.command(rich_help_panel="Stack")(command)


def up(
    components: Annotated[
        list[str] | None, typer.Argument(help="Only these and what they need, such as `kafka`; default: all.")
    ] = None,
) -> None:
    """Start Kafka, PostgreSQL and Airflow, or find them running."""
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    with Steps().step("up") as report:
        stack = lifecycle.up(settings, report, only=components)
        report(f"started: {', '.join(stack.started)}" if stack.started else "was running")
    print_table(
        "Components",
        ("name", "process", "ports", "ready after s"),
        ((c.name, str(c.pid), ", ".join(map(str, c.ports)), f"{c.ready_s:.1f}") for c in stack.components.values()),
        right=("process", "ready after s"),
    )
    if (login := stack.credentials) is not None:
        password = login.password if login.created_now else f"in {login.file}"
        out.print(Text(f"Airflow  {login.url}  user {login.user}, password {password}"))


def down(
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete topics, checkpoints, tables and logs.")
    ] = False,
) -> None:
    """Stop everything that was started: pipelines first (they finish their batch), then the components."""
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    with Steps().step("down") as report:
        stopped = lifecycle.down(settings, report, delete_data=delete_data)
        report(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status() -> None:
    """Show what runs, and how the pipelines are."""
    from deltaworks.stack import lifecycle

    settings = Settings.from_environment()
    print_table(
        "Processes",
        ("name", "state", "pid", "memory MB", "ports", "log"),
        (
            (s.name, s.state, str(s.pid), s.memory_mb, ", ".join(map(str, s.ports)), s.log)
            for s in lifecycle.status(settings)
        ),
        right=("pid", "memory MB"),
    )
    beats = [beat for path in sorted(settings.pipeline("*").parent.glob("*/heartbeat.json")) if (beat := _beat(path))]
    print_table(
        "Pipelines",
        ("name", "state", "batch", "lag", "records/s", "dead letters", "late", "beat"),
        beats,
        right=("batch", "lag", "records/s", "dead letters", "late"),
    )


def logs(
    name: Annotated[str, typer.Argument(help="Of the process, as `status` shows it.")],
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
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


def _beat(path: Path) -> tuple[object, ...] | None:
    from deltaworks.control import heartbeat

    beat = heartbeat.read(path)
    if beat is None:
        return None
    return (
        beat.pipeline,
        beat.state,
        beat.batch_id,
        beat.lag_records,
        round(beat.records_per_second),
        beat.dead_letters,
        beat.late_records,
        f"{heartbeat.age_s(beat):.0f} s ago",
    )
