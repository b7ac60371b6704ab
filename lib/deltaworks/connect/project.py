"""The connectors of a project: files `NAME.py` and `NAME.json` in `jobs/connectors/`.

A file whose name begins with `_` is none: others import it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltaworks.connect.connector import CLASS, NAME, TASKS_MAX, Connector
from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.names import CONNECTOR, hint_of
from deltaworks.settings import Settings

FOLDER = "connectors"
"""Below `jobs/`."""
_KINDS = (".py", ".json")
_OF_CONNECT = {"name", "config", "tasks", "type"}
"""What `GET /connectors/NAME` says; name and config are read."""


def folder(settings: Settings) -> Path:
    """Where the files are."""
    return settings.jobs / FOLDER


def files(settings: Settings) -> dict[str, Path]:
    """Name of each connector -> its file.

    Raises:
        ConfigurationError: two files have one name, or a name that a connector cannot have.
    """
    return {name: _only(settings, name, found) for name, found in written(settings).items()}


def written(settings: Settings) -> dict[str, list[Path]]:
    """Name of each connector -> its files, as they are: one has a problem if there are two, or by its name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(folder(settings).glob("*")):
        if file.suffix in _KINDS and not file.name.startswith(("_", ".")):
            found.setdefault(file.stem, []).append(file)
    return found


def _only(settings: Settings, name: str, found: Sequence[Path]) -> Path:
    CONNECTOR.checked(name, folder(settings))
    if len(found) > 1:
        raise ConfigurationError(
            f"{' and '.join(map(shown, found))} are one connector '{name}'.", hint="delete one of them"
        )
    return found[0]


def _none(settings: Settings, name: str, there: Collection[str]) -> ConfigurationError:
    return ConfigurationError(
        f"There is no connector '{name}' in {folder(settings)}.", hint=hint_of(name, there, "connectors here")
    )


def load_all(settings: Settings, names: Iterable[str] = ()) -> dict[str, Connector]:
    """The connectors of a project, by name.

    Args:
        settings: of the project.
        names: only these; none: all.

    Raises:
        ConfigurationError: a file has no connector, fails, or has one that cannot be used; or there is no such file.
    """
    there = files(settings)
    for name in names:
        if name not in there:
            raise _none(settings, name, there)
    wanted = [name for name in there if name in set(names)] or list(there)
    loaded: dict[str, Connector] = {}
    failed: list[ConfigurationError] = []
    for name in wanted:
        try:
            loaded[name] = _load(settings, name, there[name])
        except ConfigurationError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ConfigurationError("\n".join([f"{len(failed)} connectors cannot be loaded:", *map(_indented, failed)]))
    return loaded


@dataclass(frozen=True)
class Loaded:
    """The connectors of a project whose files can be used, and what is wrong with the others."""

    connectors: Mapping[str, Connector] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    """Name -> what is wrong with its file."""


def load_each(settings: Settings) -> Loaded:
    """The connectors of a project; a file that cannot be used keeps no other from being loaded."""
    loaded: dict[str, Connector] = {}
    broken: dict[str, str] = {}
    for name in written(settings):
        try:
            loaded[name] = load(settings, name)
        except DeltaworksError as error:
            broken[name] = error.message
    return Loaded(loaded, broken)


def file_of(settings: Settings, name: str) -> Path:
    """The file of one connector; what is wrong with other files does not matter.

    Raises:
        ConfigurationError: there is none, or its name cannot be used.
    """
    there = written(settings)
    if name not in there:
        raise _none(settings, name, there)
    return _only(settings, name, there[name])


def load(settings: Settings, name: str) -> Connector:
    """One connector of a project; what is wrong with other files does not matter.

    Raises:
        ConfigurationError: its file has no connector, fails, or has one that cannot be used; or there is no such file.
    """
    return _load(settings, name, file_of(settings, name))


def _load(settings: Settings, name: str, file: Path) -> Connector:
    found = _of_json(name, file) if file.suffix == ".json" else _of_module(settings, name, file)
    if found.name != name:
        raise ConfigurationError(
            f"{shown(file)} has a connector named '{found.name}'; its name must be that of the file.",
            hint=f"rename it '{name}', or the file",
        )
    return found


def _of_module(settings: Settings, name: str, file: Path) -> Connector:
    from deltaworks.dsl.failures import authors_line

    try:
        module = jobs.imported(settings, f"{FOLDER}.{name}")
    except ConfigurationError as error:
        where = authors_line(error)
        at = "" if where is None or where in error.message else f"\n  at {where}"
        raise ConfigurationError(f"{error.message}{at}", hint=error.hint) from error
    found = getattr(module, "connector", None)
    if not isinstance(found, Connector):
        what = "no connector" if found is None else f"a connector of type {type(found).__name__}"
        raise ConfigurationError(
            f"{shown(file)} defines {what}.",
            hint=f'connector = Connector(name="{name}", ...); a file for others to import begins with "_"',
        )
    return found


def _of_json(name: str, file: Path) -> Connector:
    document = _document(file)
    config: Mapping[str, Any] = document
    if "config" in document:
        config = document["config"]
        if not isinstance(config, dict):
            raise ConfigurationError(f"{shown(file)}: 'config' is no object.", hint=_hint(name))
        if others := document.keys() - _OF_CONNECT:
            raise ConfigurationError(
                f"{shown(file)} has {', '.join(map(repr, sorted(others)))} beside 'name' and 'config'.",
                hint="settings belong into 'config'",
            )
    if not isinstance(class_ := config.get(CLASS), str):
        raise ConfigurationError(f"{shown(file)} has no '{CLASS}'.", hint=_hint(name))
    settings = {setting: value for setting, value in config.items() if setting not in (NAME, CLASS, TASKS_MAX)}
    named = {str(each[NAME]) for each in (document, config) if NAME in each}
    if len(named) > 1:
        raise ConfigurationError(f"{shown(file)} has two names: {' and '.join(sorted(named))}.", hint="keep one")
    try:
        return Connector(
            name=next(iter(named), name), class_=class_, config=settings, tasks_max=_tasks(config.get(TASKS_MAX))
        )
    except ConfigurationError as error:
        hint = "a secret is ${env:NAME} or ${file:/path:key}" if "as text" in error.message else error.hint
        raise ConfigurationError(f"{shown(file)}: {error.message}", hint=hint) from error


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_without_twins)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{shown(file)} cannot be read: {error}.", hint=_hint(file.stem)) from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{shown(file)} is no JSON object.", hint=_hint(file.stem))
    return document


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"'{name}' is there twice")
    return dict(pairs)


def _tasks(given: object) -> Any:
    """The number of tasks as `Connector` takes it; what is none is left to it to refuse."""
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def _hint(name: str) -> str:
    return f'{{"name": "{name}", "config": {{"{CLASS}": "...", ...}}}}, or the object of "config" alone'


def shown(file: Path) -> str:
    """A file of a connector, as people know it."""
    return f"jobs/{FOLDER}/{file.name}"


def _indented(error: ConfigurationError) -> str:
    return "\n".join(f"  {line}" for line in str(error).splitlines())
