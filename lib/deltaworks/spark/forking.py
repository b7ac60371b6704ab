"""One process that all Python processes of a session are forked from: what they import is imported once.

Spark starts a Python for each kind of work: a daemon for the tasks, daemons that ask a data source for its name, its
schema and its splits, one that plans the batches. Each imports PySpark, pandas and Arrow for seconds, and holds them.
The server is forked from the driver before that has threads; Spark gets a small program in place of Python, which
hands over its command line, environment, working directory and streams (`fork_client`).

Not in use yet: it steps aside where the driver has threads, and OpenBLAS and jemalloc (NumPy, Arrow) start some.

The names of processes in `ps` are those that they would have without it. A server that is gone costs the processes of
then, and later ones are started in the ordinary way.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import secrets
import selectors
import shlex
import signal
import socket
import struct
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

from deltaworks.spark import fork_client

_PRELOADED = (
    "pandas",
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "deltaworks.spark.task_host",
    "deltaworks.spark.replay.executors",
)
_REQUEST = 1 << 20
"""Longer ones are refused by the socket, and the client becomes an ordinary Python."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class ForkServer:
    """The server, seen by the driver."""

    pid: int
    name: str
    """Of its socket, which lies in no folder."""
    _lifeline: int
    """The server ends when this end of a pipe is closed, by us or with us."""

    @classmethod
    def start(cls, title: str, preloaded: Sequence[str] = _PRELOADED) -> ForkServer | None:
        """Forks it from this process.

        Args:
            title: What `ps` shows.
            preloaded: Modules that it imports before it forks anything.

        Returns:
            None where that is not safe or not the same: this process has threads, or hashes texts at random
            (`PYTHONHASHSEED`; Spark's processes do not).
        """
        if psutil.Process().num_threads() > 1 or sys.flags.hash_randomization:
            return None
        name = f"deltaworks-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind("\0" + name)
        listener.listen(64)
        end, lifeline = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(lifeline)
            _run(lambda: _Server(listener, end).serve(title, preloaded))
        os.close(end)
        listener.close()
        return cls(pid, name, lifeline)

    def executable(self, folder: Path) -> str:
        """The program to be started in place of Python; written into a folder."""
        file = folder / "python"
        words = sys.executable, "-I", "-S", fork_client.__file__, sys.executable, self.name
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        file.chmod(0o700)
        return str(file) if os.access(file, os.X_OK) else sys.executable  # the disk may be mounted without programs

    def close(self) -> None:
        """Ends it and what still runs below it."""
        os.close(self._lifeline)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@contextmanager
def serving(title: str) -> Iterator[ForkServer | None]:
    """While the server runs; see `ForkServer.start`."""
    server = ForkServer.start(title)
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _run(do: Callable[[], None]) -> NoReturn:
    """All that a forked process does; nothing of what its parent registered for its end happens in it."""
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

    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self._listener, self._lifeline = listener, lifeline
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}
        """Process -> who waits for its end."""
        self._ends = False

    def serve(self, title: str, preloaded: Sequence[str]) -> None:
        setproctitle.setproctitle(title)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver's business
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._listener.setblocking(False)
        self._selector.register(self._lifeline, selectors.EVENT_READ, self._end)
        for module in preloaded:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # else the first collection of each process copies all that it shares
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while not self._ends:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        """The driver has ended: nobody commits any more what is being computed."""
        for pid in self._clients:
            os.kill(pid, signal.SIGTERM)
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
        """Somebody has ended the process that Spark knows."""
        self._selector.unregister(self._clients[pid])
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
        """The process that Spark wanted."""
        for each in (self._listener, client, *self._clients.values()):
            each.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):  # the lifeline and the other processes
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
        _execute(module, arguments)


def _is_ours(client: socket.socket) -> bool:
    """Everybody on this machine may connect; only who has started the driver gets an answer."""
    data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return bool(user == os.geteuid())


def _execute(name: str, arguments: Sequence[str]) -> None:
    """As `python -m` does, also for a module that was imported before."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name}")
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__, main.__loader__ = spec, spec.origin, spec.loader
    sys.argv = [spec.origin, *arguments]
    sys.modules["__main__"] = main
    exec(spec.loader.get_code(name), vars(main))  # type: ignore[attr-defined]
