"""What the log of a table says once files of it were written again, without some rows and under other names.

Names, sizes and bounds of these files change, in all versions and checkpoints; all else stays as it was.

In an object store, the versions cannot change at once. So there is a form in between (`between`): whatever removes a
file removes its successor, too. If versions get it from the newest to the oldest, each version has at every moment
either the file or its successor, wherever a reader begins. Then the doubled removals go (`commit`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec

from deltaworks.lakehouse import layout, versions
from deltaworks.lakehouse.checkpoints import State
from deltaworks.lakehouse.log import FileEntry
from deltaworks.lakehouse.writes import NewFile

_DOUBLED = "deltaworks.rewriting"
"""Tag of a removal that only the form in between has; its value is the id of the rewriting."""
Action = dict[str, Any]


@dataclass(frozen=True)
class Renamed:
    """Files that have successors.

    Args:
        files: path of a file -> its successor.
        text: whether a text of the log, such as a bound, must go.
        id: of the rewriting.
    """

    files: Mapping[str, NewFile]
    text: Callable[[str], bool]
    id: str

    def commit(self, data: bytes) -> bytes | None:
        """A commit as it is in the end; None: it is that already.

        A commit that lets a successor take the place of a file goes on saying so.
        """
        actions = _decoded(data)
        added = {path for action in actions if (path := _path(action, "add")) is not None}
        changed = [self._action(action, added) for action in actions if not self._is_doubled(action)]
        return _encoded(changed, len(actions)) if changed != actions else None

    def between(self, data: bytes) -> bytes | None:
        """A commit in the form in between; None: it has that already, or the last one."""
        actions = _decoded(data)
        removed = {path for action in actions if (path := _path(action, "remove")) is not None}
        added = {path for action in actions if (path := _path(action, "add")) is not None}
        added |= {self.files[path].path for path in added & self.files.keys()}
        changed = list[Action | bytes]()
        for action in actions:
            if (new := self.files.get(_path(action, "remove") or "")) is not None:
                changed.append(action)
                if new.path not in removed | added:
                    changed.append(self._doubled(new.path, _of(action, "remove").get("deletionTimestamp")))
                continue
            changed.append(self._action(action, added))
            old = _path(action, "add") or ""
            if old in self.files and old not in removed:  # it may be part of the table already
                changed.append(self._doubled(old, _of(action, "add").get("modificationTime")))
        return _encoded(changed, len(actions)) if changed != actions else None

    def state(self, state: State) -> State | None:
        """The state in a checkpoint; None: it is as it was."""
        found, changed = dict[str, FileEntry](), False
        for path, entry in state.files.items():
            if (new := self.files.get(path)) is not None:
                path, entry = new.path, replace(entry, size_bytes=new.size_bytes, statistics=new.statistics)
                changed = True
            elif self.text(entry.statistics or ""):
                entry, changed = replace(entry, statistics=only_count(entry.statistics or "{}")), True
            found[path] = entry
        successors = {path: new.path for path, new in self.files.items() if new.path not in found}
        removed = [(time_ms, successors.get(path, path)) for time_ms, path in state.removed]
        changed |= removed != list(state.removed)
        return replace(state, files=found, removed=removed) if changed else None

    def _action(self, action: Action | bytes, added: Iterable[str]) -> Action | bytes:
        """An action that adds or removes a file, with its other name."""
        for kind in ("add", "remove"):
            if (path := _path(action, kind)) is None:
                continue
            told, new = _of(action, kind), self.files.get(path)
            if new is not None and not (kind == "remove" and new.path in added):
                known = {"size": new.size_bytes, "stats": new.statistics}
                known = {name: value for name, value in known.items() if name in told}
                return {**_as_action(action), kind: {**told, "path": layout.quoted(new.path), **known}}
            if self.text(told.get("stats") or ""):
                return {**_as_action(action), kind: {**told, "stats": only_count(told["stats"])}}
        return action

    def _doubled(self, path: str, time_ms: int | None) -> Action:
        told = {"path": layout.quoted(path), "deletionTimestamp": time_ms or 0, "dataChange": False}
        return {"remove": {**told, "tags": {_DOUBLED: self.id}}}

    def _is_doubled(self, action: Action | bytes) -> bool:
        return (_of(action, "remove").get("tags") or {}).get(_DOUBLED) == self.id


def only_count(statistics: str) -> str:
    """Statistics without bounds, of a file that is not there any more."""
    return json.dumps({"numRecords": json.loads(statistics).get("numRecords", 0)})


def _decoded(data: bytes) -> list[Action | bytes]:
    """The actions of a commit; what cannot be read, of a last version that is not whole, stays as it is."""
    found = list[Action | bytes]()
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Action))
        except msgspec.DecodeError:
            found.append(line)
    return found


def _encoded(actions: list[Action | bytes], before: int) -> bytes:
    """A commit that had so many actions before, and says how many it has to have."""
    lines = list[bytes]()
    for action in actions:
        if (mark := _of(action, "commitInfo").get(versions.MARK)) is not None:
            wanted = {**mark, "actions": mark["actions"] + len(actions) - before}
            action = {**_as_action(action), "commitInfo": {**_of(action, "commitInfo"), versions.MARK: wanted}}
        lines.append(action if isinstance(action, bytes) else msgspec.json.encode(action))
    return b"\n".join(lines) + b"\n"


def _of(action: Action | bytes, kind: str) -> dict[str, Any]:
    return action.get(kind, {}) if isinstance(action, dict) else {}


def _as_action(action: Action | bytes) -> Action:
    assert isinstance(action, dict)
    return action


def _path(action: Action | bytes, kind: str) -> str | None:
    """The file that an action adds or removes."""
    path = _of(action, kind).get("path")
    return None if path is None else unquote(path)
