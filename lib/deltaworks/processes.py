"""Processes that outlive the command that started them: each has a file in `<home>/run` and its own session.

The session is how a process with all its children is found and stopped: Spark's JVM and its Python workers leave the
process group of their driver and may outlive it, but they stay in its session. A pid alone is never trusted: the start
time has to match, because pids are reused.

This module does not restart dead processes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from deltaworks import clock
from deltaworks.clock import Sign
from deltaworks.errors import StackError
from deltaworks.files import replace_file
from deltaworks.names import FILE

_CLOCK_TOLERANCE_S = 2.0
_POLL_S = 0.02
_STARTED = 19
"""The field of `/proc/<pid>/stat` with the start time, counted after the name of the process."""


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One process of the stack, as its file describes it."""

    name: str
    kind: str
    """Such as `kafka` or `pipeline`; decides the order of stopping."""
    pid: int
    started_s: float
    """When it started, according to the operating system."""
    command: tuple[str, ...]
    log: str
    """File with its output."""
    ports: tuple[int, ...] = ()
    started: str = ""
    """Tells it from other processes of the same pid, see `started`; if empty, `started_s` does."""
    launched: Sign | None = None
    """When it was registered, to compute its age."""
    host: str = ""
    """The machine or container that it runs on; empty: this one."""

    def members(self) -> list[psutil.Process]:
        """All live processes of its session, itself first; empty if none is left or it belongs to another machine."""
        if self.host not in ("", socket.gethostname()):
            return []
        leader = _process(self.pid)
        if leader is not None and not self._is(leader):
            return []  # another process has the pid now
        found = [process for process in map(_process, _session(self.pid)) if process is not None]
        return sorted(found, key=lambda process: (process.pid != self.pid, process.pid))

    def _is(self, process: psutil.Process) -> bool:
        if self.started:
            return started(process.pid) == self.started
        return abs(process.create_time() - self.started_s) <= _CLOCK_TOLERANCE_S

    @property
    def alive(self) -> bool:
        """Whether the process itself runs."""
        return any(process.pid == self.pid for process in self.members())


def started(pid: int) -> str:
    """Identifies a process among those of the same pid, whatever the wall clock does; empty if there is none.

    The system counts the start from its boot; as a time of day, it would move with each step of the clock.
    """
    try:
        return f"{clock.boot_id()}/{_stat(pid).split()[_STARTED]}"
    except OSError:
        pass
    try:
        return f"{psutil.Process(pid).create_time():.2f}"  # a system without /proc
    except psutil.NoSuchProcess:
        return ""


