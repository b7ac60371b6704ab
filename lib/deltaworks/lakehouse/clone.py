"""Clones of tables: the rows of a version under a second path, which others may then change."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from deltaworks import files
from deltaworks.errors import TransientError
from deltaworks.lakehouse import layout, versions
from deltaworks.lakehouse.log import DeltaLog


def clone(source: Path, target: Path, version: int | None = None) -> DeltaLog:
    """Makes a table with the rows, the history and the properties of another one.

    Files have a second name rather than a copy where the file system can give one: neither table ever writes into a
    file that exists. The table that is cloned may go on meanwhile.

    Args:
        source: folder of the table.
        target: a folder that does not exist yet.
        version: of the table; None: the newest.

    Returns:
        The log of the clone, read.

    Raises:
        TransientError: a file of this version was replaced and removed meanwhile.
    """
    files.make_folder(target / layout.LOG_FOLDER)
    for name in versions.names_up_to(source / layout.LOG_FOLDER, version):
        with suppress(FileNotFoundError):  # an old one, which a checkpoint has replaced
            files.link(source / layout.LOG_FOLDER / name, target / layout.LOG_FOLDER / name)
    log = DeltaLog(target)
    log.load()
    try:
        for path in log.files:
            files.link(source / path, target / path)
    except FileNotFoundError as error:
        raise TransientError(
            f"Table '{source.name}': a file of version {log.version} was replaced and removed while it was cloned.",
            hint="do it again; nothing has changed",
        ) from error
    if version is not None and log.version != version:
        raise TransientError(
            f"Table '{source.name}' has no version {version} any more, only {log.version}.", hint="do it again"
        )
    return log
