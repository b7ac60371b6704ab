"""Lets the successors of files take their place in a log that lies in an object store, where nothing can be exchanged.

A reader must find each version whole at every moment, and whoever is killed must leave it so. In this order:

```
committed   a new version: the files that are part of the table now, and their successors in their place
between     each version and checkpoint, from the newest to the oldest, by compare and swap: see `renamed_files`
done        each version again, without what is only needed in between
```

So the newest version changes at once, and older ones file by file; rows that stay are in each of them all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltaworks import files
from deltaworks.faults import reach
from deltaworks.lakehouse import checkpoints, layout, versions
from deltaworks.lakehouse.log import Commit, DeltaLog, OvertakenError
from deltaworks.lakehouse.renamed_files import Renamed

_DERIVED = (".crc", ".compacted.json")
"""How names of files end that other engines make from versions, and that readers can do without."""


def opened(table: Path, generation: int | None) -> DeltaLog:
    """The log of a table that no earlier generation of its pipeline commits to any more.

    Args:
        table: its folder.
        generation: of whoever rewrites; None: the table has no pipeline.

    Raises:
        FencedError: a newer generation has opened the table.
        TableError: the log is damaged.
    """
    log = DeltaLog(table)
    log.load()
    if generation is not None and log.pipeline is not None and log.owner is not None:
        log.fence(layout.app_id(log.pipeline, table.name, layout.GENERATION, log.owner), generation)
    return log


def rename(log: DeltaLog, renamed: Renamed, metadata: Mapping[str, Any]) -> None:
    """Lets the successors, which are written, take their place in all versions; called again, it completes it.

    Args:
        log: of the table, from `opened`.
        renamed: the files; those that only others had are left alone.
        metadata: for the table's history.

    Raises:
        TransientError: the store does not answer.
        FencedError, TableError: see `DeltaLog.commit`.
    """
    table = log.path
    if _commit(log, renamed, metadata):
        checkpoints.write(table, log.state())
    reach(f"rewriting.committed:{table.name}")
    _forget_derived(table / layout.LOG_FOLDER, renamed)
    while _between(table, renamed):  # once more, until nothing is left: others may have committed meanwhile
        pass
    reach(f"rewriting.log_made:{table.name}")
    folder = table / layout.LOG_FOLDER
    for number, data in versions.ahead(folder, versions.numbers(folder)).items():
        _replace(folder, number, data, renamed.commit)
    reach(f"rewriting.exchanged:{table.name}")


def _commit(log: DeltaLog, renamed: Renamed, metadata: Mapping[str, Any]) -> bool:
    """Commits the successors of files that are part of the table now; returns whether there were any."""
    while live := {path: new for path, new in renamed.files.items() if path in log.files}:
        values = {new.path: log.files[path].partition for path, new in live.items()}
        commit = Commit(
            added=[new for new in live.values() if new.rows],
            removed=[*live],
            partitions={path: odd for path, odd in values.items() if odd is not None},
            data_change=False,
            operation="ERASE",
            metadata=metadata,
        )
        with suppress(OvertakenError):
            log.commit(commit)
            return True
    return False


def _between(table: Path, renamed: Renamed) -> bool:
    """Brings all versions and checkpoints into the form in between; returns whether one was not in it."""
    folder, changed = table / layout.LOG_FOLDER, False
    known, starts = versions.numbers(folder), dict(versions.starts(folder))
    held = versions.ahead(folder, known)
    for number in sorted({*known, *starts}, reverse=True):
        if number in held:
            changed |= _replace(folder, number, held[number], renamed.between)
        if number in starts:
            changed |= _replace_checkpoint(table, number, starts[number], renamed)
        reach(f"rewriting.between:{table.name}")
    return changed


def _replace(folder: Path, number: int, held: bytes, change: Callable[[bytes], bytes | None]) -> bool:
    """Changes a version, unless it is as it shall be, or gone; returns whether it was changed.

    Args:
        folder: of the log.
        number: of the version.
        held: its content of a moment ago.
        change: from its content to the new one; None: it is as it shall be.
    """
    if change(held) is None:
        return False
    log, name = files.files_in(folder), versions.file_name(number)
    while (stored := log.get(name)) is not None and (data := change(stored.data)) is not None:
        if log.replace(name, data, stored.version):
            return True
    return False


def _replace_checkpoint(table: Path, number: int, parts: Collection[Path], renamed: Renamed) -> bool:
    log = DeltaLog(table)
    log.load(up_to=number)
    if (state := renamed.state(log.state())) is None:
        return False
    made = checkpoints.write(table, state)
    files.delete(part for part in parts if part != made)
    return True


def _forget_derived(folder: Path, renamed: Renamed) -> None:
    """Deletes what other engines have made of versions that are about to change."""
    derived = [path for path in folder.iterdir() if path.name.endswith(_DERIVED)]
    files.delete(path for path in derived if renamed.files or renamed.text(path.read_text(errors="replace")))
