"""One driver per checkpoint: a lock on a file that also says who holds it.

The lock belongs to the operating system and ends with the process. The next holder ends what a killed driver leaves
running (its JVM, the process that its Python workers are forked from, and all their children) before it touches
anything.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from types import TracebackType

import msgspec
import psutil

from deltaworks import clock, processes
from deltaworks.errors import LeaseError
from deltaworks.files import lock, sync_folder

_END_S = 10.0
_SIZE = 1024
_log = logging.getLogger(__name__)


class ProcessId(msgspec.Struct, frozen=True):
    """Identifies a process, even among later ones with the same pid."""

    pid: int
    started: str
    """See `processes.started`."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(pid, processes.started(pid))

    def alive(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = processes.started(self.pid) == self.started
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the lease."""

    pipeline: str
    generation: int
    host: str
    driver: ProcessId
    jvm: ProcessId | None = None
    forks: ProcessId | None = None
    """The process that Python workers are forked from, see `spark.forking`."""
    since: float


class Lease:
    """`with Lease(path, "orders", generation):` refuses if another driver holds the checkpoint.

    It does not work across machines. A checkpoint on a network drive needs a lock that the drive supports.
    """

    def __init__(self, path: Path, pipeline: str, generation: int) -> None:
        self._path = path
        self._holder = Holder(
            pipeline=pipeline,
            generation=generation,
            host=socket.gethostname(),
            driver=ProcessId.of(os.getpid()),
            since=clock.wall_s(),
        )
        self._fd: int | None = None

    def __enter__(self) -> Lease:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if not lock(fd):
            holder = read_holder(self._path)
            os.close(fd)
            who = f"pid {holder.driver.pid} on {holder.host}" if holder else "another process"
            raise LeaseError(
                f"pipeline {self._holder.pipeline!r} is already running: {who} holds {self._path}",
                hint=f"stop it first: deltaworks stop {self._holder.pipeline}",
            )
        self._fd = fd
        try:
            sync_folder(self._path.parent)
            end_remains(read_holder(self._path))
            self._write()
        except BaseException:  # such as a full disk
            os.close(fd)
            self._fd = None
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def owns(self, **pids: int) -> None:
        """Records processes of this driver, `jvm` or `forks`, so that a successor can end them."""
        self._holder = msgspec.structs.replace(self._holder, **{name: ProcessId.of(pid) for name, pid in pids.items()})
        self._write()

    def _write(self) -> None:
        """Writes the holder in one write of a fixed size: from half of it, a successor would leave a JVM running."""
        assert self._fd is not None
        data = msgspec.json.encode(self._holder)
        os.pwrite(self._fd, data.ljust(_SIZE), 0)
        os.ftruncate(self._fd, max(_SIZE, len(data)))
        os.fsync(self._fd)


def read_holder(path: Path) -> Holder | None:
    """The last holder of the lease; None if there was none or it released the lease."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Holder) if data.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.warning("%s cannot be read (%s): its last holder is unknown", path, error)
        return None


def end_remains(holder: Holder | None) -> None:
    """Ends what a killed driver left: first its JVM and its fork server, then all their children."""
    if holder is None or holder.host != socket.gethostname():
        return
    roots = [process for each in (holder.jvm, holder.forks) if each is not None and (process := each.alive())]
    processes.kill([member for root in roots for member in processes.family(root)], timeout_s=_END_S)
