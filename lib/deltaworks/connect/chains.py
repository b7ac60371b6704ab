"""Chains of transforms, which change each record between a connector and Kafka, and predicates that choose records.

`transforms.py` makes transforms of Kafka, of Debezium and of deltaworks, `predicates.py` predicates. Here is what they
are made of, and how a connector has them as settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from deltaworks.connect.values import Value, is_text, is_value
from deltaworks.errors import ConfigurationError

FILTER = "org.apache.kafka.connect.transforms.Filter"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*")
_OWN = ("type", "predicate", "negate")
"""What arguments say."""


@dataclass(frozen=True)
class Predicate:
    """A question about each record; see `transforms.py`.

    Args:
        class_: of the predicate, in full.
        config: its settings, without what they begin with in Connect.
        name: in the settings of a connector; None: made of the class.

    Raises:
        ConfigurationError: a class, name or setting cannot be used.
    """

    class_: str
    config: Mapping[str, Value] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        _check("Predicate", self.class_, self.config, self.name)
        object.__setattr__(self, "config", MappingProxyType(dict(self.config)))


@dataclass(frozen=True)
class Transform:
    """One step of a chain of transforms: any class that the workers have.

    ```
    Transform("org.example.Upper$Value", {"field": "city"}, predicate=TopicNameMatches("cdc\\..*"))
    ```

    Args:
        class_: of the transform, in full; with `$Key` or `$Value`, if it has both.
        config: its settings, without what they begin with in Connect.
        predicate: it changes only records for which this holds; None: all.
        negate: only those for which it does not hold.
        name: in the settings of a connector; None: made of the class.
        of_changes: it reads Debezium's changes, so functions put it before what makes rows of them.

    Raises:
        ConfigurationError: a class, name or setting cannot be used, or the arguments do not fit together.
    """

    class_: str
    config: Mapping[str, Value] = field(default_factory=dict)
    predicate: Predicate | None = field(default=None, kw_only=True)
    negate: bool = field(default=False, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    of_changes: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check("Transform", self.class_, self.config, self.name)
        simple = simple_name(self.class_)
        if self.predicate is not None and not isinstance(self.predicate, Predicate):
            raise ConfigurationError(
                f"{simple}: predicate= is no predicate, but {_shown(self.predicate)}.",
                hint='TopicNameMatches("orders.*")',
            )
        if self.negate and self.predicate is None:
            raise ConfigurationError(f"{simple} has negate= without predicate=: there is nothing to negate.")
        if self.class_ == FILTER and self.predicate is None:
            raise ConfigurationError(
                "Filter without predicate= would drop every record.", hint="Filter(predicate=RecordIsTombstone())"
            )
        object.__setattr__(self, "config", MappingProxyType(dict(self.config)))


def simple_name(class_: str) -> str:
    """A class as people know it, without package and side."""
    return class_.rpartition(".")[2].partition("$")[0]


def settings_of(connector: str, transforms: Sequence[Transform]) -> dict[str, Value]:
    """A chain as Connect has it; empty without transforms.

    Raises:
        ConfigurationError: an item is no transform, two have one name, or the order cannot work.
    """
    _require_chain(connector, transforms)
    named = dict(_named(connector, "transforms", transforms))
    predicates: list[Predicate] = []
    for each in transforms:
        if each.predicate is not None and each.predicate not in predicates:
            predicates.append(each.predicate)
    aliases = [(alias, each) for alias, each in _named(connector, "predicates", predicates)]
    found: dict[str, Value] = {}
    for alias, each in named.items():
        found |= _below(f"transforms.{alias}", each)
        if each.predicate is not None:
            found[f"transforms.{alias}.predicate"] = next(a for a, other in aliases if other == each.predicate)
        if each.negate:
            found[f"transforms.{alias}.negate"] = True
    for alias, predicate in aliases:
        found |= _below(f"predicates.{alias}", predicate)
    if named:
        found = {"transforms": ",".join(named), **found}
    if aliases:
        found["predicates"] = ",".join(alias for alias, _ in aliases)
    return found


def listed(connector: str, transforms: object) -> tuple[Transform, ...]:
    """A chain as it was given; raises `ConfigurationError` if it is no list of transforms."""
    if isinstance(transforms, str | Transform) or not isinstance(transforms, Iterable):
        raise ConfigurationError(
            f"Connector '{connector}': transforms= is no list, but {_shown(transforms)}.",
            hint='transforms=[MaskField("card")]',
        )
    return tuple(transforms)


def _below(prefix: str, part: Transform | Predicate) -> dict[str, Value]:
    return {f"{prefix}.type": part.class_} | {f"{prefix}.{setting}": value for setting, value in part.config.items()}


P = TypeVar("P", Transform, Predicate)


def _named(connector: str, kind: str, parts: Sequence[P]) -> Iterator[tuple[str, P]]:
    """Each with its name in the settings: its own, or one of its class, with a number from the second on."""
    taken = [each.name for each in parts if each.name is not None]
    for name in taken:
        if taken.count(name) > 1:
            raise ConfigurationError(
                f"Connector '{connector}' has two {kind} with the name '{name}'.", hint="another name= for one of them"
            )
    for each in parts:
        if each.name is not None:
            yield each.name, each
            continue
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", simple_name(each.class_)).lower()
        name = next(n for n in _numbered(stem) if n not in taken)
        taken.append(name)
        yield name, each


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}_{number}"
        number += 1


def _require_chain(connector: str, transforms: Sequence[object]) -> None:
    rows = None
    for each in transforms:
        if not isinstance(each, Transform):
            raise ConfigurationError(
                f"Connector '{connector}' has {_shown(each)} in transforms=, which is no transform.",
                hint='Flatten(), MaskField("card"), Transform("org.example.Upper$Value")',
            )
        simple = simple_name(each.class_)
        if makes_rows(each):
            if rows is not None and rows.predicate == each.predicate and rows.negate == each.negate:
                raise ConfigurationError(
                    f"Connector '{connector}' makes rows of changes twice: {simple} is in its chain two times.",
                    hint=f"either unwrap=True, or {simple}(...) in transforms=",
                )
            rows = each
        elif each.of_changes and rows is not None:
            raise ConfigurationError(
                f"Connector '{connector}': {simple} reads changes, and comes after {simple_name(rows.class_)}, which "
                "has made rows of them.",
                hint=f"put {simple} in front of it",
            )


def makes_rows(transform: Transform) -> bool:
    """Whether it makes rows of Debezium's changes."""
    return simple_name(transform.class_) in ("ExtractNewRecordState", "ExtractNewDocumentState")


def _check(kind: str, class_: object, config: Mapping[str, Value], name: object) -> None:
    if not is_text(class_):
        raise ConfigurationError(f"{kind} has no class: {class_!r}.", hint=f'{kind}("org.example.Upper$Value")')
    simple = simple_name(str(class_))
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ConfigurationError(
            f"{simple} cannot have name={name!r}.", hint="letters, digits, '_' and '-': it is a part of settings"
        )
    for setting, value in config.items():
        if not is_text(setting) or setting in _OWN:
            raise ConfigurationError(
                f"{simple} cannot have the setting {setting!r}.",
                hint="class_=, predicate= and negate= are arguments; the others are named by texts",
            )
        if not is_value(value):
            raise ConfigurationError(
                f"{simple} has '{setting}' of type {type(value).__name__}; expected text, a number or a bool.",
                hint="several items are one text, separated by commas",
            )


def _shown(given: object) -> str:
    """What was given instead: a text as it is, of all else the type, as it may hold a secret."""
    return repr(given) if isinstance(given, str) else f"of type {type(given).__name__}"
