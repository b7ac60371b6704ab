"""Secrets of connectors: how they are referred to, which settings are secret, and what is not shown of a text.

A worker follows references by its config providers (`config.providers`): `${env:NAME}`, `${file:/path:key}`,
`${directory:/folder:file}`. Connect keeps, sends and shows the reference, never what it refers to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from deltaworks.errors import ConfigurationError

Reference: TypeAlias = str | Mapping[str, str]
"""`{"env": "NAME"}`, `{"file": "/path", "key": "name"}`, `{"directory": "/folder", "key": "file"}`,
`{"provider": "vault", "path": "db/shop", "key": "password"}` for any other provider of the workers, or `"${...}"`."""
MASK = "***"
FORMS = (
    '{"env": "NAME"}, {"file": "/path/of.properties", "key": "name"}, {"directory": "/folder", "key": "file"}, '
    '{"provider": "vault", "path": "...", "key": "..."} or "${provider:path:key}"'
)
_EXPRESSION = re.compile(r"\$\{[^}:]+:[^}]*\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER = re.compile(r"[A-Za-z0-9_-]+")
_PART = re.compile(r"[^:}]*")
_KEY = re.compile(r"[^}]+")
_SECRET = re.compile(
    r"(?:^|[._-])(?:password|passwd|passphrase|secret|credentials?|token|api[._-]?key|jaas[._-]config|user[._-]info"
    r"|(?:secret|private|account|sas|keystore)[._-]key|secret[._-]access[._-]key)$",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_IN_PARAMETER = re.compile(r"([?&;](?:\w*password|pwd|passphrase)=)[^&;\s]+", re.IGNORECASE)
_INVALID = re.compile(r"(Invalid value ).*( for configuration )", re.DOTALL)
"""How Kafka says that a value does not fit, whatever it is and wherever it is from."""
_ASSIGNED = re.compile(
    r"""((?:password|passwd|pwd|passphrase|secret|token|api[._-]?key)["']?\s*[=:]\s*)"""
    r"""(?!\$\{)("[^"]*"|'[^']*'|[^\s,;&"'}]+)""",
    re.IGNORECASE,
)


def expression(reference: object, origin: str) -> str:
    """A reference as Connect writes it, such as `${env:CDC_PASSWORD}`.

    Args:
        reference: see `Reference`.
        origin: the connector and the setting, for the error, which never has the reference itself: it may be a secret.

    Raises:
        ConfigurationError: it is none.
    """
    found: str | None = None
    match reference:
        case str():
            found = reference if is_reference(reference) else None
        case Mapping():
            if "airflow" in reference:
                raise ConfigurationError(
                    f"{origin} is in a connection of Airflow, which the workers of Kafka Connect cannot read.",
                    hint="let the workers read it where Airflow does, or give it to them: a reference is " + FORMS,
                )
            found = _written({**reference})
    if found is None:
        raise ConfigurationError(f"{origin} is no reference.", hint=f"a reference is {FORMS}")
    return found


def _written(given: dict[object, object]) -> str | None:
    if not all(isinstance(each, str) for each in given.values()):
        return None
    texts = {str(name): str(each) for name, each in given.items()}
    match texts:
        case {"env": name} if len(texts) == 1 and _VARIABLE.fullmatch(name):
            return f"${{env:{name}}}"
        case {"file": path, "key": key} if len(texts) == 2 and path.startswith("/"):
            return _of_provider("file", path, key)
        case {"directory": path, "key": key} if len(texts) == 2 and path.startswith("/"):
            return _of_provider("directory", path, key)
        case {"provider": provider, "path": path, "key": key} if len(texts) == 3 and _PROVIDER.fullmatch(provider):
            return _of_provider(provider, path, key)
    return None


def _of_provider(provider: str, path: str, key: str) -> str | None:
    if not _PART.fullmatch(path) or not _KEY.fullmatch(key):
        return None
    return f"${{{provider}:{path}:{key}}}"


def is_reference(value: str) -> bool:
    """Whether a value is one reference and nothing else."""
    return _EXPRESSION.fullmatch(value) is not None


def refers(value: str) -> bool:
    """Whether a value has a reference in it."""
    return _EXPRESSION.search(value) is not None


def is_secret(setting: str) -> bool:
    """Whether the value of a setting is a secret, by its name."""
    return _SECRET.search(setting) is not None


def holds_password(value: str) -> bool:
    """Whether an address has a password in it that is no reference."""
    rest = _EXPRESSION.sub("", value)
    return _IN_ADDRESS.search(rest) is not None or _IN_PARAMETER.search(rest) is not None


def shown(setting: str, value: str | None, secret: bool = False) -> str | None:
    """The value of a setting as people may see it; references are shown.

    Args:
        setting: its name.
        value: as Connect has it.
        secret: it is a secret, whatever it is called.
    """
    if value is None or is_reference(value) or value == "":
        return value
    return MASK if secret or is_secret(setting) else masked(value)


def masked_values(text: str) -> str:
    """As `masked`, and without values of settings, which references may have led to."""
    return masked(_INVALID.sub(rf"\1{MASK}\2", text))


def masked(text: str) -> str:
    """A text, such as an error of a worker, without what looks like a password in it."""
    text = _IN_ADDRESS.sub(rf"\1:{MASK}@", text)
    return _ASSIGNED.sub(rf"\g<1>{MASK}", text)
