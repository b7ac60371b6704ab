"""A process that all Python processes of a session are forked from, so that modules are imported only once.

Spark starts a Python for each kind of work: a daemon for the tasks, daemons that ask a data source for its name, its
schema and its splits, and one that plans the batches. Each would spend seconds on importing PySpark, pandas and Arrow,
and hold them in memory. The server imports them while the JVM starts. In place of Python, Spark gets a small program
that hands over its command line, environment, working directory and streams (`fork_client`).

A process with threads cannot be forked safely. So the libraries of the server are told to start none, and the server
ends if one starts a thread all the same. If the server ends, its processes end with it; later ones start in the
ordinary way. In `ps`, processes have the names that they would have without the server.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import os
import secrets
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil
import setproctitle

from deltaworks import processes
from deltaworks.spark import fork_client

_PRELOADED = (
    "pandas",
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "deltaworks.spark.source",
    "deltaworks.spark.task_host",
    "deltaworks.spark.replay.executors",
)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # as Spark sets it for its Python processes
    "PYTHONSAFEPATH": "1",
    "OPENBLAS_NUM_THREADS": "1",  # NumPy
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow
    "_RJEM_MALLOC_CONF": "background_thread:false",  # delta-rs
}
"""Environment of the server; forked processes get their caller's. The last three keep libraries from using threads."""
_LIFELINE = 0
_REQUEST = 1 << 20
"""The socket refuses longer requests, and the client becomes an ordinary Python."""
_TAKEN = b"\1"
"""The answer; without it a client becomes an ordinary Python."""
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForkServer:
    """The server, seen by the driver."""

    name: str
    """The name of its socket, which is in no folder."""
    _process: subprocess.Popen[bytes]
    """Its standard input: when it is closed, by us or by our end, the server ends."""

    @classmethod
    def start(cls, title: str, python_path: str, preloaded: Sequence[str] = _PRELOADED) -> ForkServer:
        """Starts the server. Requests wait until it has imported everything.

        Args:
            title: What `ps` shows.
            python_path: Its PYTHONPATH; forked processes also get the additional entries of their caller.
            preloaded: Modules that it imports before it forks anything.
        """
        name = f"deltaworks-{secrets.token_hex(16)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0" + name)
            listener.listen(64)
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), title, *preloaded],
                env={**os.environ, "PYTHONPATH": python_path, **_ENVIRONMENT},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
        return cls(name, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def executable(self, folder: Path) -> str:
        """Writes the program that is started in place of Python into a folder; returns its path."""
        return program(folder, sys.executable, "-I", "-S", fork_client.__file__, sys.executable, self.name)

    def close(self) -> None:
        """Ends it and what still runs below it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def script(*words: str) -> str:
    """The text of a program that becomes a command, with its own arguments behind those of the command."""
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def program(folder: Path, *words: str) -> str:
    """Writes a program `python` that becomes a command; returns its path, or that of Python if none can be started."""
    file = folder / "python"
    file.write_text(script(*words))
    file.chmod(0o700)
    return str(file) if os.access(file, os.X_OK) else sys.executable  # the disk may be mounted noexec


@contextmanager
def serving(title: str, python_path: str) -> Iterator[ForkServer]:
    """Runs the server for the duration of a `with` block; see `ForkServer.start`."""
    server = ForkServer.start(title, python_path)
    try:
        yield server
    finally:
        server.close()


def _run(do: Callable[[], None]) -> NoReturn:
    """Runs everything that a forked process does; exit handlers of its parent do not run in it."""
    code = 1
    try:
        do()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Server:
    """Answers one request after the other; the processes that it forks do the work."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}
        """Process -> the client that waits for its end."""
        self._ends = False

    def serve(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(_LIFELINE, selectors.EVENT_READ, self._end)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while not self._ends:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        """Ends when the driver has ended: nobody commits what is still being computed. Nothing runs after it."""
        _, *below = processes.family(psutil.Process())
        processes.kill(below, timeout_s=None)
        self._ends = True

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        self._selector.register(client, selectors.EVENT_READ, lambda: self._answer(client))

    def _answer(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        try:
            request, streams, _, _ = socket.recv_fds(client, _REQUEST, 3)
        except OSError:
            request, streams = b"", []
        if len(streams) != 3 or not _is_ours(client):
            for stream in streams:
                os.close(stream)
            client.close()
            return
        with suppress(OSError):  # a client that is gone is noticed below
            client.send(_TAKEN)
        try:
            pid = os.fork()
        except OSError:  # no room for one more process
            traceback.print_exc()
            pid = -1
        if pid == 0:
            _run(lambda: self._become(request, streams, client))
        for stream in streams:
            os.close(stream)
        if pid < 0:
            client.close()
            return
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, lambda: self._abandoned(pid))
        child = os.pidfd_open(pid)
        self._selector.register(child, selectors.EVENT_READ, lambda: self._reap(pid, child))

    def _abandoned(self, pid: int) -> None:
        """Handles the end of the process that Spark knows, which somebody has killed."""
        client = self._clients.get(pid)
        if client is None:  # ours has ended at the same moment, and the same `select` told both
            return
        self._selector.unregister(client)
        os.kill(pid, signal.SIGTERM)

    def _reap(self, pid: int, child: int) -> None:
        os.waitpid(pid, 0)
        self._selector.unregister(child)
        os.close(child)
        client = self._clients.pop(pid)
        with suppress(KeyError):  # not if it was abandoned
            self._selector.unregister(client)
        client.close()

    def _become(self, request: bytes, streams: Sequence[int], client: socket.socket) -> None:
        """Turns a forked process into the one that Spark wanted."""
        for each in (self._listener, client, *self._clients.values()):
            each.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int) and key.fileobj != _LIFELINE:  # the other processes
                os.close(key.fileobj)
        self._selector.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in {*streams} - {0, 1, 2}:
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate(("r", "w", "w")))
        folder, count, *words = request.decode(errors="surrogateescape").split("\0")
        (module, *arguments), variables = words[: int(count)], words[int(count) :]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(zip(variables[::2], variables[1::2], strict=True))
        for path in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
            if path and path not in sys.path:
                sys.path.insert(0, path)
        setproctitle.setproctitle(" ".join([sys.executable, "-m", module, *arguments]))
        setproctitle.setthreadtitle(Path(sys.executable).name)  # otherwise the beginning of its path
        _execute(module, arguments)


def _is_ours(client: socket.socket) -> bool:
    """Everybody on this machine may connect; only the user who started the driver gets an answer."""
    data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return bool(user == os.geteuid())


def _execute(name: str, arguments: Sequence[str]) -> None:
    """Runs a module as `python -m` does, even if it was imported before."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name}")
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__, main.__loader__ = spec, spec.origin, spec.loader
    sys.argv = [spec.origin, *arguments]
    sys.modules["__main__"] = main
    exec(spec.loader.get_code(name), vars(main))  # type: ignore[attr-defined]


def main(listener: str, title: str, *preloaded: str) -> None:
    """Runs the server, from its first import to its end."""
    processes.show_stacks_on_signal()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the driver handles it
    for module in preloaded:
        importlib.import_module(module)
    threads = psutil.Process().num_threads()
    if threads > 1:
        _log.warning("%s: the libraries have started %d threads, so processes are not forked", title, threads - 1)
        return
    setproctitle.setproctitle(title)
    gc.collect()
    gc.freeze()  # otherwise the first collection of each process copies all shared memory
    _Server(socket.socket(fileno=int(listener))).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
