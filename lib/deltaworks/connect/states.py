"""What connectors and their tasks do now, and waiting until that is settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from deltaworks import clock
from deltaworks.connect.answers import Running, Status, Task
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.secrets import masked_values
from deltaworks.connect.slots import Trouble, said
from deltaworks.errors import ConfigurationError

FAILED, STOPPED, UNASSIGNED = "FAILED", "STOPPED", "UNASSIGNED"
AT_REST = ("PAUSED", STOPPED)
MOVING = (UNASSIGNED, "RESTARTING")
_SETTLE_S, _ASK_S = 2.0, 0.5


@dataclass(frozen=True)
class States:
    """Connectors of a cluster."""

    url: str
    connectors: tuple[Status, ...]
    """By name."""

    @property
    def tasks(self) -> list[Task]:
        """All tasks."""
        return [task for each in self.connectors for task in each.tasks]

    @property
    def failed_tasks(self) -> list[Task]:
        """The tasks that have ended with an error."""
        return [task for task in self.tasks if task.state == FAILED]

    @property
    def has_failures(self) -> bool:
        """Whether a connector or a task has failed."""
        return any(map(has_failed, self.connectors))


def has_failed(status: Status) -> bool:
    """Whether a connector, or one of its tasks, has failed."""
    return FAILED in (status.connector.state, *(task.state for task in status.tasks))


def is_settled(status: Status) -> bool:
    """Whether nothing of a connector is about to begin: what should run runs, rests or has failed."""
    if status.connector.state in (*AT_REST, FAILED):
        return True
    states = [status.connector.state, *(task.state for task in status.tasks)]
    return bool(status.tasks) and not any(state in MOVING for state in states)


def look(api: ConnectApi, names: Collection[str] = ()) -> States:
    """The states of connectors.

    Args:
        api: of a worker.
        names: of those that are meant; none: all.

    Raises:
        ConfigurationError: there is no such connector.
        ConnectUnavailableError: the worker does not answer.
    """
    there = api.require(*names)
    known = api.statuses()
    return States(api.url, tuple(known.get(name) or _unassigned(name) for name in sorted(set(names or there))))


def wait(api: ConnectApi, names: Collection[str], wait_s: float, report: Callable[[str], None]) -> States:
    """Waits until connectors are settled, for some seconds at most; returns their last states.

    A worker takes up new settings a moment after it has got them, so it is asked for two seconds at least.
    """
    begun = clock.ticks_s()
    while True:
        states = look(api, names)
        passed = clock.ticks_s() - begun
        if passed >= wait_s or (passed >= _SETTLE_S and all(map(is_settled, states.connectors))):
            return states
        report(in_words(states))
        time.sleep(_ASK_S)


def in_words(states: States) -> str:
    """How many tasks there are, and how many of them have failed."""
    running = sum(task.state == "RUNNING" for task in states.tasks)
    return f"{running:,} of {len(states.tasks):,} tasks run, {len(states.failed_tasks):,} have failed"


def first_line(trace: str | None) -> str | None:
    """What has failed, without the stack and without what looks like a password."""
    if trace is None or not trace.strip():
        return None
    return masked_values(trace.strip().splitlines()[0])


def why(trace: str | None) -> str | None:
    """What has failed, in one line: of a log that is gone what to do, of all else the first line of the trace."""
    gone = said(trace)
    return first_line(trace) if gone is None else gone.told


def lost(status: Status) -> Trouble | None:
    """What failed parts of a connector say of a log that is gone; None: nothing."""
    everything: list[Running | Task] = [status.connector, *status.tasks]
    return next((found for each in everything if each.state == FAILED and (found := said(each.trace))), None)


def why_failed(status: Status) -> str | None:
    """What the connector, or the first of its tasks that has failed, says; see `why`."""
    everything: list[Running | Task] = [status.connector, *status.tasks]
    failed = [each for each in everything if each.state == FAILED]
    return next((line for each in failed if (line := why(each.trace)) is not None), None)


def require_stopped(api: ConnectApi, name: str) -> None:
    """Raises `ConfigurationError` unless a connector is stopped: only then do its offsets change."""
    (status,) = look(api, [name]).connectors
    if status.connector.state != STOPPED:
        raise ConfigurationError(
            f"Connector '{name}' is {status.connector.state}: its offsets can be reset while it is stopped.",
            hint=f"deltaworks connect stop {name}, and deltaworks connect resume {name} afterwards",
        )


def _unassigned(name: str) -> Status:
    return Status(name, Running(UNASSIGNED))
