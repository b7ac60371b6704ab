"""A connector: its class, its settings, and where its secrets are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from deltaworks.connect.secrets import FORMS, Reference, expression, holds_password, is_secret, refers
from deltaworks.errors import ConfigurationError
from deltaworks.names import CONNECTOR

Value: TypeAlias = str | int | float | bool
"""Of a setting. Connect has texts only: `True` is sent as `true`, 1.5 as `1.5`."""
OnDrift: TypeAlias = Literal["show", "repair"]
"""What happens when file and cluster differ: it is shown, or the file is applied."""
NAME, CLASS, TASKS_MAX = "name", "connector.class", "tasks.max"
_ARGUMENTS = {NAME: "name=", CLASS: "class_=", TASKS_MAX: "tasks_max="}


@dataclass(frozen=True, kw_only=True)
class Connector:
    """A connector of Kafka Connect, as the file `jobs/connectors/NAME.py` has it.

    ```
    connector = Connector(
        name="orders_cdc",
        class_="io.debezium.connector.postgresql.PostgresConnector",
        config={"database.hostname": "db.example.com", "database.port": 5432, "topic.prefix": "shop"},
        secrets={"database.password": {"env": "CDC_PASSWORD"}},
    )
    ```

    Args:
        name: of the connector and of its file: letters, digits, `_` and `-`.
        class_: the connector's class, in full or as Connect shortens it.
        config: setting -> its value, all but name, class, number of tasks and secrets.
        tasks_max: how many tasks at most; None: nothing is sent, so Connect takes 1.
        secrets: setting -> where its secret is, on the workers, which follow the reference; Connect gets no more than
            that: `{"env": "NAME"}`, `{"file": "/path", "key": "name"}` of a file of properties, `{"directory":
            "/folder", "key": "file"}`, `{"provider": "vault", "path": "db/shop", "key": "password"}` of any other
            config provider, or `"${...}"`.
        on_drift: what `streams__reconcile` does when the connector in the cluster is not as the file says: `show`
            tells people, `repair` applies the file once it passes all checks. A connector as JSON has `show`.

    Raises:
        ConfigurationError: a name, value or reference cannot be used, or a secret is written as text.
    """

    name: str
    class_: str
    config: Mapping[str, Value] = field(default_factory=dict)
    tasks_max: int | None = 1
    secrets: Mapping[str, Reference] = field(default_factory=dict)
    on_drift: OnDrift = "show"

    def __post_init__(self) -> None:
        if not _is_text(self.name):
            raise ConfigurationError(f"name={self.name!r} is no text.", hint='Connector(name="orders_cdc", ...)')
        CONNECTOR.checked(self.name)
        if not _is_text(self.class_):
            raise self._wrong("has no class", 'class_="io.debezium.connector.postgresql.PostgresConnector"')
        is_number = isinstance(self.tasks_max, int) and not isinstance(self.tasks_max, bool)
        if self.tasks_max is not None and not (is_number and self.tasks_max >= 1):
            raise self._wrong(f"has tasks_max={self.tasks_max!r}", "a whole number above 0")
        if self.on_drift not in get_args(OnDrift):
            raise self._wrong(f"has on_drift={self.on_drift!r}", f"one of {', '.join(get_args(OnDrift))}")
        for setting, value in self.config.items():
            self._check(setting, value)
        for setting, reference in self.secrets.items():
            if setting in self.config:
                raise self._wrong(f"has '{setting}' in config= and in secrets=", "leave it out of config=")
            expression(reference, f"connector '{self.name}': secrets[{setting!r}]")
        object.__setattr__(self, "config", MappingProxyType(dict(self.config)))
        object.__setattr__(self, "secrets", MappingProxyType(dict(self.secrets)))

    @property
    def properties(self) -> dict[str, str]:
        """All settings as Connect gets them, by name: texts, with references for secrets."""
        own = {NAME: self.name, CLASS: self.class_}
        if self.tasks_max is not None:
            own[TASKS_MAX] = str(self.tasks_max)
        plain = {setting: text_of(value) for setting, value in self.config.items()}
        return own | plain | {setting: expression(each, setting) for setting, each in self.secrets.items()}

    def _check(self, setting: object, value: object) -> None:
        """Raises `ConfigurationError` if a setting cannot be sent, or is a secret. The error never has its value."""
        if not isinstance(setting, str) or not _is_text(setting):
            raise self._wrong(f"has a setting {setting!r}", "settings are named by texts")
        if setting in _ARGUMENTS:
            raise self._wrong(f"has '{setting}' in its settings", f"{_ARGUMENTS[setting]} is for it")
        if not is_value(value):
            kind = "null" if value is None else type(value).__name__
            hint = "one text, separated by commas" if isinstance(value, list | tuple | set) else "leave it out, or text"
            raise self._wrong(f"has '{setting}' of type {kind}; expected text, a number or a bool", hint)
        if is_secret(setting) and value != "" and not (isinstance(value, str) and refers(value)):
            raise self._wrong(f"has the secret '{setting}' as text", f"secrets={{{setting!r}: ...}}; one is {FORMS}")
        if isinstance(value, str) and holds_password(value):
            raise self._wrong(
                f"has a password in '{setting}'", "write ${env:NAME} or ${file:/path:key} there, or a setting for it"
            )

    def _wrong(self, what: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"Connector '{self.name}' {what}.", hint=hint)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def is_value(value: object) -> bool:
    """Whether Connect can have it as the value of a setting."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def text_of(value: Value) -> str:
    """A value as Connect gets it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
