"""A PostgreSQL for the tests of the registry, which they may kill; a database of its own for each of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from deltaworks.settings import Settings
from deltaworks.stack import postgres, tether
from deltaworks.stack.ports import free_ports
from deltaworks.stack.postgres_server import find_binaries, server_user


@dataclass
class Server:
    """One server in a folder; without passwords, and without care for its data: its life is short."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._user = server_user()
        self._binaries = find_binaries(postgres.server(Settings.from_environment())).folder
        self.folder.chmod(0o755)
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(data, pwd.getpwnam(self._user).pw_uid, -1)
        command = [self._binaries / "initdb", "-D", data, "-U", "deltaworks", "-A", "trust", "--no-sync", "--no-locale"]
        self._popen([*map(str, command), "-E", "UTF8"]).wait(60)

    def start(self) -> None:
        """Returns when it accepts connections."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "50",
        }
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data")]
        self._process = self._popen([*command, *(part for o in options.items() for part in ("-c", "=".join(o)))])
        end = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL does not answer after 30 s"

    def kill(self) -> None:
        """SIGKILL to all of it."""
        if self._process is not None and self._process.poll() is None:
            server = psutil.Process(self._process.pid)
            everything = [server, *server.children(recursive=True)]
            for process in everything:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(everything, timeout=30)
            self._process.wait(30)

    def stop(self) -> None:
        """Without waiting for its clients."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)

    def new_database(self) -> str:
        """The address of an empty one, as SQLAlchemy writes it."""
        name = f"test_{next(self._numbers)}"
        with self._connect() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://deltaworks@127.0.0.1:{self.port}/{name}"

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="deltaworks", dbname="postgres", autocommit=True, connect_timeout=2
        )

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        """It ends with us, and is not root."""
        options = ["--signal", "SIGQUIT", *(("--user", self._user) if self._user else ())]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*tether.COMMAND, *options, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath},
            )
