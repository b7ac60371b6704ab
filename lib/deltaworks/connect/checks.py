"""What can be said of connectors without a worker: names of transforms, and what no two of them may have in common."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deltaworks.connect.connector import CLASS
from deltaworks.names import hint_of

ALIASED = ("transforms", "predicates")
"""Settings with the names of others: `transforms=unwrap` has settings that begin with `transforms.unwrap.`."""
_SERVER = ("database.hostname", "database.port")
_UNIQUE: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("database.server.id", _SERVER, "the server takes each for the other, and ends the older connection"),
    ("slot.name", _SERVER, "a replication slot has one reader"),
    ("topic.prefix", (), "they would write to the same topics"),
    ("schema.history.internal.kafka.topic", (), "each needs a history of its own"),
)
"""A setting, those that say where it has to be unique, and why."""
_DEBEZIUM = "io.debezium."
_NEAR = 0.85


@dataclass(frozen=True)
class Problem:
    """What is wrong with a connector."""

    connector: str
    setting: str | None
    """None: the connector as a whole."""
    what: str
    """Without secrets."""

    def __str__(self) -> str:
        return f"{self.connector}: {self.what if self.setting is None else f'{self.setting}: {self.what}'}"


def aliases(properties: Mapping[str, str], setting: str) -> list[str]:
    """The names in a setting such as `transforms`."""
    return [name.strip() for name in properties.get(setting, "").split(",") if name.strip()]


def of_aliases(connector: str, properties: Mapping[str, str]) -> list[Problem]:
    """Transforms and predicates without a class, settings of ones that there are not."""
    found = [each for kind in ALIASED for each in _of_kind(connector, properties, kind)]
    predicates = aliases(properties, "predicates")
    for name in aliases(properties, "transforms"):
        setting = f"transforms.{name}.predicate"
        if (wanted := properties.get(setting)) is not None and wanted not in predicates:
            found.append(Problem(connector, setting, f"there is no predicate '{wanted}'; {_near(wanted, predicates)}"))
    return found


def _of_kind(connector: str, properties: Mapping[str, str], kind: str) -> Iterator[Problem]:
    names = aliases(properties, kind)
    for name in names:
        if not properties.get(f"{kind}.{name}.type"):
            yield Problem(connector, f"{kind}.{name}.type", f"'{name}' is in {kind}, but its class is missing")
    for setting in properties:
        alias = setting.split(".")[1] if setting.startswith(f"{kind}.") else None
        if alias is not None and alias not in names:
            yield Problem(connector, setting, f"'{alias}' is not in {kind}; {_near(alias, names)}")


def _near(name: str, known: Collection[str]) -> str:
    return hint_of(name, known, "it has")


def of_all(connectors: Mapping[str, Mapping[str, str]], wanted: Collection[str]) -> list[Problem]:
    """What connectors have in common that each must have for itself.

    Args:
        connectors: name -> settings, of the project and of others in the cluster.
        wanted: the names of those whose problems count.
    """
    found = []
    first: dict[tuple[str, ...], str] = {}
    for name, properties in sorted(connectors.items(), key=lambda each: (each[0] in wanted, each[0])):
        for setting, where, why in _UNIQUE:
            if setting not in properties or not _captures(properties):
                continue
            key = (setting, properties[setting], *(properties.get(each, "") for each in where))
            other = first.setdefault(key, name)
            if other != name and name in wanted:
                found.append(
                    Problem(name, setting, f"is {properties[setting]}, which connector '{other}' has, too: {why}")
                )
    return found


def of_topics(
    connector: str, properties: Mapping[str, str], there: Collection[str]
) -> tuple[list[Problem], list[Problem]]:
    """Topics that a sink should read and that there are not: misspelt ones, and notes of others.

    A source or a stream may make a topic later, so one that resembles none is no problem.

    Args:
        connector: its name.
        properties: its settings.
        there: all topics of the cluster.
    """
    problems, notes = list[Problem](), list[Problem]()
    for topic in filter(None, (each.strip() for each in properties.get("topics", "").split(","))):
        if topic in there:
            continue
        near = difflib.get_close_matches(topic, there, n=1, cutoff=_NEAR)
        if near:
            problems.append(Problem(connector, "topics", f"there is no topic '{topic}'; did you mean '{near[0]}'?"))
        else:
            notes.append(
                Problem(connector, "topics", f"there is no topic '{topic}' yet: nothing is read until it is there")
            )
    return problems, notes


def _captures(properties: Mapping[str, str]) -> bool:
    """Whether it reads the changes of a database; a sink may have settings of the same name."""
    return properties.get(CLASS, "").startswith(_DEBEZIUM) and "topics" not in properties
