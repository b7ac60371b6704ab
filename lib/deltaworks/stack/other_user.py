"""Servers that refuse to run as root: under root, they run as another user, in a folder of that user's."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import tether

_ANYBODY = "nobody"
_LINES = 10


def server_user(program: str, own: str) -> str | None:
    """The user that a server has to run as; None, our own, unless we are root.

    Args:
        program: its name, for the error.
        own: the user that its package makes, if it is installed; else it is `nobody`.

    Raises:
        ConfigurationError: we are root, and there is no other user.
    """
    if os.geteuid() != 0:
        return None
    for name in (own, _ANYBODY):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ConfigurationError(
        f"{program} does not run as root, and there is no user {own} or {_ANYBODY}.",
        hint="run this as an ordinary user",
    )


def make_folder(settings: Settings, folder: Path, user: str | None, program: str) -> None:
    """Makes the folder of a server in the home, which only the server's user can enter.

    Raises:
        ConfigurationError: that user cannot reach the home.
    """
    home.make(settings)
    if user is not None:
        _require_reachable(settings, user, program)
    folder.mkdir(mode=0o700, exist_ok=True)
    give(folder, user)


def give(path: Path, user: str | None) -> None:
    """Makes a file or folder that user's, if it is not ours to keep."""
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid)


def as_user(user: str | None, command: Sequence[str]) -> list[str]:
    """The command as that user, which ends with us."""
    options = ["--user", user] if user else []
    return [*tether.COMMAND, *options, str(os.getpid()), *command]


def run(
    command: Sequence[str],
    user: str | None,
    environment: Mapping[str, str],
    *,
    stdin: str = "",
    secret: str = "PASSWORD",
) -> None:
    """Runs a step that makes a server's data.

    Args:
        secret: what the error leaves out of the output: lines with this word.

    Raises:
        StackError: it fails, with its last lines, or takes longer than two minutes.
    """
    try:
        answer = subprocess.run(
            as_user(user, command),
            input=stdin,
            capture_output=True,
            text=True,
            cwd="/",
            env=dict(environment),
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{command[0]} has not ended after 120 s.", hint="is the disk busy?") from None
    if answer.returncode != 0:
        lines = [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        raise StackError(
            f"{command[0]} ended with {answer.returncode}.",
            log=[line for line in lines if secret not in line][-_LINES:],
            hint="is the disk full?",
        )


def _require_reachable(settings: Settings, user: str, program: str) -> None:
    for folder in [*reversed(settings.home.parents), settings.home]:
        answer = subprocess.run(as_user(user, ["/usr/bin/test", "-x", str(folder)]), cwd="/", check=False)
        if answer.returncode != 0:
            raise ConfigurationError(
                f"{program} does not run as root but as user {user}, who cannot enter {folder}.",
                hint=f"run this as an ordinary user, or chmod o+x {folder}, or set DELTAWORKS_HOME=<folder elsewhere>",
            )
