"""What applying the files of a project would change in the cluster, and doing it once all checks have passed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from deltaworks.connect import checks, validation
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.checks import Problem
from deltaworks.connect.connector import Connector
from deltaworks.connect.secrets import shown
from deltaworks.errors import ConfigurationError, ConflictError

Kind = Literal["new", "changed", "unchanged", "unknown"]
"""`unknown`: the cluster has it, and the project does not."""


@dataclass(frozen=True)
class SettingChange:
    """A setting that is not the same in the cluster and in the project. Values are as `secrets.shown` gives them."""

    setting: str
    before: str | None
    """In the cluster; None: not there."""
    after: str | None
    """In the project; None: not there."""


@dataclass(frozen=True)
class Change:
    """A connector, in the cluster or in the project."""

    name: str
    kind: Kind
    settings: tuple[SettingChange, ...] = ()
    current: Mapping[str, str] | None = field(default=None, repr=False)
    """All settings in the cluster; None: it is not there."""
    wanted: Mapping[str, str] | None = field(default=None, repr=False)
    """All settings in the project; None: it is not there."""

    @property
    def is_pending(self) -> bool:
        """Whether applying it changes the cluster."""
        return self.kind in ("new", "changed")


@dataclass(frozen=True)
class Plan:
    """The project and the cluster, compared."""

    url: str
    changes: tuple[Change, ...]
    """By name."""
    problems: tuple[Problem, ...] = ()
    """Why nothing can be applied."""
    notes: tuple[Problem, ...] = ()
    """What somebody should know, and what stops nothing."""

    @property
    def pending(self) -> tuple[Change, ...]:
        """What applying it would change."""
        return tuple(change for change in self.changes if change.is_pending)

    def require_sound(self) -> None:
        """Raises `ConfigurationError`, with all problems, if there are any."""
        require_none(self.problems, self.url)


def require_none(problems: Sequence[Problem], url: str) -> None:
    """Raises `ConfigurationError`, with all problems, if there are any.

    Args:
        problems: of connectors.
        url: of the worker that was asked; empty: none was.
    """
    if problems:
        where = f" Kafka Connect at {url}" if url else ""
        raise ConfigurationError(
            "\n  ".join([f"connectors do not fit{where}, so nothing was changed:", *map(str, problems)]),
            hint="correct their files in jobs/connectors" + _hint(problems),
        )


def _hint(problems: Sequence[Problem]) -> str:
    misspelt = any("did you mean" in problem.what and problem.setting for problem in problems)
    return "; --allow-undefined sends settings that a class does not define" if misspelt else ""


def plan(
    connectors: Mapping[str, Connector],
    api: ConnectApi,
    *,
    whole: bool = True,
    undefined: bool = False,
    topics: Collection[str] | None = None,
    locked: Mapping[str, str] | None = None,
) -> Plan:
    """Compares the connectors of a project with those of the cluster; changes nothing.

    Each is validated. What is wrong with one that would not change is a note: a database that is away does not keep
    others from being applied.

    Args:
        connectors: of the project, by name.
        api: of a worker.
        whole: they are all of the project, so others in the cluster are unknown to it.
        undefined: see `validation.check`; topics that resemble others are no problem, either.
        topics: all of the cluster, to find those that sinks misspell; None: they are not known.
        locked: class -> the version of it that the workers should have; None: nobody has said so.

    Raises:
        ConnectUnavailableError: the worker does not answer.
        ConfigurationError: it refuses us.
    """
    there, plugins = api.configs(), api.plugins()
    wanted = {name: each.properties for name, each in connectors.items()}
    changes, problems, notes = list[Change](), list[Problem](), list[Problem]()
    for name in sorted(wanted):
        checked = validation.check(name, wanted[name], api, plugins, undefined=undefined, locked=locked or {})
        change = _change(name, there.get(name), wanted[name], {*checked.passwords, *connectors[name].secrets})
        (problems if change.is_pending else notes).extend(checked.problems)
        notes += checked.notes
        if topics is not None and not undefined:
            misspelt, later = checks.of_topics(name, wanted[name], topics)
            (problems if change.is_pending else notes).extend(misspelt)
            notes += later
        changes.append(change)
    problems += checks.of_all({**there, **wanted}, wanted)
    if whole:
        changes += [Change(name, "unknown", current=there[name]) for name in there.keys() - wanted.keys()]
    ordered = sorted(changes, key=lambda change: change.name)
    return Plan(api.url, tuple(ordered), tuple(problems), tuple(notes))


def validate(
    connectors: Mapping[str, Connector],
    api: ConnectApi | None,
    *,
    undefined: bool = False,
    locked: Mapping[str, str] | None = None,
) -> tuple[list[Problem], list[Problem]]:
    """Problems of connectors, and what somebody should know.

    Args:
        connectors: of the project, by name.
        api: of a worker; None: only what can be said without one.
        undefined: see `validation.check`.
        locked: see `plan`.

    Raises:
        ConnectUnavailableError: the worker does not answer.
        ConfigurationError: it refuses us.
    """
    wanted = {name: each.properties for name, each in connectors.items()}
    others = {} if api is None else api.configs()
    problems, notes = checks.of_all({**others, **wanted}, wanted), list[Problem]()
    plugins = [] if api is None else api.plugins()
    for name in sorted(wanted):
        if api is None:
            problems += checks.of_aliases(name, wanted[name])
            continue
        checked = validation.check(name, wanted[name], api, plugins, undefined=undefined, locked=locked or {})
        problems += checked.problems
        notes += checked.notes
    return problems, notes


def apply(planned: Plan, api: ConnectApi, report: Callable[[Change], None] = lambda change: None) -> None:
    """Creates and changes what a plan says, in the order of the names.

    Args:
        planned: without problems.
        api: of a worker.
        report: is told of each connector that was applied.

    Raises:
        ConfigurationError: the plan has problems; nothing was changed.
        ConflictError: somebody has changed a connector since it was planned; those before it were applied.
        ConnectUnavailableError: the worker does not answer.
    """
    planned.require_sound()
    for change in planned.pending:
        assert change.wanted is not None  # it is new or changed
        if api.config(change.name) != change.current:
            raise ConflictError(
                f"connector '{change.name}' was changed in Kafka Connect at {api.url} after it was compared.",
                hint="deltaworks connect plan",
            )
        api.put(change.name, change.wanted)
        report(change)


def _change(
    name: str, current: Mapping[str, str] | None, wanted: Mapping[str, str], secrets: Collection[str]
) -> Change:
    before = current or {}
    differing = [each for each in sorted(before.keys() | wanted.keys()) if before.get(each) != wanted.get(each)]
    settings = tuple(
        SettingChange(each, *(shown(each, of.get(each), each in secrets) for of in (before, wanted)))
        for each in differing
    )
    kind: Kind = "new" if current is None else "changed" if settings else "unchanged"
    return Change(name, kind, settings, current, wanted)
