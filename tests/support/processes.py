"""What tests ask about processes, and do with them; and the ports where they listen."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from deltaworks import processes


@contextmanager
def running(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own; all of it is killed at the end, if it has not ended.

    Args:
        command: what to start.
        environment: all of it.
        log: what it says is added to this file.
        cwd: where it starts; None: here.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=out, stderr=out, start_new_session=True)
    with ended(process):
        yield process


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kills a process and all below it at the end, if it has not ended."""
    try:
        yield
    finally:
        if process.poll() is None:
            processes.kill(processes.family(psutil.Process(process.pid)), timeout_s=30)
        process.wait()


def show_stacks(process: subprocess.Popen[bytes], settle_s: float = 2.0) -> None:
    """Makes a driver that hangs, its JVM and its Python workers write where each of their threads is, into its log."""
    with suppress(psutil.NoSuchProcess):
        for each in processes.family(psutil.Process(process.pid)):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGQUIT if "java" in each.name() else signal.SIGUSR1)
        time.sleep(settle_s)


def words(process: psutil.Process) -> list[str]:
    """What command lines show, of it and of all below it; nothing of those that end meanwhile."""
    found: list[str] = []
    for each in processes.family(process):
        with suppress(psutil.NoSuchProcess):
            found += each.cmdline()
    return found


def is_gone(process: psutil.Process | int) -> bool:
    """Whether it runs no more. One that still waits for its parent is gone: an orphan's new parent may be slow."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return not found.is_running() or found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
