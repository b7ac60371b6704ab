"""Streams as a user runs them, `deltaworks run`, under a small supervisor.

It starts again what has ended, with back-off and not after an exit code that forbids it, as `reconcile` does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deltaworks import exits
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.settings import Settings
from tests.support.processes import is_gone

_POLL_S = 0.05
_LONGEST_BACK_OFF_S = 8.0
_HEALTHY_S = 20.0
_GONE_S = 30.0
_LOOKS = ("status", "logs", "sql", "quality", "topology")
_FOLDERS = ("trace", "inject", "done")


@dataclass(frozen=True)
class Refusal:
    """A driver ended with an exit code that forbids a restart."""

    code: int
    text: str
    """What it said last."""

    @property
    def command(self) -> tuple[str, ...] | None:
        """The first command of ours that the message names, but for those that only look."""
        words = re.findall(r"\bdeltaworks ((?:[a-z][\w-]*)(?:[ \t]+[\w./:=@-]+)*)", self.text.rpartition("Hint:")[2])
        return next((tuple(found.split()) for found in words if found.split()[0] not in _LOOKS), None)


@dataclass
class Stream:
    """One pipeline."""

    name: str
    settings: Callable[[], Settings]
    """Asked at each start: a home may move."""
    environment: Callable[[], Mapping[str, str]]
    """Of the driver, beyond the settings."""
    work: Path
    """For orders to its fault points, and its log."""
    report: Callable[[str], None]
    wanted: threading.Event = field(default_factory=threading.Event)
    ends: list[int] = field(default_factory=list)
    """Exit code of every driver so far."""
    refusal: Refusal | None = None
    options: tuple[str, ...] = ()
    """For the next start only."""
    _process: subprocess.Popen[bytes] | None = None
    _sessions: set[int] = field(default_factory=set)
    """Of all drivers so far: a JVM may outlive its driver."""
    _starting: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        for name in _FOLDERS:
            (self.faults / name).mkdir(parents=True, exist_ok=True)

    @property
    def faults(self) -> Path:
        return self.work / self.name

    @property
    def log(self) -> Path:
        return self.work / f"{self.name}.log"

    @property
    def folder(self) -> Path:
        return self.settings().pipeline(self.name)

    # Start and end

    def begin(self) -> None:
        """From now on it runs."""
        self.wanted.set()
        self._thread = threading.Thread(target=self._supervise, daemon=True, name=self.name)
        self._thread.start()

    def end(self, timeout_s: float = 120.0) -> None:
        """Stops it for good, the polite way first."""
        self.stop(timeout_s)
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def stop(self, timeout_s: float = 120.0) -> int | None:
        """SIGTERM; it stays down until `go_on`. Returns its exit code, None if it did not run."""
        self.hold()
        process = self._process
        if process is None or process.poll() is not None:
            return None
        process.terminate()
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            return process.wait()

    def hold(self) -> None:
        """It is not started again until `go_on`."""
        with self._starting:
            self.wanted.clear()

    def go_on(self, *options: str) -> None:
        """It runs again."""
        self.refusal, self.options = None, options
        self.wanted.set()

    def kill_all(self) -> None:
        """SIGKILL to all of its processes, after none of them can do anything any more."""
        members = self.members(*self._sessions)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in members:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        if self._process is not None:
            self._process.wait(_GONE_S)
        end = time.monotonic() + _GONE_S
        while not all(map(is_gone, members)):
            assert time.monotonic() < end, f"{self.name}: SIGKILL did not end {members}"
            time.sleep(_POLL_S)

    def _is_driver(self, process: psutil.Process) -> bool:
        return self._process is not None and process.pid == self._process.pid

    def _supervise(self) -> None:
        failures = 0
        while not self._ended.is_set():
            if not self.wanted.wait(_POLL_S):
                continue
            begun = time.monotonic()
            with self._starting:
                if not self.wanted.is_set():
                    continue
                process = self._start()
            code = process.wait()
            self.ends.append(code)
            if not self.wanted.is_set():
                continue
            if code in exits.NO_RESTART:
                self.refusal = Refusal(code, self.tail(40))
                self.wanted.clear()
                self.report(f"{self.name} refuses to run on, exit code {code}: {self.refusal.text[-300:]}")
                continue
            failures = 0 if time.monotonic() - begun > _HEALTHY_S else failures + 1
            self.report(f"{self.name} ended with {code}")
            self._ended.wait(min(_LONGEST_BACK_OFF_S, 0.5 * 2**failures))

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self.settings()
        options, self.options = self.options, ()
        with self.log.open("ab") as log:
            log.write(f"--- start {len(self.ends)} {' '.join(options)}\n".encode())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deltaworks.cli", "run", self.name, *options],
                env={**os.environ, **settings.process_environment(), **self.environment()},
                cwd=settings.project, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._sessions.add(self._process.pid)
        return self._process

    # What it is like

    @property
    def pid(self) -> int | None:
        """Of the driver that runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def beat(self) -> Heartbeat | None:
        """Of the driver that runs, while it works."""
        try:
            beat = heartbeat.read(self.folder / "heartbeat.json")
        except Exception:  # a torn or old file is no beat
            return None
        return beat if beat is not None and beat.pid == self.pid and beat.state == "running" else None

    def members(self, *sessions: int) -> list[psutil.Process]:
        """Everything in these sessions, or in that of the newest driver; the driver first."""
        if self._process is None:
            return []
        found, wanted = [], sessions or (self._process.pid,)
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                if os.getsid(pid) in wanted:
                    found.append(psutil.Process(pid))
        return sorted(found, key=lambda process: not self._is_driver(process))

    def victims(self, kind: str) -> list[psutil.Process]:
        """Its `driver`, its `jvm`, its `worker`s, or the server that these are forked from (`forks`)."""
        found = []
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                if self._kind(process) == kind and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _kind(self, process: psutil.Process) -> str:
        if self._is_driver(process):
            return "driver"
        if process.name().startswith("java"):
            return "jvm"
        if process.cmdline()[:1] == [f"deltaworks: Python of {self.name}"]:
            return "forks"
        traced = (self.faults / "trace" / f"{process.pid}.log").exists()
        return "worker" if traced and process.name().startswith("python") else "other"

    def points(self) -> list[str]:
        """Every fault point that it has reached so far."""
        found: set[str] = set()
        for trace in (self.faults / "trace").iterdir():
            found.update(line.partition(" ")[2] for line in trace.read_text(errors="replace").splitlines())
        return sorted(point for point in found if point)

    def phase(self, pid: int | None = None) -> str:
        """The last point that a process, or any of them, has reached."""
        traces = self.faults / "trace"
        files = [traces / f"{pid}.log"] if pid is not None else list(traces.iterdir())
        last = [lines[-1] for file in files if file.exists() and (lines := file.read_text().splitlines())]
        return max(last, default="0 no point").partition(" ")[2]

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
