"""The home: the one folder that a running system writes to.

Only its user can access it. It is marked, so that nobody deletes a folder that only happens to be configured as the
home. Only what deltaworks makes there (`Settings.parts`) is ever deleted; everything else stays.

`stack.lifecycle` decides when it is deleted and what has to be stopped before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import replace_file
from deltaworks.settings import Settings

FORMAT = 1
_PRIVATE_FOLDER, _PASSABLE_FOLDER, _PRIVATE_FILE = 0o700, 0o711, 0o600
_SIGNS = (
    "kafka/data/meta.properties",
    "postgres.pgpass",
    "airflow/secrets.json",
    "pipelines/*/plan.json",
    "code/*/manifest.json",
)
"""Names that only deltaworks uses: a folder with one of them and nothing foreign is a home from before marks."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The file that marks the folder as made by deltaworks."""

    format: int = FORMAT


@dataclass(frozen=True)
class Part:
    """One file or folder in a home."""

    path: Path

    @property
    def size_bytes(self) -> int:
        """The size of all files in it; a file with several names counts once, and the targets of links do not count."""
        return _size_bytes(self.path)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a home."""

    parts: tuple[Part, ...]
    """Files and folders that deltaworks made."""
    others: tuple[Path, ...]
    """Files and folders that deltaworks did not make."""
    marked: bool
    """Whether the home has a mark; if not, it appears to be from before homes were marked."""


def make(settings: Settings) -> None:
    """Makes the home if it does not exist, and closes our part of it to other users.

    A folder with foreign content is used as it is: neither marked nor closed.

    Raises:
        ConfigurationError: it is not a folder.
    """
    home = settings.home
    if home.exists() and not home.is_dir():
        raise ConfigurationError(f"{home} is not a folder.", hint="DELTAWORKS_HOME=<an existing or new folder>")
    is_empty = not home.is_dir() or not any(home.iterdir())
    home.mkdir(mode=_folder_mode(), parents=True, exist_ok=True)
    if not settings.marker.exists() and _why_never_deleted(settings) is None and (is_empty or _looks_ours(settings)):
        mark(settings)
    if settings.marker.exists():
        _close(settings)


def mark(settings: Settings) -> None:
    """Marks the home."""
    replace_file(settings.marker, msgspec.json.encode(Marker()), mode=_PRIVATE_FILE, durable=True)


def contents(settings: Settings) -> Contents:
    """Lists what can be deleted.

    Raises:
        ConfigurationError: deltaworks does not delete this folder; says why and what to do.
        IncompatibleCheckpointError: another version of deltaworks made it.
    """
    home = settings.home
    if (why := _why_never_deleted(settings)) is not None:
        raise ConfigurationError(
            f"{home} {why}, so nothing in it is deleted.", hint=f"delete by hand what you do not need{_named(settings)}"
        )
    marked = settings.marker.exists()
    if marked:
        formats.decode(settings.marker.read_bytes(), Marker, FORMAT, f"The mark {settings.marker}")
    elif not _looks_ours(settings):
        raise ConfigurationError(
            f"{home} has no {settings.marker.name}, so deltaworks may not have made it; nothing is deleted.",
            hint=f"check DELTAWORKS_HOME and the folder; delete by hand what you do not need{_named(settings)}",
        )
    parts = map(Part, _ours(settings))
    return Contents(parts=tuple(parts), others=tuple(_others(settings)), marked=marked)


def require_marked(settings: Settings) -> Contents:
    """Like `contents`, but also raises `ConfigurationError` if the home has no mark."""
    found = contents(settings)
    if not found.marked:
        raise ConfigurationError(
            f"{settings.home} was made before homes were marked, so some of it may not belong to deltaworks.",
            hint="look at its contents, then `deltaworks down --delete-data --yes`",
        )
    return found


def delete(settings: Settings) -> None:
    """Deletes what deltaworks made, and the home if nothing else is in it. Nothing may run there.

    If it is interrupted, it can be called again.

    Raises:
        ConfigurationError, IncompatibleCheckpointError: as in `require_marked`; nothing has changed.
        StackError: something cannot be deleted.
    """
    found = require_marked(settings)
    for part in found.parts:
        if part.path != settings.marker:
            _delete(part.path)
    if not found.others:
        settings.marker.unlink(missing_ok=True)
        settings.home.rmdir()


def _folder_mode() -> int:
    """The mode of the home; under root, PostgreSQL runs as another user, who passes through it to its own folder."""
    return _PASSABLE_FOLDER if os.geteuid() == 0 else _PRIVATE_FOLDER


def _close(settings: Settings) -> None:
    """Closes existing files and folders to other users; later folders are below closed ones."""
    _chmod(settings.home, _folder_mode())
    for folder in settings.private:
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    for part in _ours(settings):
        if part not in settings.of_servers:  # they belong to their servers, and were created closed
            _chmod(part, _PRIVATE_FOLDER if part.is_dir() else _PRIVATE_FILE)
    for folder in (settings.logs, settings.airflow):
        for file in _files_in(folder):
            _chmod(file, _PRIVATE_FILE)


def _chmod(path: Path, mode: int) -> None:
    """Skips the targets of links and files of other users."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        if not path.is_symlink() and found.st_uid == os.geteuid() and found.st_mode & 0o777 != mode:
            path.chmod(mode)


def _files_in(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]


def _why_never_deleted(settings: Settings) -> str | None:
    """Why the folder is never deleted, whatever its mark; None if it may be."""
    home, project = settings.home, settings.project.resolve()
    if home.is_symlink():
        return f"is a link to {home.resolve()}"
    here = home.resolve()
    if here == Path(here.anchor):
        return "is the root of the file system"
    if here == project or here in project.parents:
        return f"holds the project {project}"
    users = (user for user in _user_folders() if here == user or here in user.parents)
    return next((f"holds the user's own folder {user}" for user in users), None)


def _user_folders() -> Iterator[Path]:
    with suppress(RuntimeError):
        yield Path.home().resolve()
    import pwd  # only Unix has it

    with suppress(KeyError):
        yield Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()


def _looks_ours(settings: Settings) -> bool:
    home = settings.home
    return not list(_others(settings)) and any(next(home.glob(sign), None) is not None for sign in _SIGNS)


def _ours(settings: Settings) -> list[Path]:
    return [path for path in settings.parts if os.path.lexists(path)]


def _others(settings: Settings) -> Iterator[Path]:
    known = set(settings.parts)
    return (path for path in sorted(settings.home.iterdir()) if path not in known)


def _named(settings: Settings) -> str:
    """A clause with the names in it that deltaworks uses."""
    names = ", ".join(path.name for path in _ours(settings))
    return f"; of the names that deltaworks uses there: {names}" if names else ""


def _size_bytes(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    sizes: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                found = (Path(folder) / name).lstat()
                sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def _delete(path: Path) -> None:
    """Deletes a file or folder; of a link, only the link."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StackError(
            f"{error.filename or path} cannot be deleted: {error.strerror}.",
            hint="see who owns it and what still uses it, then repeat `deltaworks down --delete-data`",
        ) from error
