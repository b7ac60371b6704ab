"""The project's `deltaworks.toml`: settings that hold for everybody, and what differs in an environment.

```toml
environment = "dev"                          # which one holds unless DELTAWORKS_ENVIRONMENT says otherwise
cores = 2

[environments.prod]
bootstrap = "kafka-1:9092,kafka-2:9092"
control_url = { file = "/run/secrets/registry" }
```

Keys are those of `KEYS`. An environment variable wins over the file, and an environment of the file over what holds for
all. A secret is a reference, `{ env = "NAME" }`, `{ file = "path" }` or `{ command = ["program", "argument"] }`: it is
read where it is needed, and never handed on as text.
"""

from __future__ import annotations

import difflib
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from deltaworks.errors import ConfigurationError

FILE = "deltaworks.toml"
ENVIRONMENT = "DELTAWORKS_ENVIRONMENT"
_PATHS = frozenset({"home", "cache", "postgres_bin", "java_home", "ivy_settings"})
KEYS: Mapping[str, str] = {
    "postgres_bin": "POSTGRES_BIN",
    "java_home": "JAVA_HOME",
    "https_proxy": "HTTPS_PROXY",
} | {
    key: f"DELTAWORKS_{key.upper()}"
    for key in (
        *("home", "cache", "bootstrap", "controller_port", "postgres_port", "airflow_port", "supervisor_host"),
        *("control_url", "broker_options", "ivy_settings", "cores", "driver_memory", "max_records_per_batch"),
        *("max_bytes_per_batch", "query_memory_mb", "query_seconds", "start_offsets", "run_from"),
    )
}
"""Key of a setting in the file -> its environment variable. The names of the keys are those of `Settings`."""
_REFERENCE = '{ env = "NAME" }, { file = "path" } or { command = ["program", "argument"] }'
_COMMAND_S = 30


@dataclass(frozen=True)
class Found:
    """A value, and where it is from."""

    text: str = field(repr=False)
    origin: str
    """The variable, or the key and its file."""
    by_reference: bool = False


@dataclass(frozen=True)
class Values:
    """What environment variables and the file say, the variables first."""

    variables: Mapping[str, str] = field(repr=False)
    of_file: Mapping[str, Found] = field(default_factory=dict)
    """By the name of their variable."""
    environment: str | None = None
    """The environment of the file that holds."""
    passed_on: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables to which the file refers."""

    def get(self, name: str) -> str | None:
        """The value of a variable; None: neither says anything."""
        return self.variables.get(name) or (self.of_file[name].text if name in self.of_file else None)

    def origin(self, name: str) -> str | None:
        """Where the value is from; None: there is none, so the default holds."""
        if self.variables.get(name):
            return name
        return self.of_file[name].origin if name in self.of_file else None

    def shown(self, name: str) -> str:
        """The value for an error text; a secret is masked."""
        return "***" if self.is_reference(name) else repr(self.get(name))

    def is_reference(self, name: str) -> bool:
        """Whether the value was read from where the file refers to."""
        return not self.variables.get(name) and name in self.of_file and self.of_file[name].by_reference


def read(project: Path, variables: Mapping[str, str]) -> Values:
    """The values that hold in a project.

    Raises:
        ConfigurationError: the file cannot be used, has no such environment, or refers to what cannot be read.
    """
    file = project / FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if wanted := variables.get(ENVIRONMENT):
            raise ConfigurationError(
                f"{ENVIRONMENT} is '{wanted}', but there is no {file} that says what it is.",
                hint=f"write [environments.{wanted}] into it, or leave {ENVIRONMENT} unset",
            ) from None
        return Values(variables)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.") from error
    environments = _table(document.pop("environments", {}), "environments", file)
    default = document.pop("environment", None)
    chosen = None if default is None and not variables.get(ENVIRONMENT) else variables.get(ENVIRONMENT) or str(default)
    if chosen is not None and chosen not in environments:
        known = ", ".join(environments) or "none"
        raise ConfigurationError(
            f"There is no environment {chosen!r} in {file}.", hint=f"its environments: {known}; see {ENVIRONMENT}"
        )
    for name, each in environments.items():
        _check(_table(each, f"environments.{name}", file), f"environments.{name}.", file)
    _check(document, "", file)
    layers = [("", document), (f"environments.{chosen}.", environments.get(chosen or "", {}))]
    given = {key: (f"{prefix}{key}", value) for prefix, layer in layers for key, value in layer.items()}
    passed_on: dict[str, str] = {}
    found = {
        KEYS[key]: _found(key, name, value, file, variables, passed_on)
        for key, (name, value) in given.items()
        if not variables.get(KEYS[key])  # what does not hold need not be there
    }
    return Values(variables, found, chosen, passed_on)


def _table(value: object, name: str, file: Path) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ConfigurationError(f"{name} in {file} is not a table.", hint=f"write [{name}]")


def _check(layer: Mapping[str, Any], prefix: str, file: Path) -> None:
    for key in layer:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            raise ConfigurationError(
                f"{file} has the key '{prefix}{key}', which is no setting.",
                hint=f"did you mean '{near[0]}'?" if near else f"settings: {', '.join(sorted(KEYS))}",
            )


def _found(
    key: str, name: str, value: object, file: Path, variables: Mapping[str, str], passed_on: dict[str, str]
) -> Found:
    origin = f"{name} in {file}"
    if isinstance(value, dict):
        return Found(_referred(value, origin, file.parent, variables, passed_on), origin, by_reference=True)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return Found(" ".join(value), origin)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigurationError(f"{origin} is {value!r}; expected text, a whole number or {_REFERENCE}.")
    if key in _PATHS:
        return Found(str(file.parent / Path(str(value)).expanduser()), origin)
    return Found(str(value), origin)


def _referred(
    reference: Mapping[str, Any],
    origin: str,
    folder: Path,
    variables: Mapping[str, str],
    passed_on: dict[str, str],
) -> str:
    match reference:
        case {"env": str(variable), **others} if not others:
            if not variables.get(variable):
                raise ConfigurationError(f"{origin} refers to the variable {variable}, which is not set.")
            passed_on[variable] = variables[variable]
            return variables[variable]
        case {"file": str(path), **others} if not others:
            try:
                return (folder / Path(path).expanduser()).read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{origin} refers to a file that cannot be read: {error}.") from None
        case {"command": [*words], **others} if not others and words and all(isinstance(word, str) for word in words):
            return _output(tuple(words), origin, folder)
    raise ConfigurationError(f"{origin} is no reference.", hint=f"a reference is {_REFERENCE}")


@lru_cache(maxsize=32)
def _output(command: tuple[str, ...], origin: str, folder: Path) -> str:
    """What a command prints; it runs once per process. Nothing that it prints is ever shown."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{origin} refers to the command '{command[0]}', which failed: {type(error).__name__}."
        ) from None
    if done.returncode != 0:
        raise ConfigurationError(
            f"{origin} refers to the command '{command[0]}', which ended with exit code {done.returncode}."
        )
    return done.stdout.rstrip("\n")
