"""The process runner: it starts components in order, watches them, restarts dead ones, and stops them in order.

`python -m deltaworks.stack.runner` is a detached process that `up` starts. It reads from a file which components should
run, and writes their state to another file (`state.py`).

- A component starts when all components in its `after` are ready. It is stopped when all that name it have ended.
- A component that ends is restarted after a pause: 1 s, doubling to 30 s, and 1 s again once it was ready for a minute.
  Processes that it left behind are killed first, such as the workers of a killed scheduler. Streams lead their own
  sessions and are never touched.
- Every process is tethered (`tether.py`): the kernel ends it when the runner ends, for whatever reason. The signal is
  bound to the thread that starts a process, so only the main thread does; other threads ask for readiness.
- A component that is ready and whose heartbeats end hangs; it is killed after its `silence_s`, then restarted. One is
  Airflow's scheduler that lost its database: it may wait for ever for a worker of its own, neither at work nor gone.

It does not notice that a component without heartbeats was ready and then hangs.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol, assert_never

import psutil

from deltaworks import clock
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.stack import tether
from deltaworks.stack.components import Component
from deltaworks.stack.native import Launch, NativeHost
from deltaworks.stack.state import ComponentState, Phase, RunnerState, read_wanted, write_state

NAME = "runner"
_POLL_S = 0.05
_ASK_S = 0.2
_LISTEN_S = 10.0
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger("runner")


class Host(Protocol):
    """The questions of a runner about components; see `NativeHost`."""

    def log(self, component: Component) -> Path: ...
    def ports(self, component: Component) -> tuple[int, ...]: ...
    def launch(self, component: Component) -> Launch: ...
    def is_ready(self, component: Component, since: datetime) -> bool: ...
    def heartbeat(self, component: Component) -> datetime | None: ...
    def members(self, component: Component, pid: int, started_s: float) -> list[psutil.Process]: ...


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """The pauses before the next start of a component that ended."""

    first_s: float = 1.0
    longest_s: float = 30.0
    healthy_s: float = 60.0
    """After this long in `ready`, the next pause is the first one again."""


@dataclass
class _Child:
    """A component and its process."""

    component: Component
    pause_s: float
    phase: Phase = "waiting"
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    since: datetime = _NEVER
    begun: float = 0.0
    """When the phase began."""
    ready_s: float | None = None
    restarts: int = 0
    last_exit: str | None = None
    answer: Future[bool] | None = None
    asked: float = 0.0
    """When it was last asked for an answer or a heartbeat."""
    listening: Future[datetime | None] | None = None
    beat: datetime | None = None
    """The last heartbeat."""
    heard: float = 0.0
    """When that was new, or nobody could tell."""

    @property
    def runs(self) -> bool:
        return self.phase in ("starting", "ready", "stopping")


@dataclass
class Runner:
    """Runs until no component is wanted or until it is told to stop."""

    host: Host
    run: Path
    """Folder of its files."""
    known: Sequence[Component]
    """All components, in an order in which they can be started."""
    pauses: Pauses = field(default_factory=Pauses)
    _children: dict[str, _Child] = field(default_factory=dict)
    _stop: bool = False
    _written: RunnerState | None = None

    def run_until_stopped(self) -> None:
        """The main loop; returns when every process has ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        with ThreadPoolExecutor(4, thread_name_prefix="ask") as pool:
            while True:
                wanted = set() if self._stop else set(read_wanted(self.run))
                for component in self.known:
                    if component.name in wanted and component.name not in self._children:
                        self._children[component.name] = _Child(component, self.pauses.first_s)
                for child in list(self._children.values()):
                    self._step(child, pool, wanted=child.component.name in wanted)
                self._write()
                if not self._children:
                    break
                time.sleep(_POLL_S)
        _log.info("nothing is left to run")

    def _told_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop = True

    def _step(self, child: _Child, pool: ThreadPoolExecutor, *, wanted: bool) -> None:
        ended = self._exit_of(child)
        if child.phase == "stopping":
            self._go_on_stopping(child, ended)
        elif ended is not None:
            self._note_end(child, ended)
        elif not wanted:
            self._stop_or_forget(child)
        else:
            match child.phase:
                case "waiting":
                    if self._may_start(child):
                        self._start(child)
                case "starting":
                    self._ask(child, pool)
                case "ready":
                    if _age_s(child) > self.pauses.healthy_s:
                        child.pause_s = self.pauses.first_s
                    if child.component.silence_s:
                        self._listen(child, pool)
                case "pausing":
                    if _age_s(child) > child.pause_s and self._may_start(child) and self._nothing_left_of(child):
                        child.pause_s = min(child.pause_s * 2, self.pauses.longest_s)
                        child.restarts += 1
                        self._start(child)
                case "done":
                    pass
                case _:
                    assert_never(child.phase)

    def _may_start(self, child: _Child) -> bool:
        needed = (self._children.get(name) for name in child.component.after)
        return all(other is not None and other.phase in ("ready", "done") for other in needed)

    def _start(self, child: _Child) -> None:
        component = child.component
        try:
            launch = self.host.launch(component)
        except (DeltaworksError, OSError) as error:  # for example, Java was removed meanwhile
            child.process = None
            self._note_end(child, str(error).splitlines()[0])
            return
        options = ["--signal", component.stop_signal, *(["--user", launch.user] if launch.user else [])]
        log = self.host.log(component)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        child.since = clock.utc_now()
        with open(log, "ab", opener=_for_its_user) as output:
            child.process = subprocess.Popen(
                [*tether.COMMAND, *options, str(os.getpid()), *launch.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=launch.folder,
                env=dict(launch.environment),
                start_new_session=True,
            )
        child.started_s = psutil.Process(child.process.pid).create_time()
        child.ready_s, child.answer, child.listening = None, None, None
        _enter(child, "starting")
        _log.info("%s: started, process %d", component.name, child.process.pid)

    def _ask(self, child: _Child, pool: ThreadPoolExecutor) -> None:
        """Asks whether a component is ready; never waits for the answer."""
        name, limit_s = child.component.name, child.component.ready_timeout_s
        if child.answer is not None and child.answer.done():
            answer, child.answer = child.answer, None
            if answer.exception() is not None:
                _log.error("%s: the check whether it is ready failed", name, exc_info=answer.exception())
            elif answer.result():
                child.ready_s = _age_s(child)
                child.heard = clock.ticks_s()
                _enter(child, "ready")
                _log.info("%s: ready after %.1f s", name, child.ready_s)
                return
        if _age_s(child) > limit_s:
            self._kill(child, f"not ready after {limit_s:.0f} s")
        elif child.answer is None and not child.component.is_step and clock.ticks_s() - child.asked > _ASK_S:
            child.asked = clock.ticks_s()
            child.answer = pool.submit(self.host.is_ready, child.component, child.since)

    def _listen(self, child: _Child, pool: ThreadPoolExecutor) -> None:
        """Asks for the heartbeat of a component; never waits for it."""
        now, limit_s = clock.ticks_s(), child.component.silence_s
        if child.listening is not None and child.listening.done():
            listening, child.listening = child.listening, None
            beat = None if listening.exception() is not None else listening.result()
            if beat is None or beat != child.beat:
                child.beat, child.heard = beat, now
        if now - child.heard > limit_s:
            self._kill(child, f"no heartbeat for {limit_s:.0f} s")
        elif child.listening is None and now - child.asked > min(_LISTEN_S, limit_s / 4):
            child.asked = now
            child.listening = pool.submit(self.host.heartbeat, child.component)

    def _kill(self, child: _Child, why: str) -> None:
        assert child.process is not None
        _log.error("%s: %s, killing it", child.component.name, why)
        child.process.kill()
        child.process.wait()
        self._note_end(child, why)

    def _exit_of(self, child: _Child) -> str | None:
        if not child.runs or child.process is None or (code := child.process.poll()) is None:
            return None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _note_end(self, child: _Child, how: str) -> None:
        name = child.component.name
        if child.component.is_step and how == "exit code 0":
            child.ready_s = _age_s(child)
            _enter(child, "done")
            _log.info("%s: done after %.1f s", name, child.ready_s)
            return
        if child.phase == "ready" and _age_s(child) > self.pauses.healthy_s:
            child.pause_s = self.pauses.first_s
        child.last_exit = how
        _enter(child, "pausing")
        _log.warning("%s: ended (%s), next start in %.1f s", name, how, child.pause_s)
        self._nothing_left_of(child)

    def _nothing_left_of(self, child: _Child) -> bool:
        """Kills what its processes left behind; returns False while something is still there."""
        if child.process is None:
            return True
        left = self.host.members(child.component, child.process.pid, child.started_s)
        for process in left:
            try:
                process.kill()
                _log.warning("%s: killed process %d, which it left behind", child.component.name, process.pid)
            except psutil.NoSuchProcess:
                continue
        return not left

    def _stop_or_forget(self, child: _Child) -> None:
        if not child.runs:
            if self._nothing_left_of(child):
                del self._children[child.component.name]
            return
        name = child.component.name
        if any(name in other.component.after and other.runs for other in self._children.values()):
            return
        assert child.process is not None
        child.process.send_signal(signal.Signals[child.component.stop_signal])
        _enter(child, "stopping")

    def _go_on_stopping(self, child: _Child, ended: str | None) -> None:
        name, patience_s = child.component.name, child.component.stop_patience_s
        if ended is not None:
            if self._nothing_left_of(child):
                _log.info("%s: stopped (%s) after %.1f s", name, ended, _age_s(child))
                del self._children[name]
        elif _age_s(child) > patience_s and child.process is not None:
            _log.warning("%s: still runs after %.0f s, killing it", name, patience_s)
            child.process.kill()

    def _write(self) -> None:
        state = RunnerState(pid=os.getpid(), components=tuple(map(self._state, self._children.values())))
        if state != self._written:
            write_state(self.run, state)
            self._written = state

    def _state(self, child: _Child) -> ComponentState:
        return ComponentState(
            name=child.component.name,
            phase=child.phase,
            pid=child.process.pid if child.process else 0,
            started_s=child.started_s,
            ready_s=child.ready_s,
            restarts=child.restarts,
            last_exit=child.last_exit,
            ports=self.host.ports(child.component),
            log=str(self.host.log(child.component)),
        )


def _for_its_user(path: str, flags: int) -> int:
    """Opens a file; a new one is readable only by its user."""
    return os.open(path, flags, 0o600)


def _enter(child: _Child, phase: Phase) -> None:
    child.phase, child.begun = phase, clock.ticks_s()


def _age_s(child: _Child) -> float:
    return clock.ticks_s() - child.begun


def main() -> None:
    """Runs the components of this machine."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = Settings.from_environment()
    host = NativeHost.of(settings)
    Runner(host, settings.run, list(host.components.by_name.values())).run_until_stopped()


if __name__ == "__main__":
    main()
