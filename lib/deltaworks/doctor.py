"""What streams need, tried: the checks of `deltaworks doctor`, and of Airflow where it tests a connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from deltaworks import config
from deltaworks.errors import DeltaworksError
from deltaworks.extras import missing
from deltaworks.remote import Remote
from deltaworks.settings import Settings

Outcome = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """The finding of a check."""

    name: str
    outcome: Outcome
    found: str
    hint: str | None = None


Check: TypeAlias = Callable[[Settings], Iterator[Finding]]


def examine(settings: Settings, names: Sequence[str] | None = None) -> list[Finding]:
    """Tries what streams need; changes nothing.

    Args:
        settings: where to look.
        names: checks of `CHECKS`; None: all of them.
    """
    chosen = CHECKS if names is None else {name: CHECKS[name] for name in names}
    return [finding for name, check in chosen.items() for finding in _tried(check, name, settings)]


def _tried(check: Check, name: str, settings: Settings) -> list[Finding]:
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
    if found := _jobs(settings):
        yield Finding("pipelines", "ok", ", ".join(found))
    else:
        hint = "deltaworks init makes a project; DELTAWORKS_PROJECT names another folder"
        yield Finding("pipelines", "warning", f"none in {settings.project / 'jobs'}", hint)


def _jobs(settings: Settings) -> list[str]:
    return sorted(path.stem for path in (settings.project / "jobs").glob("*.py") if path.stem != "__init__")


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

    client.require_elsewhere(settings)
    if client.answers(settings):
        yield Finding("supervisor", "ok", "it runs")
    else:
        yield Finding("supervisor", "warning", "it does not run", "`deltaworks deploy` starts it")


def _spark(settings: Settings) -> Iterator[Finding]:
    import importlib.metadata

    import deltaworks.spark.session  # noqa: F401  # what it needs is installed
    from deltaworks.control import cluster

    yield Finding("Spark", "ok", f"PySpark {importlib.metadata.version('pyspark')}")
    found = (cluster.of(settings, name) for name in _jobs(settings))
    for each in {str(each): each for each in found if each is not None}.values():
        each.require_answer()
        yield Finding(each.kind, "ok", f"{each.at} answers")


def _traces(settings: Settings) -> Iterator[Finding]:
    from deltaworks.traces.options import require_usable

    for name in _jobs(settings):
        try:
            options = require_usable(settings, name)
        except DeltaworksError as error:
            yield Finding("traces", "failed", f"{name}: {error.message}", error.hint)
        else:
            if options is not None:
                yield Finding("traces", "ok", f"{name}: they go to {options.host}")


def _tables(settings: Settings) -> Iterator[Finding]:
    yield _place("tables", settings.remote, settings.local_tables)


def _storage(settings: Settings) -> Iterator[Finding]:
    yield _place("storage", settings.storage, settings.pipelines)


def _place(what: str, remote: Remote | None, local: Path) -> Finding:
    if remote is None:
        return Finding(what, "ok", f"{local}")
    remote.check()
    return Finding(what, "ok", f"{remote.address} answers, and obeys conditions")


CHECKS: Mapping[str, Check] = {
    "settings": _settings,
    "home": _home,
    "tables": _tables,
    "storage": _storage,
    "Java": _java,
    "Spark": _spark,
    "Kafka": _kafka,
    "registry": _registry,
    "supervisor": _supervisor,
    "traces": _traces,
}
"""Each check by its name, which a finding has unless the check can say more."""
