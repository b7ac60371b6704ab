"""The public methods of Kafka Streams: read from its jars, kept as a list, so that a check needs no download.

`kafka_streams_api.tsv` has a line per class and method: number of overloads, how many of them are deprecated.
`python -m tests.coverage_table api` rewrites it; a test compares it with the jars.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.coverage_table.class_files import PROTECTED, PUBLIC, JavaClass, Overload, read_class

JARS = "kafka-streams-api"
"""The set in `tooling/jars.toml`."""
_LIST = Path(__file__).with_name("kafka_streams_api.tsv")
_PACKAGE = "org/apache/kafka/streams/"
_COLUMNS = "class", "method", "overloads", "deprecated"


@dataclass(frozen=True, order=True)
class Method:
    """All overloads of one method of one class; a constructor is called `new`."""

    owner: str
    """Without `org.apache.kafka.streams.`; `.` before a nested class. Such as `kstream.Suppressed.BufferConfig`."""
    name: str
    overloads: int
    deprecated: int
    """How many of the overloads."""


def recorded() -> list[Method]:
    """The committed list, sorted."""
    header, *lines = _LIST.read_text().splitlines()
    assert tuple(header.split("\t")) == _COLUMNS, header
    return [
        Method(owner, name, int(overloads), int(deprecated))
        for owner, name, overloads, deprecated in (line.split("\t") for line in lines)
    ]


def write(methods: Iterable[Method]) -> None:
    """Replaces the committed list."""
    rows = [_COLUMNS, *((m.owner, m.name, str(m.overloads), str(m.deprecated)) for m in methods)]
    _LIST.write_text("".join("\t".join(row) + "\n" for row in rows))


def read_jars(jars: Iterable[Path]) -> list[Method]:
    """What the jars offer outside of `internals`: public methods, and protected ones, which subclasses use. Sorted."""
    return sorted(method for jar in jars for each in _classes(jar) for method in _methods(each))


def _classes(jar: Path) -> Iterator[JavaClass]:
    with zipfile.ZipFile(jar) as content:
        for name in content.namelist():
            if name.startswith(_PACKAGE) and name.endswith(".class") and "/internals/" not in name:
                found = read_class(content.read(name))
                if found.access & PUBLIC:
                    yield found


def _methods(of: JavaClass) -> Iterator[Method]:
    offered = [method for method in of.methods if _is_offered(method)]
    owner = of.name.removeprefix(_PACKAGE).replace("/", ".").replace("$", ".")
    for name in {method.name for method in offered}:
        overloads = [method for method in offered if method.name == name]
        deprecated = sum(of.deprecated or method.deprecated for method in overloads)
        yield Method(owner, name, len(overloads), deprecated)


def _is_offered(method: Overload) -> bool:
    """A protected constructor or setter of a config object is how its own factories make copies."""
    return bool(method.access & PUBLIC) or (bool(method.access & PROTECTED) and method.name != "new")
