"""The mapping: what each method of Kafka Streams is called here. Files in `mapping/`, one per part of the page.

```toml
title = "Streams and tables"

["kstream.KStream"]
filter = "KStream.filter"                                               # the same
join = ["KStream.join", "KStream.join_with_key"]                        # several: overloads became names
defaultBranch = { ours = "BranchedKStream.default_branch", differs = "..." }
print = { instead = "`peek(print)`" }                                   # not offered: what to do in its place
"*" = { instead = "..." }                                               # all methods that are not named
about = "A sentence above the table of this class."
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.coverage_table.java_api import Method, recorded

Status = Literal["same", "different", "not offered"]
_FOLDER = Path(__file__).with_name("mapping")


@dataclass(frozen=True)
class Row:
    """One method of Kafka Streams."""

    method: Method
    ours: tuple[str, ...]
    """Our counterparts, as `counterparts.find` reads them; none: it is not offered."""
    words: str
    """The difference; of a method that is not offered, the reason and what to do in its place. Empty: the same."""

    @property
    def status(self) -> Status:
        if not self.ours:
            return "not offered"
        return "different" if self.words else "same"


@dataclass(frozen=True)
class Class:
    """A class of Kafka Streams: a table of the page."""

    name: str
    about: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Part:
    """A chapter of the page: a file of the mapping."""

    title: str
    about: str
    classes: tuple[Class, ...]


class MappingError(ValueError):
    """The mapping and the list of methods do not fit."""


def read_mapping() -> list[Part]:
    """All parts, in order of their file names.

    Raises:
        MappingError: a method without a row, a row without a method, a row that says nothing.
    """
    methods = recorded()
    parts = [part_of(tomllib.loads(file.read_text()), methods, file.name) for file in sorted(_FOLDER.glob("*.toml"))]
    mapped = {each.name for part in parts for each in part.classes}
    if left := sorted({method.owner for method in methods} - mapped):
        raise MappingError(f"classes in no file of the mapping: {', '.join(left)}")
    return parts


def rows(parts: Iterable[Part]) -> list[Row]:
    """All rows of all parts."""
    return [row for part in parts for each in part.classes for row in each.rows]


def part_of(content: Mapping[str, Any], methods: list[Method], file: str) -> Part:
    """One file.

    Raises:
        MappingError: as `read_mapping`.
    """
    return Part(
        content["title"],
        content.get("about", ""),
        tuple(
            _class(name, entries, {method.name: method for method in methods if method.owner == name}, file)
            for name, entries in content.items()
            if isinstance(entries, dict)
        ),
    )


def _class(name: str, entries: Mapping[str, Any], methods: Mapping[str, Method], file: str) -> Class:
    named = {method: entry for method, entry in entries.items() if method not in ("about", "*")}
    if unknown := sorted(named.keys() - methods.keys()):
        raise MappingError(f"{file}: {name} has no method {', '.join(unknown)}")
    left = sorted(methods.keys() - named.keys())
    if left and "*" not in entries:
        raise MappingError(f"{file}: {name} without a row for {', '.join(left)}")
    if not methods or ("*" in entries and not left):
        raise MappingError(f"{file}: {name} has a rule for no method")
    found = [_row(methods[method], named.get(method, entries.get("*")), file) for method in sorted(methods)]
    return Class(name, entries.get("about", ""), tuple(found))


def _row(method: Method, entry: Any, file: str) -> Row:
    match entry:
        case str() | list():
            return Row(method, _names(entry), "")
        case {"ours": ours, "differs": str(words), **rest} if not rest and words:
            return Row(method, _names(ours), words)
        case {"instead": str(words), **rest} if not rest and words:
            return Row(method, (), words)
        case _:
            raise MappingError(f"{file}: {method.owner} {method.name} = {entry!r} says nothing")


def _names(ours: str | list[str]) -> tuple[str, ...]:
    found = (ours,) if isinstance(ours, str) else tuple(ours)
    if not found or not all(found):
        raise MappingError(f"an empty counterpart: {ours!r}")
    return found
