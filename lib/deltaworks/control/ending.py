"""Ends the drivers of a pipeline: asks them to stop, and kills them with all their processes if they do not."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

from deltaworks import clock, exits, processes
from deltaworks.control import lease, outcome
from deltaworks.control.launchers import ExternalId, Launcher, Launchers
from deltaworks.control.lease import Holder
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings

_POLL_S = 0.05
_TERM_S = 5.0
_REPORT_S = 1.0


@dataclass(frozen=True)
class Ended:
    """A driver that has ended."""

    generation: int
    drained: bool
    """Whether it ended by itself."""


class _Driver(Protocol):
    def alive(self) -> bool: ...
    def suspended(self) -> bool: ...
    def request_stop(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True)
class _Launched:
    launcher: Launcher
    id: ExternalId

    def alive(self) -> bool:
        return self.launcher.status(self.id) == "alive"

    def suspended(self) -> bool:
        return self.launcher.suspended(self.id)

    def request_stop(self) -> None:
        self.launcher.request_stop(self.id)

    def kill(self) -> None:
        self.launcher.kill(self.id)


@dataclass(frozen=True)
class _Foreground:
    """Somebody's `deltaworks run` in a terminal, whose session is not ours to kill."""

    holder: Holder

    def alive(self) -> bool:
        return self.holder.driver.alive() is not None

    def suspended(self) -> bool:
        process = self.holder.driver.alive()
        return process is not None and process.status() == psutil.STATUS_STOPPED

    def request_stop(self) -> None:
        if process := self.holder.driver.alive():
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def kill(self) -> None:
        if process := self.holder.driver.alive():
            processes.kill(processes.family(process), timeout_s=_TERM_S)


def end_drivers(
    settings: Settings,
    name: str,
    *,
    keep: int | None,
    by: str,
    registry: Registry | None,
    report: Callable[[str], None],
    timeout_s: float,
    launchers: Launchers,
) -> list[Ended]:
    """Ends every running driver of the pipeline.

    A driver that does not end within `timeout_s` is killed; a suspended one is killed at once. This needs only the
    files; with a registry, drivers that cannot see the files are asked, too.

    Args:
        keep: a generation to leave alone.
        by: who wants it and why; the outcome of killed drivers names it.
    """
    paths = PipelinePaths.of(settings, name)
    drivers = _running(settings, name, keep, registry, launchers)
    _end_remains(launchers(settings, "local"), name, keep)
    for generation in drivers:
        paths.root.mkdir(parents=True, exist_ok=True)
        paths.drain(generation).touch()
        if registry is not None:
            with suppress(ControlUnavailableError):
                registry.drain(name, generation, by)
    return [_end(paths, generation, driver, by, report, timeout_s) for generation, driver in drivers.items()]


def _running(
    settings: Settings, name: str, keep: int | None, registry: Registry | None, launchers: Launchers
) -> dict[int, _Driver]:
    found: dict[int, _Driver] = {}
    if registry is not None:
        with suppress(ControlUnavailableError):
            for past in registry.deployments(name):
                if past.external_id is not None:
                    found[past.generation] = _Launched(launchers(settings, past.options.launcher), past.external_id)
    local = launchers(settings, "local")
    found |= {generation: _Launched(local, driver) for generation, driver in local.drivers(name).items()}
    holder = lease.read_holder(PipelinePaths.of(settings, name).lease)
    if holder is not None and holder.host == socket.gethostname() and holder.generation not in found:
        found[holder.generation] = _Foreground(holder)
    return {generation: driver for generation, driver in found.items() if generation != keep and driver.alive()}


def _end_remains(local: Launcher, name: str, keep: int | None) -> None:
    """Ends what killed drivers left behind: a JVM, workers."""
    for generation, driver in local.drivers(name).items():
        if generation != keep and local.status(driver) == "ended":
            local.kill(driver)


def _end(
    paths: PipelinePaths, generation: int, driver: _Driver, by: str, report: Callable[[str], None], timeout_s: float
) -> Ended:
    drained = _wait(driver, timeout_s, lambda s: report(f"generation {generation} drains, {s:.0f} s"))
    if not drained:
        report(f"generation {generation} does not drain; killing it")
        driver.request_stop()
        _wait(driver, _TERM_S, lambda _: None)
    driver.kill()  # including what it left behind: a JVM, workers
    paths.drain(generation).unlink(missing_ok=True)
    if not drained and outcome.read(paths.outcome(generation)) is None:
        why = f"it did not drain and was killed ({by})"
        outcome.write(paths.outcome(generation), generation, exits.INTERRUPTED, why)
    return Ended(generation, drained)


def _wait(driver: _Driver, timeout_s: float, report: Callable[[float], None]) -> bool:
    """Waits for a driver's end, but not for a suspended one; returns whether it has ended."""
    begun = reported = clock.ticks_s()
    while driver.alive():
        now = clock.ticks_s()
        if driver.suspended() or now - begun > timeout_s:
            return False
        if now - reported >= _REPORT_S:
            reported = now
            report(now - begun)
        time.sleep(_POLL_S)
    return True
