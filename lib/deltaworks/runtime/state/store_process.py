"""Starts the server beside the stores of an executor, one for all of its Python workers.

Whoever gets the lock of the folder starts it. The server inherits the lock, so nobody else gets it before it ends. A
worker looks in each batch: a server that was killed is back with the next one.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.control.served import Place
from deltaworks.files import make_folder, replace_file
from deltaworks.runtime.state.store_requests import Start

_LOCK, _URL = "store-server.lock", "store-server.url"
_NEEDS = ("starlette", "uvicorn")
_PATIENCE_S = 5.0
_POLL_S = 0.01
_DISCARD = 9
"""A port to which nothing is sent."""


_children: dict[Path, subprocess.Popen[bytes]] = {}
"""The servers that this process has started."""


class StoreServing(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs to start a server; travels with the query."""

    token: str
    driver_host: str
    """The server is reached at the address from which this one is."""

    @classmethod
    def of(cls, driver_host: str) -> StoreServing:
        """With a new token."""
        return cls(token=secrets.token_hex(32), driver_host=driver_host)

    def place(self, folder: Path, stores: Mapping[str, Mapping[str, bool]]) -> Place:
        """Where the server is, which is started if it does not run.

        Args:
            folder: of the stores of all tasks of this executor.
            stores: of each stage, as in `Start`.
        """
        make_folder(folder)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / _URL).unlink(missing_ok=True)
            return self._started(folder, stores, lock)
        except BlockingIOError:
            return _told(folder / _URL)
        except OSError as error:
            return Place("", f"the server beside the stores does not start: {error}")
        finally:
            os.close(lock)

    def _started(self, folder: Path, stores: Mapping[str, Mapping[str, bool]], lock: int) -> Place:
        missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            trouble = (
                f"the Python of the executors has no {' and no '.join(missing)}: install deltaworks[queries] there"
            )
            return Place("", trouble)
        if (before := _children.pop(folder, None)) is not None:
            before.kill()  # it has let go of the lock, or its folder is gone
            before.wait()
        host_process, name = os.pidfd_open(os.getppid()), secrets.token_hex(8)
        with socket.create_server((_own_address(self.driver_host), 0), family=_family(self.driver_host)) as listener:
            try:
                start = Start(
                    folder=str(folder),
                    stores={stage: dict(found) for stage, found in stores.items()},
                    token=self.token,
                    name=name,
                    listener=listener.fileno(),
                    host_process=host_process,
                )
                server = subprocess.Popen(
                    [sys.executable, "-m", "deltaworks.query_server.store_server"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(listener.fileno(), host_process, lock),
                )
                _children[folder] = server
                assert server.stdin is not None
                with server.stdin:
                    server.stdin.write(msgspec.json.encode(start))
            finally:
                os.close(host_process)
            host, port = listener.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}/{name}"
            replace_file(folder / _URL, url.encode(), mode=0o600)
            return Place(url)


def _told(path: Path) -> Place:
    """What another worker has written, which has the lock, or had it when it started the server."""
    end_s = clock.ticks_s() + _PATIENCE_S
    while True:
        try:
            return Place(path.read_text())
        except FileNotFoundError:
            if clock.ticks_s() > end_s:
                return Place("", "the server beside the stores does not start")
        time.sleep(_POLL_S)


def _own_address(driver_host: str) -> str:
    """The address of this machine from which another one is reached."""
    with socket.socket(_family(driver_host), socket.SOCK_DGRAM) as way:
        way.connect((driver_host, _DISCARD))  # sends nothing
        return str(way.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    return socket.AddressFamily(socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM)[0][0])
