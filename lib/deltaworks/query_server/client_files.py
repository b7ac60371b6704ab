"""Files of clients: names, digests of their tokens, and what they may do. They never have a token."""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec

from deltaworks.errors import ConfigurationError
from deltaworks.files import replace_file
from deltaworks.names import PIPELINE, Rule

Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
NOBODY = 64 * "0"
"""The digest of no token."""
_BYTES = 32
_CLIENT = Rule("the name of a client", PIPELINE.pattern, PIPELINE.valid)


class _Client(Protocol):
    @property
    def sha256(self) -> str: ...


class _File(Protocol):
    @property
    def clients(self) -> Mapping[str, _Client]: ...


F = TypeVar("F", bound=_File)


def new_token() -> str:
    """A token that nobody has."""
    return secrets.token_urlsafe(_BYTES)


def digest(token: str) -> str:
    """What a file has of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def shown(authorization: str | None) -> str | None:
    """The digest of the token in a header `Authorization`; None: it has none."""
    scheme, _, token = (authorization or "").partition(" ")
    return digest(token.strip()) if scheme.lower() == "bearer" else None


def read(file: Path, kind: type[F], what: str) -> F:
    """A file of clients.

    Args:
        file: TOML.
        kind: what it is read as.
        what: is in it, for the error.

    Raises:
        ConfigurationError: it cannot be read, or others may write to it.
    """
    try:
        if file.stat().st_mode & 0o022:
            raise ConfigurationError(f"Others may write to {file}.", hint=f"chmod 600 {file}")
        found = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), kind)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{file} cannot be read as {what}: {error}.") from error
    if len({client.sha256 for client in found.clients.values()}) < len(found.clients):
        raise ConfigurationError(f"Two clients of {file} have the same token.", hint="make one for each")
    return found


def add(file: Path, name: str, rights: Mapping[str, object], kind: type[_File], what: str) -> str:
    """Makes a token for a client and notes its digest; returns the token, which is nowhere else.

    Args:
        file: made if it does not exist, for its owner only.
        name: of the client.
        rights: its other fields.
        kind: what the file is read as.
        what: is in it, for the error.

    Raises:
        ConfigurationError: it is no name, the client is there already, or the file cannot be read.
    """
    _CLIENT.checked(name)
    if file.exists() and name in read(file, kind, what).clients:
        raise ConfigurationError(f"{file} has a client {name!r} already.", hint="remove it first: then its token ends")
    token = new_token()
    fields = {"sha256": digest(token), **rights}
    lines = (f"[clients.{name}]", *(f"{field} = {json.dumps(value)}" for field, value in fields.items()), "")
    before = file.read_text(encoding="utf-8").rstrip("\n") + "\n\n" if file.exists() else ""
    replace_file(file, (before + "\n".join(lines)).encode(), mode=0o600, durable=True)
    return token
