"""The command `doctor`: tries what streams need, and says what to do about what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import typer
from rich.text import Text

from deltaworks import config
from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.errors import DeltaworksError
from deltaworks.extras import missing
from deltaworks.settings import Settings

Outcome = Literal["ok", "warning", "failed", "skipped"]
_COLOR = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


@dataclass(frozen=True)
class Finding:
    """The finding of a check."""

    name: str
    outcome: Outcome
    found: str
    hint: str | None = None


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Stack")(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Try every connection and tool that streams need; changes nothing. Exit code 1 if one of them fails."""
    settings = Settings.from_environment()
    findings = [finding for check, name in CHECKS.items() for finding in _tried(check, name, settings)]
    if as_json:
        from deltaworks.cli import listings

        print_json(listings.Doctor(checks=list(map(listings.FindingListed.of, findings))))
    else:
        print_table(
            f"Project {settings.project}",
            ("check", "outcome", "found"),
            ((f.name, Text(f.outcome, _COLOR[f.outcome]), f.found) for f in findings),
        )
        for finding in findings:
            if finding.hint is not None:
                out.print(Text.assemble((f"{finding.name}: ", "bold"), finding.hint))
    if any(finding.outcome == "failed" for finding in findings):
        raise typer.Exit(1)


def _tried(check: Callable[[Settings], Iterator[Finding]], name: str, settings: Settings) -> list[Finding]:
    try:
        return list(check(settings))
    except DeltaworksError as error:
        return [Finding(name, "failed", error.message, error.hint)]
    except ModuleNotFoundError as error:
        if (needed := missing(error)) is None:
            raise
        return [Finding(name, "skipped", needed.message, needed.hint)]


def _settings(settings: Settings) -> Iterator[Finding]:
    file = settings.project / config.FILE
    chosen = f", environment {settings.values.environment}" if settings.values.environment else ""
    yield Finding("settings", "ok", f"{file}{chosen}" if file.exists() else f"no {config.FILE}; variables and defaults")
    jobs = sorted(path.stem for path in (settings.project / "jobs").glob("*.py") if path.stem != "__init__")
    if jobs:
        yield Finding("pipelines", "ok", ", ".join(jobs))
    else:
        hint = "deltaworks init makes a project; DELTAWORKS_PROJECT names another folder"
        yield Finding("pipelines", "warning", f"none in {settings.project / 'jobs'}", hint)


def _home(settings: Settings) -> Iterator[Finding]:
    from deltaworks import disk

    there = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        hint = "chmod or chown it, or set DELTAWORKS_HOME to a folder of yours"
        yield Finding("home", "failed", f"{settings.home} cannot be written: {there} belongs to somebody else", hint)
    elif disk.is_full(there):
        yield Finding(
            "home", "failed", f"{settings.home}: {disk.free(there)}", "make room; streams stop on a full disk"
        )
    else:
        yield Finding("home", "ok", f"{settings.home}: {disk.free(there)}")


def _java(settings: Settings) -> Iterator[Finding]:
    from deltaworks.stack.components import read_components
    from deltaworks.stack.java import find_java

    java = find_java(settings, read_components(settings.infra).java_versions)
    yield Finding("Java", "ok", f"{java.version} in {java.home}")


def _kafka(settings: Settings) -> Iterator[Finding]:
    from deltaworks.kafka import admin

    if not admin.answers(settings.cluster):
        if (refused := admin.refusal(settings.cluster)) is not None:
            raise refused
        hint = "deltaworks up starts one here; DELTAWORKS_BOOTSTRAP names another"
        yield Finding("Kafka", "failed", f"no answer at {settings.cluster}", hint)
        return
    topics = admin.partition_counts(settings.cluster)
    yield Finding("Kafka", "ok", f"{settings.cluster} answers; {len(topics)} topics")
    longest_ms = admin.transaction_timeout_ms(settings.cluster)
    found = f"transactions may take {longest_ms / 1000:.0f} s"
    short = admin.short_transactions(longest_ms)
    yield Finding("transactions", "warning" if short else "ok", found, short)


def _registry(settings: Settings) -> Iterator[Finding]:
    from deltaworks.control.registry import Registry

    pipelines = Registry.of(settings).pipelines()
    yield Finding("registry", "ok", f"PostgreSQL answers; {len(pipelines)} pipelines are known")


def _supervisor(settings: Settings) -> Iterator[Finding]:
    from deltaworks.control.supervisor import client

    if client.answers(settings):
        yield Finding("supervisor", "ok", "it runs")
    else:
        yield Finding("supervisor", "warning", "it does not run", "`deltaworks deploy` starts it")


def _spark(settings: Settings) -> Iterator[Finding]:
    import importlib.metadata

    import deltaworks.spark.session  # noqa: F401  # what it needs is installed

    yield Finding("Spark", "ok", f"PySpark {importlib.metadata.version('pyspark')}")


CHECKS: dict[Callable[[Settings], Iterator[Finding]], str] = {
    _settings: "settings",
    _home: "home",
    _java: "Java",
    _spark: "Spark",
    _kafka: "Kafka",
    _registry: "registry",
    _supervisor: "supervisor",
}
"""Each check, and what it is called if it cannot say more."""
