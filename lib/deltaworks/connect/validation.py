"""A connector as the worker sees it: whether it has the class in the right version, what it says of each setting, and
misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from deltaworks.connect.answers import Plugin, Validated
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.checks import ALIASED, Problem, aliases, of_aliases
from deltaworks.connect.connector import CLASS, NAME, VERSION
from deltaworks.connect.secrets import MASK, masked, refers

_PASSWORD = "PASSWORD"
_EXACTLY_ONCE = "exactly.once.support"
_HIDDEN = "the worker refuses what the reference leads to; its reason is not shown, as it may quote the secret"
_PASSED_ON = ("admin.override.", "consumer.override.", "producer.override.", "topic.creation.")
"""What begins so goes to Kafka's clients and topics, whose settings the class does not define."""
_OF_DEBEZIUM = ("driver.", "schema.history.internal.", "snapshot.select.statement.overrides.")
"""What begins so is passed on to parts of Debezium, so there is nothing to tell of it."""
_CONVERTERS = ("key.converter.", "value.converter.", "header.converter.")
_OF_EACH = ("type", "predicate", "negate")
"""Settings that each transform has, whatever its class."""
_UNKNOWN_VERSION = "undefined"
"""What a worker says of a class that has no version."""
_LATEST, _RANGE = "latest", ("[", "(")
"""What `connector.plugin.version` may be besides a version, which the worker itself resolves."""
_NEAR = 0.85
_MOST_CLASSES = 30


_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Checked:
    """What a worker says of a connector."""

    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = ()
    """Settings that the class does not define, and that resemble none: they are passed on as they are."""
    passwords: frozenset[str] = frozenset()
    """Settings that the class defines as passwords."""


def check(
    name: str,
    properties: Mapping[str, str],
    api: ConnectApi,
    plugins: Sequence[Plugin],
    *,
    undefined: bool = False,
    locked: Mapping[str, str] = _NONE,
) -> Checked:
    """Asks a worker about a connector; changes nothing.

    Args:
        name: of the connector.
        properties: all of its settings.
        api: of the worker.
        plugins: the classes that it has.
        undefined: settings that the class does not define are no problem, even if they resemble others.
        locked: class -> the version that the workers should have, unless the connector says another.

    Raises:
        ConnectUnavailableError: it does not answer.
        ConfigurationError: it refuses the question.
    """
    if (problem := _of_class(name, properties[CLASS], plugins)) is not None:
        return Checked((problem, *of_aliases(name, properties)))
    if (problem := _of_version(name, properties, plugins, locked)) is not None:
        return Checked((problem, *of_aliases(name, properties)))
    validated = api.validate(properties[CLASS], {NAME: name, **properties})
    passwords = frozenset(
        each.definition.name
        for each in validated.configs
        if each.definition is not None and each.definition.type == _PASSWORD
    )
    problems = [*of_aliases(name, properties), *_errors(name, properties, validated)]
    if cannot_be_exact(api, properties):
        what = "cannot be had from a worker in standalone mode, which says nothing, and may write records twice"
        problems.append(Problem(name, _EXACTLY_ONCE, what))
    problems += [
        Problem(name, setting, 'is a secret, and is written as text: a reference is "${env:NAME}"; see secrets=')
        for setting in sorted(passwords & properties.keys())
        if properties[setting] and not refers(properties[setting])
    ]
    with_errors = {problem.setting for problem in problems}
    misspelt, notes = [], []
    for setting in _undefined(properties, validated):
        if setting in with_errors:
            continue
        near = None if undefined else _near(setting, _defined(validated))
        if near is not None:
            misspelt.append(Problem(name, setting, f"the class defines no such setting; did you mean '{near}'?"))
        elif not setting.startswith(_OF_DEBEZIUM):
            notes.append(Problem(name, setting, "is passed on: the class defines no such setting"))
    return Checked((*problems, *misspelt), tuple(notes), passwords)


def cannot_be_exact(api: ConnectApi, properties: Mapping[str, str]) -> bool:
    """Whether a source has to write each record once, and the worker, which takes it all the same, does not."""
    return api.standalone and properties.get(_EXACTLY_ONCE, "").strip().lower() == "required"


