"""Drivers as detached processes on this host, the one that has the home.

Each has a session of its own, so it survives whoever launched it, and is registered like the rest of the stack, so
that `deltaworks status` and `down` know it. What it does not do: start again what died; that is `reconcile`'s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from deltaworks import processes
from deltaworks.control.launchers.base import DriverSpec, ExternalId, Life
from deltaworks.control.logs import why
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

KIND = "pipeline"


def driver_command(spec: DriverSpec) -> list[str]:
    """The command line of a driver."""
    options = spec.options
    return [
        *(sys.executable, "-m", "deltaworks.cli", "run", spec.pipeline, "--generation", str(spec.generation)),
        *(("--trigger-interval", str(options.trigger_interval_s)) if options.trigger_interval_s is not None else ()),
        *(("--start-offsets", options.start_offsets) if options.start_offsets is not None else ()),
    ]


class LocalLauncher:
    """Starts drivers here.

    Args:
        settings: they get the same.
        command: what to start.
    """

    def __init__(self, settings: Settings, command: Callable[[DriverSpec], Sequence[str]] = driver_command) -> None:
        self._settings = settings
        self._command = command

    def check(self) -> None:
        if os.name != "posix":
            raise ConfigurationError("The launcher 'local' needs a POSIX system.")

    def submit(self, spec: DriverSpec) -> ExternalId:
        running = self.drivers(spec.pipeline).get(spec.generation)
        if running is not None and self.status(running) == "alive":
            return running
        settings = self._settings if spec.code is None else self._settings.with_code(spec.code)
        log_from = spec.log.stat().st_size if spec.log.exists() else 0
        entry = processes.launch(
            self._settings.run,
            name=spec.pipeline,
            kind=KIND,
            command=self._command(spec),
            log=spec.log,
            env=settings.driver_environment(),
        )
        return _external_id(entry) | {"log_from": log_from}

    def drivers(self, pipeline: str) -> dict[int, ExternalId]:
        entry = processes.find(self._settings.run, pipeline)
        generation = _generation(entry.command) if entry is not None and entry.kind == KIND else None
        return {generation: _external_id(entry)} if entry is not None and generation is not None else {}

    def status(self, driver: ExternalId) -> Life:
        if driver["host"] != socket.gethostname():
            return "gone"
        return "alive" if self._entry(driver).alive else "ended"

    def suspended(self, driver: ExternalId) -> bool:
        if self.status(driver) != "alive":
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(driver["pid"]).status() == psutil.STATUS_STOPPED
        return False

    def request_stop(self, driver: ExternalId) -> None:
        if self.status(driver) == "alive":
            with contextlib.suppress(ProcessLookupError):
                os.kill(driver["pid"], signal.SIGTERM)

    def kill(self, driver: ExternalId) -> None:
        if self.status(driver) != "gone":
            processes.stop(self._settings.run, self._entry(driver), timeout_s=0.0)

    def log_lines(self, driver: ExternalId) -> list[str]:
        return why(Path(driver["log"]), after=driver.get("log_from", 0))

    def _entry(self, driver: ExternalId) -> processes.Registered:
        return processes.Registered(
            name=driver["name"],
            kind=KIND,
            pid=driver["pid"],
            started_s=driver["started_s"],
            command=(),
            log=driver["log"],
            started=driver.get("started", ""),
        )


def _external_id(entry: processes.Registered) -> ExternalId:
    return {
        "host": socket.gethostname(),
        "name": entry.name,
        "pid": entry.pid,
        "started_s": entry.started_s,
        "log": entry.log,
        "started": entry.started,
        **({} if entry.launched is None else {"launched": msgspec.to_builtins(entry.launched)}),
    }


def _generation(command: Sequence[str]) -> int | None:
    with contextlib.suppress(ValueError, IndexError):
        return int(command[list(command).index("--generation") + 1])
    return None
