"""A connector: its class, its settings, and where its secrets are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from deltaworks.connect import converters
from deltaworks.connect.chains import Transform, listed, settings_of
from deltaworks.connect.converters import Converter
from deltaworks.connect.secrets import FORMS, Reference, expression, holds_password, is_secret, refers
from deltaworks.connect.values import Value, is_text, is_value, text_of
from deltaworks.errors import ConfigurationError
from deltaworks.names import CONNECTOR
from deltaworks.topology.alerts import USUAL

OnDrift: TypeAlias = Literal["show", "repair"]
"""What happens when file and cluster differ: it is shown, or the file is applied."""
NAME, CLASS, TASKS_MAX = "name", "connector.class", "tasks.max"
VERSION = "connector.plugin.version"
"""The version of the plugin; workers know this setting since Kafka 4.1."""
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
        transforms: what happens to each record between connector and Kafka, in this order; see `Transform`.
        key_converter: how keys are bytes in Kafka: `json`, `json-with-schema`, `string`, `bytes`, or a class; None: as
            the workers do it.
        value_converter: likewise for values.
        plugin_version: the version of the plugin that the workers must have, such as `3.5.0.Final`, which is sent as
            `connector.plugin.version`; None: any.
        dead_letters_alert: of a sink with a topic of dead letters: this many within an hour are an incident; None:
            never. A connector as JSON has 1.

    `config` wins over what transforms and converters say.

    Raises:
        ConfigurationError: a name, value or reference cannot be used, transforms do not fit together, or a secret is
            written as text.
    """

    name: str
    class_: str
    config: Mapping[str, Value] = field(default_factory=dict)
    tasks_max: int | None = 1
    secrets: Mapping[str, Reference] = field(default_factory=dict)
    on_drift: OnDrift = "show"
    transforms: Sequence[Transform] = ()
    key_converter: Converter | None = None
    value_converter: Converter | None = None
    plugin_version: str | None = None
    dead_letters_alert: int | None = USUAL.dead_letters

    def __post_init__(self) -> None:
        if not is_text(self.name):
            raise ConfigurationError(f"name={self.name!r} is no text.", hint='Connector(name="orders_cdc", ...)')
        CONNECTOR.checked(self.name)
        if not is_text(self.class_):
            raise self._wrong("has no class", 'class_="io.debezium.connector.postgresql.PostgresConnector"')
        is_number = isinstance(self.tasks_max, int) and not isinstance(self.tasks_max, bool)
        if self.tasks_max is not None and not (is_number and self.tasks_max >= 1):
            raise self._wrong(f"has tasks_max={self.tasks_max!r}", "a whole number above 0")
        if self.on_drift not in get_args(OnDrift):
            raise self._wrong(f"has on_drift={self.on_drift!r}", f"one of {', '.join(get_args(OnDrift))}")
        if self.plugin_version is not None:
            self._check_version(self.plugin_version)
        letters = self.dead_letters_alert
        if letters is not None and (isinstance(letters, bool) or not isinstance(letters, int) or letters < 1):
            raise self._wrong(f"has dead_letters_alert={letters!r}", "a whole number from 1, or None for never")
        object.__setattr__(self, "transforms", listed(self.name, self.transforms))
        settings = self._settings()
        for setting, value in settings.items():
            self._check(setting, value)
        self._require_all_transforms()
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
        if self.plugin_version is not None:
            own[VERSION] = self.plugin_version
        plain = {setting: text_of(value) for setting, value in self._settings().items()}
        return own | plain | {setting: expression(each, setting) for setting, each in self.secrets.items()}

    def _settings(self) -> dict[str, Value]:
        """`config`, and of converters and transforms what it does not say itself."""
        added = converters.settings_of(self.name, self.key_converter, self.value_converter)
        added |= settings_of(self.name, self.transforms)
        return {**self.config, **{setting: value for setting, value in added.items() if setting not in self.config}}

    def _require_all_transforms(self) -> None:
        for kind in ("transforms", "predicates"):
            if kind not in self.config:
                continue
            own = str(settings_of(self.name, self.transforms).get(kind, ""))
            there = [each.strip() for each in str(self.config[kind]).split(",")]
            if missing := [each for each in own.split(",") if each and each not in there]:
                raise self._wrong(
                    f"has '{kind}' in config= without {', '.join(map(repr, missing))}, which it has as well",
                    f"leave '{kind}' out of config=, and write all of them in transforms=",
                )

    def _check_version(self, version: object) -> None:
        if not isinstance(version, str) or not is_text(version):
            raise self._wrong(f"has plugin_version={version!r}", 'text: plugin_version="3.5.0.Final"')
        if VERSION in self.config:
            raise self._wrong(f"has '{VERSION}' in config= and as plugin_version=", "leave it out of config=")

    def _check(self, setting: object, value: object) -> None:
        """Raises `ConfigurationError` if a setting cannot be sent, or is a secret. The error never has its value."""
        if not isinstance(setting, str) or not is_text(setting):
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
