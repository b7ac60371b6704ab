"""Who may see what on the page: viewers and operators, with tokens.

Viewers see states and numbers. Texts that may quote a record (why a stream failed, its log, what a dead letter says)
and who has asked for what are for operators. Nobody sees payloads of records or secrets here: the page has none.

The file has the digests of tokens, never a token:

```toml
[clients.wall-screen]
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
role = "viewer"
pipelines = ["orders", "click*"]
```
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

import msgspec

from deltaworks.errors import ConfigurationError
from deltaworks.names import Rule
from deltaworks.query_server import client_files
from deltaworks.query_server.access import ForbiddenError, UnknownClientError
from deltaworks.query_server.client_files import NOBODY, Sha256, digest, new_token, shown

Role = Literal["viewer", "operator"]
_WHAT = "clients of the page"
_PATTERN = Rule("a pattern of pipelines", re.compile(r"[\w*-]+"), "the name of one, with * for anything")


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who may look."""

    sha256: Sha256
    """Digest of the token."""
    role: Role
    pipelines: tuple[str, ...] = ("*",)
    """Patterns of names, with `*` for anything."""
    connectors: tuple[str, ...] | None = None
    """Likewise of connectors, which may have the name of a pipeline; None: those of pipelines."""

    def may_see(self, pipeline: str) -> bool:
        """Whether one of the patterns fits."""
        return any(fnmatchcase(pipeline, pattern) for pattern in self.pipelines)

    def may_see_connector(self, name: str) -> bool:
        """Likewise of a connector."""
        patterns = self.pipelines if self.connectors is None else self.connectors
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    @property
    def operates(self) -> bool:
        """Whether it may read texts that may quote records."""
        return self.role == "operator"

    @property
    def sees_all(self) -> bool:
        """Whether it may see what is of the whole home."""
        return "*" in self.pipelines


ANYBODY = Client(sha256=NOBODY, role="viewer")
"""Who asks a server without a file of clients, which only this machine reaches, and shows no token."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clients: dict[str, Client] = {}


@dataclass(frozen=True)
class Access:
    """The clients of a server.

    Attributes:
        clients: by name.
        open_to_viewers: whether somebody without a token is a viewer; else they are sent away.
    """

    clients: Mapping[str, Client]
    open_to_viewers: bool

    @classmethod
    def for_this_machine(cls) -> tuple[Access, str]:
        """Anybody is a viewer, and who has the token that comes with it an operator."""
        token = new_token()
        return cls({"operator": Client(sha256=digest(token), role="operator")}, open_to_viewers=True), token

    def client(self, authorization: str | None) -> Client:
        """Who sends a request.

        Args:
            authorization: the header of this name, `Bearer <token>`.

        Raises:
            UnknownClientError: a token that nobody has, or none, and there have to be tokens.
        """
        if authorization is None and self.open_to_viewers:
            return ANYBODY
        of_token = shown(authorization) or ""
        for client in self.clients.values():
            if secrets.compare_digest(client.sha256, of_token):
                return client
        hint = (
            "open the address that `deltaworks ui` has printed; its token is new each time the server starts"
            if self.open_to_viewers
            else "open the address that was given to you, or ask whoever runs the page for a token"
        )
        raise UnknownClientError(
            "This page is for people with a token."
            if authorization is None
            else "The server of this page does not know this token.",
            hint=hint,
        )


def require(client: Client, pipeline: str) -> None:
    """
    Raises:
        ForbiddenError: the client may not see this pipeline, whether there is one or not.
    """
    if not client.may_see(pipeline):
        raise ForbiddenError(
            f"This token may not see {pipeline}.", hint="the access file of the server says what it may see"
        )


def read(file: Path) -> Access:
    """The clients of a file.

    Raises:
        ConfigurationError: it cannot be read, or others may write to it.
    """
    return Access(client_files.read(file, _File, _WHAT).clients, open_to_viewers=False)


def add_client(file: Path, name: str, role: str, pipelines: tuple[str, ...]) -> str:
    """Makes a token for a client and notes its digest; returns the token, which is nowhere else.

    Args:
        file: made if it does not exist, for its owner only.
        name: of the client.
        role: `viewer` or `operator`.
        pipelines: patterns of what it may see.

    Raises:
        ConfigurationError: the client is there already, or something is no name, role or pattern.
    """
    if role not in get_args(Role):
        raise ConfigurationError(f"{role!r} is no role.", hint=" or ".join(get_args(Role)))
    for pattern in pipelines:
        _PATTERN.checked(pattern)
    return client_files.add(file, name, {"role": role, "pipelines": pipelines}, _File, _WHAT)
