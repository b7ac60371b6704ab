"""Two small files in `<home>/run`: the wanted components, which `up` writes, and the state that the runner writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks.files import replace_file

Phase = Literal["waiting", "starting", "ready", "done", "pausing", "stopping"]
"""`waiting`: for other components; `pausing`: before a restart; `done`: a step that succeeded."""


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of one component."""

    name: str
    phase: Phase
    pid: int = 0
    """Pid of its process, or of the last one if that has ended; 0: there was none yet."""
    started_s: float = 0.0
    """When that process started, according to the operating system."""
    ready_s: float | None = None
    """Seconds from the last start until it was ready."""
    restarts: int = 0
    last_exit: str | None = None
    """How its last process ended."""
    ports: tuple[int, ...] = ()
    log: str = ""


class RunnerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all components of a runner."""

    pid: int
    components: tuple[ComponentState, ...]

    def find(self, name: str) -> ComponentState | None:
        return next((component for component in self.components if component.name == name), None)


def write_state(run: Path, state: RunnerState) -> None:
    """Replaces the state."""
    replace_file(run / "runner.state", msgspec.json.format(msgspec.json.encode(state), indent=1))


def read_state(run: Path) -> RunnerState | None:
    """The last state, even of a runner that has ended; None if there was none."""
    content = _content(run / "runner.state")
    return None if content is None else msgspec.json.decode(content, type=RunnerState)


def write_wanted(run: Path, names: Sequence[str]) -> None:
    """Says which components should run. The runner stops the others; without any, it ends."""
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(run / "runner.wanted", msgspec.json.encode(list(names)))


def read_wanted(run: Path) -> list[str]:
    """The components that should run."""
    content = _content(run / "runner.wanted")
    return [] if content is None else msgspec.json.decode(content, type=list[str])


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
