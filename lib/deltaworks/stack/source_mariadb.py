"""A MariaDB of a home, whose binary log Debezium reads: a source of connectors, as `source_postgres.py` is one.

The programs are those of the settings or of the system, else from Debian's packages (`debian.py`), unpacked in the
home. It listens only on 127.0.0.1 and has no Unix socket. The database `shop` is that of the user `app`; the user `cdc`
may read it, its schema and the binary log, and nothing else. `<home>/source-mariadb.cnf` has the passwords, as its
clients read them: `mariadb --defaults-file=FILE --defaults-group-suffix=-app`.

The server makes users and database whenever it starts, by a file of statements, so that lost passwords are set anew.
MariaDB refuses to run as root; under root it runs as another user, who has to be able to reach the folder.
"""

from __future__ import annotations

import configparser
import io
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import debian, other_user
from deltaworks.stack.components import Report, Software
from deltaworks.stack.credentials import Credentials

NAME = "source-mariadb"
DATABASE = "shop"
APP, CDC, ADMIN = "app", "cdc", "root"
"""The users: the application, who reads its changes, and who may do everything."""
_LOOPBACK = "127.0.0.1"
_PACKAGES = ("mariadb-server-core", "mariadb-client-core")
_SERVER, _INSTALL, _CLIENT = "mariadbd", "mariadb-install-db", "mariadb"
_USUAL = (Path("/usr/sbin"), Path("/usr/libexec"))
"""Where systems have the server, which the PATH of an ordinary user leaves out."""
_FOLDERS = ("sbin", "bin", "scripts", "libexec")
"""Below the base folder, where the programs may be."""
_VERSION = re.compile(r"Ver (\d+)\.(\d+)\S*-MariaDB")
_OLDEST = (10, 5)
"""The oldest version whose rights have these names."""
_SECRET_BYTES = 24
_TIMEOUT_S = 5


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Of one installation."""

    base: Path
    """What the server calls its base folder: its messages and tables are below it."""
    server: Path
    install: Path
    client: Path
    libraries: str = ""
    """Where their libraries are, if not where the system's are."""

    @property
    def environment(self) -> dict[str, str]:
        """Of their processes, the same wherever they are started."""
        folders = dict.fromkeys(str(each.parent) for each in (self.server, self.install, self.client))
        path = os.pathsep.join([*folders, os.defpath, "/usr/sbin"])
        found = {"LC_ALL": "C", "TZ": "UTC", "PATH": path}
        return found | ({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {})


def prepare(settings: Settings, report: Report) -> None:
    """Makes passwords and data folder if they do not exist, and writes what the server makes users from.

    Raises:
        ConfigurationError: no MariaDB is usable, a package is not what was downloaded, or the server's user cannot
            reach the home.
        StackError: packages cannot be downloaded, or the data folder cannot be made.
    """
    user = server_user()
    other_user.make_folder(settings, settings.source_mariadb, user, "MariaDB")
    programs = _ensure_programs(settings, report)
    if not _data(settings).is_dir():
        report(f"{NAME}: creating a data folder with {programs.install}")
        _initialise(programs, settings, user)
    words = make_passwords(settings)
    replace_file(settings.source_options, _options(settings, words).encode(), mode=0o600)
    replace_file(_users(settings), ("\n".join(_statements(words)) + "\n").encode(), mode=0o600)
    other_user.give(_users(settings), user)


def server_user() -> str | None:
    """The user that the server has to run as; see `other_user.server_user`."""
    return other_user.server_user("MariaDB", "mysql")


def command(settings: Settings, software: Software) -> list[str]:
    """The command that starts the server.

    Raises:
        ConfigurationError: no MariaDB is usable.
    """
    programs = find_programs(settings)
    options = {
        "basedir": str(programs.base),
        "datadir": str(_data(settings)),
        "tmpdir": str(_data(settings)),
        "port": str(settings.source_mariadb_port),
        "bind-address": _LOOPBACK,
        "socket": "",
        "pid-file": "mariadb.pid",
        "init-file": str(_users(settings)),
        **software.settings,
    }
    return [str(programs.server), "--no-defaults", *(f"--{name}={value}" for name, value in options.items())]


def environment(settings: Settings) -> dict[str, str]:
    """All variables of its process."""
    return find_programs(settings).environment


def accepts_login(settings: Settings) -> bool:
    """Whether the application can log in; it cannot while the server starts or recovers."""
    programs = find_programs(settings)
    options = [f"--defaults-file={settings.source_options}", f"--defaults-group-suffix=-{APP}"]
    try:
        answer = subprocess.run(
            [str(programs.client), *options, "--connect-timeout=2", "--execute=SELECT 1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=programs.environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def make_passwords(settings: Settings) -> Mapping[str, str]:
    """Of the users, made now unless they are there; the server has them from its next start."""
    found = passwords(settings)
    if not found:
        found = {user: secrets.token_urlsafe(_SECRET_BYTES) for user in (ADMIN, APP, CDC)}
        replace_file(settings.source_options, _options(settings, found).encode(), mode=0o600)
    return found


def passwords(settings: Settings) -> Mapping[str, str]:
    """Of the users; empty: the file with them is missing."""
    if not settings.source_options.is_file():
        return {}
    content = configparser.ConfigParser(interpolation=None)
    content.read(settings.source_options)
    return {content[section]["user"]: content[section]["password"] for section in content.sections()}


def credentials(settings: Settings) -> Credentials:
    """How the application gets in. The passwords are made once, and kept in the home."""
    created_now = not settings.source_options.is_file()
    return Credentials(
        url=f"mysql://{APP}@{_LOOPBACK}:{settings.source_mariadb_port}/{DATABASE}",
        user=APP,
        password=make_passwords(settings)[APP],
        file=settings.source_options,
        created_now=created_now,
    )


def find_programs(settings: Settings) -> Programs:
    """The first usable MariaDB: DELTAWORKS_MARIADB_BIN, PATH and the usual folders, what is unpacked in the home.

    Raises:
        ConfigurationError: none is usable; says which were tried, and what to do.
    """
    user, rejected = server_user(), []
    for base, folders, libraries in _candidates(settings):
        programs = _programs(base, folders, libraries)
        if isinstance(programs, str):
            rejected.append(f"  {base}: it has no {programs}")
        elif (version := _version(programs, user)) is None:
            rejected.append(f"  {base}: {_SERVER} does not start{f' as user {user}' if user else ''}")
        elif version < _OLDEST:
            rejected.append(f"  {base}: version {'.'.join(map(str, version))}, older than 10.5")
        else:
            return programs
        if settings.mariadb_bin is not None:  # explicitly requested, so no other will do
            break
    seen = "\n".join(["Tried:", *rejected]) if rejected else "None was found."
    raise ConfigurationError(
        f"MariaDB cannot be started. {seen}",
        hint="on Debian and Ubuntu, `up` downloads it with apt. Elsewhere install one (mariadb-server, "
        f"mariadb-client), or set DELTAWORKS_MARIADB_BIN=<folder with {_SERVER}>; connectors may also read a server of "
        "your own, which needs no `up`",
    )


def _ensure_programs(settings: Settings, report: Report) -> Programs:
    """Those that are there, else Debian's, which are then unpacked in the home."""
    try:
        return find_programs(settings)
    except ConfigurationError:
        if settings.mariadb_bin is not None or not debian.is_here(settings):
            raise
    debs = debian.ensure_packages(settings, "mariadb", _PACKAGES, report)
    debian.unpack(settings, debs, _root(settings))
    return find_programs(settings)


def _candidates(settings: Settings) -> Iterator[tuple[Path, Sequence[Path], str]]:
    """Base folder, folders with programs, and libraries."""
    if settings.mariadb_bin is not None:
        base = settings.mariadb_bin.parent
        yield base, [settings.mariadb_bin, *_below(base)], ""
        return
    for folder in dict.fromkeys((*settings.path, *_USUAL)):
        if os.access(folder / _SERVER, os.X_OK):
            base = (folder / _SERVER).resolve().parent.parent
            yield base, _below(base), ""
    if _root(settings).is_dir():
        base = _root(settings) / "usr"
        yield base, _below(base), debian.libraries(_root(settings))


def _below(base: Path) -> list[Path]:
    return [base / name for name in _FOLDERS]


def _programs(base: Path, folders: Sequence[Path], libraries: str) -> Programs | str:
    """The programs, or the name of one that is missing."""
    found: dict[str, Path] = {}
    for name in (_SERVER, _INSTALL, _CLIENT):
        program = next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), None)
        if program is None:
            return name
        found[name] = program
    return Programs(
        base=base, server=found[_SERVER], install=found[_INSTALL], client=found[_CLIENT], libraries=libraries
    )


def _version(programs: Programs, user: str | None) -> tuple[int, int] | None:
    """Of the server; None if it does not start as that user, or is no MariaDB."""
    try:
        answer = subprocess.run(
            other_user.as_user(user, [str(programs.server), "--no-defaults", "--version"]),
            capture_output=True,
            text=True,
            cwd="/",
            env=programs.environment,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _initialise(programs: Programs, settings: Settings, user: str | None) -> None:
    """Makes the data folder, which gets its name when it is complete."""
    new = settings.source_mariadb / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    other_user.give(new, user)
    options = {"basedir": programs.base, "datadir": new, "tmpdir": new, "auth-root-authentication-method": "normal"}
    try:
        words = [f"--{name}={value}" for name, value in options.items()]
        other_user.run([str(programs.install), "--no-defaults", *words, "--skip-test-db"], user, programs.environment)
        new.rename(_data(settings))
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _statements(words: Mapping[str, str]) -> Sequence[str]:
    """One per line: the server takes no other files, and starts all the same if one fails."""
    return (
        "SET SESSION sql_log_bin = 0;",
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;",
        "DELETE FROM mysql.global_priv WHERE User = '';",
        "FLUSH PRIVILEGES;",
        f"ALTER USER IF EXISTS '{ADMIN}'@'localhost' IDENTIFIED BY '{words[ADMIN]}';",
        *(
            statement
            for user in (ADMIN, APP, CDC)
            for statement in (
                f"CREATE USER IF NOT EXISTS '{user}'@'{_LOOPBACK}';",
                f"ALTER USER '{user}'@'{_LOOPBACK}' IDENTIFIED BY '{words[user]}';",
            )
        ),
        f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'{_LOOPBACK}' WITH GRANT OPTION;",
        f"GRANT ALL PRIVILEGES ON {DATABASE}.* TO '{APP}'@'{_LOOPBACK}';",
        f"GRANT SELECT, LOCK TABLES ON {DATABASE}.* TO '{CDC}'@'{_LOOPBACK}';",
        f"GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{CDC}'@'{_LOOPBACK}';",
    )


def _options(settings: Settings, words: Mapping[str, str]) -> str:
    content = configparser.ConfigParser(interpolation=None)
    for user, word in words.items():
        content[f"client-{user}"] = {
            "protocol": "tcp",
            "host": _LOOPBACK,
            "port": str(settings.source_mariadb_port),
            "user": user,
            "password": word,
            "database": DATABASE,
        }
    out = io.StringIO()
    content.write(out, space_around_delimiters=False)
    return f"# Written by `deltaworks up {NAME}`: its users.\n{out.getvalue()}"


def _data(settings: Settings) -> Path:
    return settings.source_mariadb / "data"


def _users(settings: Settings) -> Path:
    """The statements, which have the passwords; only the server reads them."""
    return settings.source_mariadb / "users.sql"


def _root(settings: Settings) -> Path:
    """Debian's packages, unpacked."""
    return settings.source_mariadb / "programs"