def launch(
    run: Path,
    *,
    name: str,
    kind: str,
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    ports: Sequence[int] = (),
    tethered: bool = False,
) -> Registered:
    """Starts a detached process and registers it; only its user can read its log.

    Args:
        run: folder of the registrations.
        env: its whole environment; None: it inherits ours.
        tethered: it gets SIGTERM when the process that started it dies, for whatever reason (Linux).
    """
    FILE.checked(name, run)  # before anything is started
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = [sys.executable, "-m", "deltaworks.stack.tether", str(os.getpid())] if tethered else []
    arguments = [*prefix, *command]
    # Not subprocess.Popen, which has to be asked for the end of the process.
    pid = os.posix_spawnp(
        arguments[0],
        arguments,
        dict(os.environ) if env is None else env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return register(run, name=name, kind=kind, pid=pid, command=command, log=log, ports=ports)


def register(
    run: Path, *, name: str, kind: str, pid: int, command: Sequence[str], log: Path, ports: Sequence[int] = ()
) -> Registered:
    """Makes a running process known to `status` and `down`; it must be the leader of its session."""
    entry = Registered(
        name=name,
        kind=kind,
        pid=pid,
        started_s=psutil.Process(pid).create_time(),
        command=tuple(command),
        log=str(log),
        ports=tuple(ports),
        started=started(pid),
        launched=Sign.now(),
        host=socket.gethostname(),
    )
    replace_file(_file(run, name), msgspec.json.format(msgspec.json.encode(entry), indent=1))
    return entry


def registered(run: Path) -> list[Registered]:
    """All processes that were started and not stopped, including dead ones."""
    return [entry for file in sorted(run.glob("*.json")) if (entry := _read(file)) is not None]


def find(run: Path, name: str) -> Registered | None:
    """The registration of a name, dead or alive."""
    return _read(_file(run, name))


def forget(run: Path, name: str) -> None:
    """Removes a registration."""
    _file(run, name).unlink(missing_ok=True)


def stop(run: Path, entry: Registered, *, timeout_s: float = 20.0) -> bool:
    """Ends a process and its whole session: SIGTERM to the process, then SIGKILL to whatever is left.

    Returns:
        Whether the process ended without SIGKILL.

    Raises:
        StackError: a process cannot be killed (another user's, or an uninterruptible one).
    """
    leader = [process for process in entry.members() if process.pid == entry.pid]
    _send(signal.SIGTERM, leader)
    polite = _wait(entry, timeout_s, leader_only=True)
    # What it leaves behind (a JVM, workers) gets a moment to notice; after a SIGKILL it gets none.
    polite = _wait(entry, 1.0 if polite and leader else 0.0) and polite
    _send(signal.SIGKILL, entry.members())
    if not _wait(entry, 5.0):
        pids = ", ".join(str(process.pid) for process in entry.members())
        raise StackError(
            f"{entry.name} cannot be stopped: {pids} still run after SIGKILL.", hint=f"look at them: ps -fp {pids}"
        )
    _reap(entry)
    if (current := find(run, entry.name)) is not None and current.pid == entry.pid:
        forget(run, entry.name)
    return polite


def family(root: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants, itself first."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [root]


def kill(processes: Sequence[psutil.Process], *, timeout_s: float | None) -> None:
    """Sends SIGKILL to all of them; returns when they are gone or after the timeout."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=timeout_s)


def show_stacks_on_signal() -> None:
    """Makes SIGUSR1 print where each thread of this process, and of those that it forks, is; then it goes on."""
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def boot_id() -> str:
    """Changes with every boot of the machine; after another boot, unsynced data may be lost or incomplete."""
    return clock.boot_id() or f"{psutil.boot_time():.0f}"


def last_lines(log: Path, count: int = 20, *, after: int = 0) -> list[str]:
    """The end of a log for an error message, without stack frames.

    Args:
        after: number of bytes to skip at the beginning of the log.
    """
    if not log.is_file():
        return []
    with log.open("rb") as content:
        content.seek(max(after, log.stat().st_size - 65536))
        lines = content.read().decode(errors="replace").splitlines()
    return [line[:300] for line in lines if line.strip() and not line.lstrip().startswith("at ")][-count:]


def _file(run: Path, name: str) -> Path:
    return run / f"{FILE.checked(name, run)}.json"


def _read(file: Path) -> Registered | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Registered)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stat(pid: int) -> str:
    """The fields after the name of the process, which may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]


def _process(pid: int) -> psutil.Process | None:
    """The process; None if there is none, or only a zombie that waits for its parent."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process
    except psutil.NoSuchProcess:
        return None
    return None


def _reap(entry: Registered) -> None:
    """Waits for a child of ours, which succeeds only when its last thread is gone; then its ports are free."""
    if entry.started and started(entry.pid) != entry.started:
        return  # gone, or another process has the pid now
    end = clock.ticks_s() + 5.0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(entry.pid, os.WNOHANG) == (0, 0) and clock.ticks_s() < end:
            time.sleep(_POLL_S)


def _session(leader: int) -> list[int]:
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return members


def _send(number: signal.Signals, processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _wait(entry: Registered, timeout_s: float, *, leader_only: bool = False) -> bool:
    end = clock.ticks_s() + timeout_s
    while entry.alive if leader_only else entry.members():
        if clock.ticks_s() > end:
            return False
        time.sleep(_POLL_S)
    return True
