"""Takes a person's data out of text: lines of logs, and documents in JSON.

A line that names the person is overwritten where it is, as a whole and with as many bytes, because a process may have
the file open and append to it. Of a document, texts that name the person are replaced.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.files import replace_file
from deltaworks.topology.persons import Person

ERASED = "[erased]"


def count(file: Path, person: Person) -> int:
    """How many lines, or texts of a document, name the person."""
    if (document := _document(file, person)) is not None:
        return _replaced(document, person)[1]
    with _mapped(file, writable=False) as data:
        return sum(1 for _ in _lines(data, person))


def erase(file: Path, person: Person) -> int:
    """Takes them out, durably; returns how many there were."""
    if (document := _document(file, person)) is not None:
        new, found = _replaced(document, person)
        if found:
            content = msgspec.json.format(msgspec.json.encode(new), indent=1)
            replace_file(file, content, mode=file.stat().st_mode & 0o777, durable=True)
        return found
    found = 0
    with _mapped(file, writable=True) as data:
        for first, last in _lines(data, person):
            data[first:last] = ERASED.encode()[: last - first].ljust(last - first)
            found += 1
        if found:
            data.flush()
    return found


def is_text(file: Path) -> bool:
    """Whether a file looks like text, by its beginning."""
    with file.open("rb") as opened:
        return b"\0" not in opened.read(4096)


def names(file: Path, person: Person) -> bool:
    """Whether a file of any kind names the person, as its bytes are."""
    with _mapped(file, writable=False) as data:
        return has(data, person)


def has(data: Any, person: Person) -> bool:
    """Whether bytes name the person."""
    return next(_lines(data, person), None) is not None


class _Empty:
    """Stands for an empty file, which cannot be mapped."""

    def __enter__(self) -> bytes:
        return b""

    def __exit__(self, *_: object) -> None: ...


def _mapped(file: Path, *, writable: bool) -> Any:
    with file.open("r+b" if writable else "rb") as opened:
        if not file.stat().st_size:
            return _Empty()
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)


def _lines(data: Any, person: Person) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end that name the person."""
    assert person.words is not None
    word, at = person.words[0].encode(), 0
    while (at := data.find(word, at)) >= 0:
        first = data.rfind(b"\n", 0, at) + 1
        last = data.find(b"\n", at)
        last = len(data) if last < 0 else last
        if person.in_bytes(bytes(data[first:last])):
            yield first, last
        at = last


def _document(file: Path, person: Person) -> Any | None:
    if file.suffix != ".json" or not names(file, person):
        return None
    try:
        return msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError:
        return None


def _replaced(document: Any, person: Person) -> tuple[Any, int]:
    """A document without texts that name the person, and how many there were."""
    match document:
        case str():
            return (ERASED, 1) if person.in_text(document) else (document, 0)
        case list():
            parts = [_replaced(each, person) for each in document]
            return [new for new, _ in parts], sum(found for _, found in parts)
        case dict():
            named = {name: _replaced(each, person) for name, each in document.items()}
            theirs = sum(person.in_text(name) for name in named)
            return (
                {ERASED if person.in_text(name) else name: new for name, (new, _) in named.items()},
                theirs + sum(found for _, found in named.values()),
            )
        case _:
            return document, 0
