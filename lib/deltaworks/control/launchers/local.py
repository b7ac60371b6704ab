"""Drivers as detached processes on this host, the one that has the home.

Each driver has its own session, so it outlives the process that launched it. It is registered like the rest of the
stack, so `deltaworks status` and `down` know it. Usually the supervisor of the home launches it and restarts it when it
dies; this module does not restart it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import msgspec
import psutil

from deltaworks import processes
from deltaworks.control.launchers.base import DriverSpec, ExternalId, Life
from deltaworks.control.logs import why
from deltaworks.control.supervisor import address, client
from deltaworks.control.supervisor.messages import About, AskAbout
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.processes import Registered
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


class Launch(Protocol):
    """Starts a process and registers it, see `processes.launch`."""

    def __call__(
        self, *, name: str, kind: str, command: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> Registered: ...


class LocalLauncher:
    """Starts drivers on this host.

    Args:
        settings: settings of the drivers.
        command: makes the command line of a driver.
        launch: starts the process; None: this process does.
    """

    def __init__(
        self,
        settings: Settings,
        command: Callable[[DriverSpec], Sequence[str]] = driver_command,
        launch: Launch | None = None,
    ) -> None:
        self._settings = settings
        self._command = command
        self._launch = launch or partial(processes.launch, settings.run)

    def check(self) -> None:
        if os.name != "posix":
            raise ConfigurationError("The launcher 'local' needs a POSIX system.")
        client.require_elsewhere(self._settings)

    def submit(self, spec: DriverSpec) -> ExternalId:
        running = self.drivers(spec.pipeline).get(spec.generation)
        if running is not None and self.status(running) == "alive":
            return running
        settings = self._settings if spec.code is None else self._settings.with_code(spec.code)
        log_from = spec.log.stat().st_size if spec.log.exists() else 0
        entry = self._launch(
            name=spec.pipeline,
            kind=KIND,
            command=self._command(spec),
            log=spec.log,
            env=settings.driver_environment(),
        )
        return _external_id(entry) | {"log_from": log_from}

    def drivers(self, pipeline: str) -> dict[int, ExternalId]:
        entry = processes.find(self._settings.run, pipeline)
        generation = generation_of(entry.command) if entry is not None and entry.kind == KIND else None
        return {generation: _external_id(entry)} if entry is not None and generation is not None else {}

    def status(self, driver: ExternalId) -> Life:
        if not _is_here(driver):
            return cast(Life, self._elsewhere("status", driver) or "gone")
        return "alive" if self._entry(driver).alive else "ended"

    def suspended(self, driver: ExternalId) -> bool:
        if not _is_here(driver):
            return bool(self._elsewhere("suspended", driver))
        if self.status(driver) != "alive":
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(driver["pid"]).status() == psutil.STATUS_STOPPED
        return False

    def request_stop(self, driver: ExternalId) -> None:
        if not _is_here(driver):
            self._elsewhere("request_stop", driver)
        elif self.status(driver) == "alive":
            with contextlib.suppress(ProcessLookupError):
                os.kill(driver["pid"], signal.SIGTERM)

    def kill(self, driver: ExternalId) -> None:
        if not _is_here(driver):
            self._elsewhere("kill", driver)
        else:
            processes.stop(self._settings.run, self._entry(driver), timeout_s=0.0)

    def log_lines(self, driver: ExternalId) -> list[str]:
        return why(Path(driver["log"]), after=driver.get("log_from", 0))

    def _elsewhere(self, what: About, driver: ExternalId) -> str | bool | None:
        """The answer of the supervisor on the driver's machine; None if it does not answer or is elsewhere."""
        found = address.read(self._settings.run)
        if found is None or found.machine != driver["host"]:
            return None
        with contextlib.suppress(OSError, StackError):
            return client.ask(self._settings, AskAbout(what, driver)).fact
        return None

    def _entry(self, driver: ExternalId) -> Registered:
        return Registered(
            name=driver["name"],
            kind=KIND,
            pid=driver["pid"],
            started_s=driver["started_s"],
            command=(),
            log=driver["log"],
            started=driver.get("started", ""),
        )


def _is_here(driver: ExternalId) -> bool:
    return bool(driver["host"] == socket.gethostname())


def _external_id(entry: Registered) -> ExternalId:
    return {
        "host": entry.host or socket.gethostname(),
        "name": entry.name,
        "pid": entry.pid,
        "started_s": entry.started_s,
        "log": entry.log,
        "started": entry.started,
        **({} if entry.launched is None else {"launched": msgspec.to_builtins(entry.launched)}),
    }


def generation_of(command: Sequence[str]) -> int | None:
    """The generation of a driver with this command line; None if it belongs to no deployment."""
    with contextlib.suppress(ValueError, IndexError):
        return int(command[list(command).index("--generation") + 1])
    return None
