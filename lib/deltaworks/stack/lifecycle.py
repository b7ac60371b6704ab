"""Up, down, status and logs: what the command line and the tests do with everything that runs.

`up` starts what is not running; `down` stops whatever was registered in `<home>/run`, by whomever.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltaworks import processes
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import ports
from deltaworks.stack.components import Report
from deltaworks.stack.kafka import Broker, start_kafka

_STOP_ORDER = {"pipeline": 0, "kafka": 9}
"""Readers go before what they read; kinds that are not listed go between."""
_PATIENCE_S = {"pipeline": 60.0}
"""A pipeline finishes its batch first."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """One process as it is now."""

    name: str
    kind: str
    state: str
    """`running`; `dead` when it ended without being stopped; `remains` when only its children are left."""
    pid: int
    memory_mb: int
    """Of all processes in its session."""
    ports: tuple[int, ...]
    """Those of its ports that answer."""
    log: str


def up(settings: Settings, report: Report = lambda _: None, *, tethered: bool = False) -> Broker:
    """Starts the components; quick and without effect if they run. See `start_kafka` for what it raises."""
    return start_kafka(settings, report, tethered=tethered)


def down(settings: Settings, report: Report = lambda _: None, *, delete_data: bool = False) -> list[str]:
    """Stops everything that was started, pipelines first; leaves no process, port or temporary file.

    Args:
        delete_data: also removes the home, with topics, checkpoints and tables.

    Returns:
        The names of what was stopped.
    """
    stopped = []
    for entry in sorted(processes.registered(settings.run), key=lambda e: (_STOP_ORDER.get(e.kind, 5), e.name)):
        if entry.members():
            report(f"{entry.name}: stopping process {entry.pid}")
            polite = processes.stop(settings.run, entry, timeout_s=_PATIENCE_S.get(entry.kind, 20.0))
            report(f"{entry.name}: stopped{'' if polite else ' (killed, it did not go by itself)'}")
            stopped.append(entry.name)
        else:
            processes.forget(settings.run, entry.name)
    shutil.rmtree(settings.temporary, ignore_errors=True)
    shutil.rmtree(settings.run, ignore_errors=True)
    if delete_data:
        shutil.rmtree(settings.home, ignore_errors=True)
    return stopped


def status(settings: Settings) -> list[Status]:
    """Everything that was started and not stopped."""
    return [_status(entry) for entry in processes.registered(settings.run)]


def log_of(settings: Settings, name: str) -> Path:
    """The log file of a process, running or not.

    Raises:
        ConfigurationError: there is none of that name.
    """
    file = settings.logs / f"{name}.log"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in settings.logs.glob("*.log"))) or "none yet"
        raise ConfigurationError(f"There is no log of {name!r} in {settings.logs}.", hint=f"logs: {known}")
    return file


def _status(entry: processes.Registered) -> Status:
    members = entry.members()
    alive = bool(members) and members[0].pid == entry.pid
    return Status(
        name=entry.name,
        kind=entry.kind,
        state="running" if alive else "remains" if members else "dead",
        pid=entry.pid,
        memory_mb=_memory_mb(members),
        ports=tuple(port for port in entry.ports if ports.answers(port)),
        log=entry.log,
    )


def _memory_mb(members: Iterable[psutil.Process]) -> int:
    total = 0
    for process in members:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total // 1_000_000