def _of_class(name: str, class_: str, plugins: Sequence[Plugin]) -> Problem | None:
    """The problem of a class that the worker does not have, with those that it has."""
    known = {each.class_: each for each in plugins}
    if any(class_ in each.names for each in plugins):
        return None
    simple = {each.names[1]: each.class_ for each in plugins}
    wanted = class_.rpartition(".")[2]
    near = difflib.get_close_matches(class_, known, n=1, cutoff=_NEAR) or [
        simple[each] for each in difflib.get_close_matches(wanted, simple, n=1)
    ]
    meant = f"did you mean '{near[0]}'? " if near else ""
    shown = sorted(known)[:_MOST_CLASSES]
    there = ", ".join(shown) + (", ..." if len(known) > len(shown) else "") or "none"
    return Problem(name, CLASS, f"no worker has the class '{class_}'; {meant}Classes: {there}")


def _of_version(
    name: str, properties: Mapping[str, str], plugins: Sequence[Plugin], locked: Mapping[str, str]
) -> Problem | None:
    """The problem of a plugin in another version than the connector, or else the lock, wants it in."""
    found = [each for each in plugins if properties[CLASS] in each.names]
    there = sorted({each.version for each in found if each.version and each.version != _UNKNOWN_VERSION})
    has = f"the workers have {found[0].class_} in version {' and '.join(there)}"
    wanted = properties.get(VERSION, "").strip()
    if not wanted:
        of_lock = next((locked[each.class_] for each in found if each.class_ in locked), None)
        if of_lock is None or not there or of_lock in there:
            return None
        restart = "deltaworks down connect, and deltaworks up connect"
        return Problem(name, CLASS, f"{has}, but the lock of their plugins has {of_lock}: {restart}")
    if wanted == _LATEST or wanted.startswith(_RANGE) or refers(wanted) or wanted in there:
        return None
    if not there:
        return Problem(name, VERSION, f"is {wanted}, but the workers do not say which version they have: leave it out")
    return Problem(name, VERSION, f"is {wanted}, but {has}: install {wanted} on them, or write the version they have")


def _errors(name: str, properties: Mapping[str, str], validated: Validated) -> Iterable[Problem]:
    """What the worker says of settings, without the secrets to which it has followed references."""
    secrets = [
        str(each.value.value)
        for each in validated.configs
        if refers(properties.get(each.value.name, "")) and each.value.value and not refers(str(each.value.value))
    ]
    for each in validated.configs:
        if each.value.errors and refers(properties.get(each.value.name, "")):
            yield Problem(name, each.value.name, _HIDDEN)
            continue
        for error in dict.fromkeys(each.value.errors):
            for secret in sorted(secrets, key=len, reverse=True):
                error = error.replace(secret, MASK)
            yield Problem(name, each.value.name, masked(error))


def _defined(validated: Validated) -> list[str]:
    return [each.definition.name for each in validated.configs if each.definition is not None]


def _undefined(properties: Mapping[str, str], validated: Validated) -> list[str]:
    """The settings that the class does not define, unless they belong to something that it says nothing of."""
    known = {*_defined(validated), NAME, CLASS, VERSION}
    return [
        setting
        for setting in properties
        if setting not in known
        and not setting.startswith(_PASSED_ON)
        and not _is_of_unknown_part(setting, properties, known)
    ]


def _is_of_unknown_part(setting: str, properties: Mapping[str, str], known: Collection[str]) -> bool:
    """Whether it belongs to a transform, predicate or converter of which the worker defines nothing."""
    for kind in ALIASED:
        if setting.startswith(f"{kind}."):
            alias = setting.split(".")[1]
            prefix = f"{kind}.{alias}."
            own = _below(known, prefix) - {f"{prefix}{each}" for each in _OF_EACH}
            return alias not in aliases(properties, kind) or not own
    return any(setting.startswith(each) and not _below(known, each) for each in _CONVERTERS)


def _below(known: Collection[str], prefix: str) -> set[str]:
    return {each for each in known if each.startswith(prefix)}


def _near(setting: str, known: Collection[str]) -> str | None:
    """The setting that was meant, if one resembles it so much that it can hardly be another.

    What goes on after the name of a defined one (`snapshot.select.statement.overrides.TABLE`) is meant as it is.
    """
    near = difflib.get_close_matches(setting, known, n=1, cutoff=_NEAR)
    return near[0] if near and not setting.startswith(f"{near[0]}.") else None
