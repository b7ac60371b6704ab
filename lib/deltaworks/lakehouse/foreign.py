"""Commits of other writers to our tables: which are harmless, and which the stream cannot go on with.

The stream finds its rows by the names of files, their order and their statistics, so most changes by other engines are
refused. Commits that change no file (VACUUM, properties, comments, checkpoints) are harmless, and so is compaction of
files whose order nothing relies on. `repair` takes the rest back.

A table is judged by its state after these commits. Our own commits record which files the table had after them, in a
transaction that checkpoints also keep. So a change is seen even if the commit that made it is no longer in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.lakehouse.versions import Version

if TYPE_CHECKING:
    from deltaworks.lakehouse.log import DeltaLog

_READER, _WRITER = 1, 2
_COMPACTABLE = (Role.APPEND, Role.DEAD_LETTERS, Role.WINDOWED, Role.SNAPSHOT)
"""Rows of changelogs and archives are found by their place in a file."""
_NEEDED = {
    "delta.appendonly": "false",
    "delta.columnmapping.mode": "none",
    "delta.enabledeletionvectors": "false",
    "delta.enablechangedatafeed": "false",
    "delta.enabletypewidening": "false",
    "delta.enablerowtracking": "false",
    "delta.randomizefileprefixes": "false",
    "delta.checkpoint.writestatsasjson": "true",
    "delta.checkpointpolicy": "classic",
}
"""Properties that, if present, must have the value that we write tables for."""


def judge(log: DeltaLog, schema: TableSchema | None, foreign: Sequence[Version], *, is_complete: bool = True) -> None:
    """Raises `TableError` if another writer has changed the table so that the stream cannot go on with it.

    Args:
        log: the log after these commits.
        schema: what the table must be; None: unknown, so no file may have changed.
        foreign: commits of others since our last one, in order.
        is_complete: whether these are all.
    """
    if what := _features(log.protocol):
        _refuse(log, _last(foreign, lambda v: _has(v, "protocol")), f"asks for features that we do not write: {what}")
    defining = _last(foreign, lambda v: _has(v, "metaData"))
    if wrong := _properties(log.properties):
        _refuse(log, defining, f"sets {wrong}")
    if defining is not None and schema is not None and (differences := log.differences(schema)):
        _refuse(log, defining, f"changes columns: {'; '.join(differences)}")
    for version in foreign:
        if transactions := _transactions(version, log):
            _refuse(log, version, f"claims a batch of ours: {transactions[0]}")
    if log.is_as_left:
        return
    for version in foreign:
        if problem := _files(version, schema):
            _refuse(log, version, problem)
    if not is_complete:
        _refuse(
            log, None, "it has other files than after our last commit, and the log does not say any more who did it"
        )


def _files(version: Version, schema: TableSchema | None) -> str | None:
    """What is wrong with the files of a commit; None: nothing."""
    added, removed = version.added, version.removed
    counts = f"it adds {len(added)} and removes {len(removed)} files"
    if not added and not removed:
        return None
    if any(action.get("dataChange", True) for action in (*added, *removed)):
        return f"changes rows: {counts}"
    if schema is None or schema.role not in _COMPACTABLE:
        return f"rewrites files whose order the stream relies on: {counts}"
    paths = [unquote(action["path"]) for action in removed]
    if any(map(layout.is_page, paths)):
        return f"rewrites files of open windows, which the stream replaces one by one: {counts}"
    if any(map(layout.is_retained, paths)):
        return f"rewrites files that a replay has published, which a rollback would not find: {counts}"
    for action in added:
        path = unquote(action["path"])
        values = {name: str(value) for name, value in (action.get("partitionValues") or {}).items()}
        if "numRecords" not in (action.get("stats") or "") or values != layout.partition_of(path):
            return f"adds a file without statistics, or in the wrong folder: {path}"
    return None


def _features(protocol: Mapping[str, Any]) -> str:
    beyond = protocol.get("minReaderVersion", 1) > _READER or protocol.get("minWriterVersion", 2) > _WRITER
    return str(dict(protocol)) if beyond else ""


def _properties(properties: Mapping[str, str]) -> str:
    wrong = [
        f"{name}={value}"
        for name, value in properties.items()
        if name.lower().startswith("delta.constraints.")
        or _NEEDED.get(name.lower(), str(value).lower()) != str(value).lower()
    ]
    return ", ".join(wrong)


def _transactions(version: Version, log: DeltaLog) -> list[str]:
    apps = [action["txn"]["appId"] for action in version.actions if "txn" in action]
    return [app for app in apps if app == layout.FILES_APP or (log.owner and layout.query_of(app) == log.owner)]


def _last(versions: Sequence[Version], chosen: Callable[[Version], bool]) -> Version | None:
    return next((version for version in reversed(versions) if chosen(version)), None)


def _has(version: Version, kind: str) -> bool:
    return any(kind in action for action in version.actions)


def _refuse(log: DeltaLog, version: Version | None, what: str) -> None:
    name = log.path.name
    told = what if version is None else f"{version} {what}"
    raise TableError(
        f"Somebody else has changed the Delta table '{name}' at {log.path}: {told}. "
        "If the stream went on, it would lose or duplicate rows.",
        hint=f"stop the stream; `deltaworks tables repair {name}` takes it back; then start the stream again",
    )
