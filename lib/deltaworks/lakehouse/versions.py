"""The files of a table's Delta log: versions and checkpoints, and which of them are whole.

Each of our commits says how many actions it has, so a version that lost its end is recognised. An empty or cut version
does not count if it is the last one: nobody has built on it. For the meaning of the actions see `log`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.errors import TableError
from deltaworks.files import contents
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.object_path import ObjectPath

ENGINE = "deltaworks"
FORMAT = 1
MARK = "deltaworks"
"""In `commitInfo`: the format of our commits, and the number of actions in this one."""
_VERSION = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet$")
_EITHER = re.compile(r"^(\d{20})\.(json|checkpoint.*\.parquet)$")
_TEMPORARY = re.compile(r"^\.(\d{20}\.json|\d{20}\.checkpoint\.parquet|_last_checkpoint)\.\d+-[0-9a-f]{8}$")
LAST_CHECKPOINT = "_last_checkpoint"


class TornError(Exception):
    """A version is not whole.

    Args:
        why: what is wrong with it.
        foreign: whether another engine wrote it.
    """

    def __init__(self, why: str, *, foreign: bool = False) -> None:
        super().__init__(why)
        self.foreign = foreign


@dataclass(frozen=True)
class Version:
    """One commit, as in its file."""

    number: int
    actions: list[dict[str, Any]]

    @property
    def info(self) -> dict[str, Any]:
        """Delta's `commitInfo`; empty if there is none."""
        return next((action["commitInfo"] for action in self.actions if "commitInfo" in action), {})

    @property
    def is_ours(self) -> bool:
        """Whether this package wrote it; the first version, which creates the table, counts."""
        return self.number == 0 or self.info.get("engineInfo") == ENGINE

    @property
    def removed(self) -> list[dict[str, Any]]:
        return [action["remove"] for action in self.actions if "remove" in action]

    @property
    def added(self) -> list[dict[str, Any]]:
        return [action["add"] for action in self.actions if "add" in action]

    def __str__(self) -> str:
        info = self.info
        time_ms = info.get("timestamp")
        when = layout.utc(time_ms) if isinstance(time_ms, int) else "at an unknown time"
        who = info.get("engineInfo") or "an unknown engine"
        return f"version {self.number} ({info.get('operation', 'unknown operation')}, {when}, {who})"


def file_name(number: int) -> str:
    """The name of a version's file."""
    return f"{number:020d}.json"


def checkpoint_name(number: int) -> str:
    """The name of a version's checkpoint, if it is one file."""
    return f"{number:020d}.checkpoint.parquet"


def read(folder: Path, number: int) -> Version | None:
    """A version; None: it does not exist.

    Raises:
        TornError: it is not whole.
        TableError: a later version of this package wrote it.
    """
    try:
        data = (folder / file_name(number)).read_bytes()
    except FileNotFoundError:
        return None
    return decoded(folder, number, data)


def ahead(folder: Path, numbers: Sequence[int]) -> dict[int, bytes]:
    """Contents of versions, for `decoded`, read side by side where each of them takes a request; none elsewhere."""
    found: dict[int, bytes] = {}
    if isinstance(folder, ObjectPath):
        with suppress(FileNotFoundError):  # deleted meanwhile; whoever needs it reads it himself
            for number, data in zip(numbers, contents(folder / file_name(each) for each in numbers), strict=False):
                found[number] = data
    return found


def decoded(folder: Path, number: int, data: bytes) -> Version:
    """A version from the content of its file; raises like `read`."""
    lines = data.splitlines()
    actions = []
    for line in lines:
        try:
            actions.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            info = Version(number, actions).info
            foreign = bool(info) and info.get("engineInfo") != ENGINE and number > 0
            raise TornError(f"line {len(actions) + 1} cannot be read: {error}", foreign=foreign) from None
    if not actions:
        raise TornError("it is empty")
    version = Version(number, actions)
    if number == 0 and not any("metaData" in action for action in actions):
        raise TornError("it does not say which columns the table has")
    if (mark := version.info.get(MARK)) is not None:
        _check_mark(folder, version, mark)
    return version


def numbers(folder: Path) -> list[int]:
    """The versions that have a file, in order."""
    return sorted(int(found[1]) for name in _names(folder) if (found := _VERSION.match(name)))


def names_up_to(folder: Path, version: int | None) -> list[str]:
    """The files of versions and of checkpoints, of any engine, up to a version; None: all of them."""
    found = ((name, _EITHER.match(name)) for name in _names(folder))
    return sorted(name for name, match in found if match and (version is None or int(match[1]) <= version))


def starts(folder: Path) -> Iterator[tuple[int, list[Path]]]:
    """Checkpoints with all their parts: first the one in `_last_checkpoint`, then the others, newest first."""
    found: dict[int, list[Path]] = {}
    parts: dict[tuple[int, int], list[Path]] = defaultdict(list)
    for name in _names(folder):
        if match := _CHECKPOINT.match(name):
            number = int(match[1])
            if match[3] is None:
                found[number] = [folder / name]
            else:
                parts[number, int(match[3])].append(folder / name)
    for (number, count), paths in parts.items():
        if len(paths) == count:
            found.setdefault(number, sorted(paths))
    hint = last_checkpoint(folder)
    for number in sorted(found, key=lambda number: (number == hint, number), reverse=True):
        yield number, found[number]


def last_checkpoint(folder: Path) -> int | None:
    """The version in `_last_checkpoint`; None if the file is missing or torn."""
    try:
        return int(json.loads((folder / LAST_CHECKPOINT).read_bytes())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def has_checkpoint(folder: Path) -> bool:
    """Whether anything is left of a checkpoint, whole or not."""
    return any(name == LAST_CHECKPOINT or ".checkpoint." in name for name in _names(folder))


def check_checkpoint(parts: list[Path]) -> None:
    """Raises an error if a checkpoint cannot be read to its end."""
    rows = []
    for part in parts:
        with parquet_file(part) as file:
            rows.append(file.read())
    if not any(
        table.column("metaData").null_count < table.num_rows for table in rows if "metaData" in table.schema.names
    ):
        raise OSError(f"{parts[0]} does not say which columns the table has")


def remove_temporaries(folder: Path) -> None:
    """Removes temporary files of commits that a crash interrupted; for the only committer."""
    for name in _names(folder):
        if _TEMPORARY.match(name):
            (folder / name).unlink(missing_ok=True)


def _check_mark(folder: Path, version: Version, mark: Any) -> None:
    if not isinstance(mark, dict) or mark.get("format") != FORMAT:
        raise TableError(
            f"{folder / file_name(version.number)} has a format that this deltaworks does not read: {mark}.",
            hint="deploy the version that wrote it",
        )
    if len(version.actions) != mark.get("actions"):
        raise TornError(f"it has {len(version.actions)} of {mark.get('actions')} actions")


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
