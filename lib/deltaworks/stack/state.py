"""What `up` tells the runner, and what the runner tells everybody: two small files in `<home>/run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks.files import replace_file

Phase = Literal["waiting", "starting", "ready", "done", "pausing", "stopping"]
"""`waiting` for others; `pausing` before it is started again; `done` is a step that ended well."""


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """One component as it is now."""

    name: str
    phase: Phase
    pid: int = 0
    """Of its process; of the last one, if it has ended. 0: there was none yet."""
    started_s: float = 0.0
    """When that process started, as the operating system says."""
    ready_s: float | None = None
    """From the last start until it was ready."""
    restarts: int = 0
    last_exit: str | None = None
    """How it ended the last time."""
    ports: tuple[int, ...] = ()
    log: str = ""


class RunnerState(msgspec.Struct, frozen=True, kw_only=True):
    """All components of a runner."""

    pid: int
    components: tuple[ComponentState, ...]

    def find(self, name: str) -> ComponentState | None:
        return next((component for component in self.components if component.name == name), None)


def write_state(run: Path, state: RunnerState) -> None:
    """Replaces the state."""
    replace_file(run / "runner.state", msgspec.json.format(msgspec.json.encode(state), indent=1))


def read_state(run: Path) -> RunnerState | None:
    """The last state, also of a runner that is gone; None if there was none."""
    content = _content(run / "runner.state")
    return None if content is None else msgspec.json.decode(content, type=RunnerState)


def write_wanted(run: Path, names: Sequence[str]) -> None:
    """Says which components shall run. The others are stopped; without any, the runner ends."""
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(run / "runner.wanted", msgspec.json.encode(list(names)))


def read_wanted(run: Path) -> list[str]:
    """Which components shall run."""
    content = _content(run / "runner.wanted")
    return [] if content is None else msgspec.json.decode(content, type=list[str])


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
