"""Who may read which stores: clients with a token, and patterns of stores.

The file has the digests of tokens, never a token:

```toml
[clients.dashboard]
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
stores = ["orders/*", "clicks/click-count-store"]
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.errors import DeltaworksError
from deltaworks.names import Rule
from deltaworks.query_server import client_files
from deltaworks.query_server.client_files import NOBODY, Sha256, shown

_WHAT = "clients and their stores"
_PATTERN = Rule("a pattern of stores", re.compile(r"\*|[\w*-]+/[\w.*-]+"), "'pipeline/store', with * for anything")


class UnknownClientError(DeltaworksError):
    """A request without a token that we know."""


class ForbiddenError(DeltaworksError):
    """A client asks for what it may not read."""


class TooManyRequestsError(DeltaworksError):
    """A client asks more often than it may."""


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who may read."""

    sha256: Sha256
    """Digest of the token."""
    stores: tuple[str, ...]
    """Patterns of `pipeline/store`, with `*` for anything."""

    def may_see(self, pipeline: str) -> bool:
        """Whether one of the patterns may fit a store of the pipeline."""
        return any(fnmatchcase(pipeline, pattern.partition("/")[0]) for pattern in self.stores)

    def may_read(self, pipeline: str, store: str) -> bool:
        """Whether one of the patterns fits."""
        return any(fnmatchcase(f"{pipeline}/{store}", pattern) for pattern in self.stores)


ANYBODY = Client(sha256=NOBODY, stores=("*",))
"""Who asks a server without clients, which only this machine reaches."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clients: dict[str, Client] = {}


@dataclass
class Access:
    """The clients of a server, and how often each of them may ask.

    Attributes:
        clients: by name; None: anybody may read everything.
        rate: requests per second of a client, on average over a second; None: any number.
    """

    clients: Mapping[str, Client] | None = None
    rate: float | None = None
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Client -> the requests that it may make at once, and since when."""

    def __post_init__(self) -> None:
        self._by_digest = {client.sha256: name for name, client in (self.clients or {}).items()}

    def client(self, authorization: str | None) -> Client:
        """Who sends a request.

        Args:
            authorization: the header of this name, `Bearer <token>`.

        Raises:
            UnknownClientError: nobody whom we know.
            TooManyRequestsError: it asks too often.
        """
        if self.clients is None:
            self._count("")
            return ANYBODY
        name = self._by_digest.get(shown(authorization) or "")
        if name is None:
            raise UnknownClientError(
                "This server answers clients with a token that it knows.", hint="Authorization: Bearer <token>"
            )
        self._count(name)
        return self.clients[name]

    def _count(self, name: str) -> None:
        if self.rate is None:
            return
        now_s, most = clock.ticks_s(), max(1.0, self.rate)
        left, since_s = self._left.get(name, (most, now_s))
        left = min(most, left + (now_s - since_s) * self.rate)
        self._left[name] = max(0.0, left - 1), now_s
        if left < 1:
            raise TooManyRequestsError(f"A client of this server may send {self.rate:g} requests per second.")


def require(client: Client, pipeline: str, store: str) -> None:
    """
    Raises:
        ForbiddenError: the client may not read this store, whether there is one or not.
    """
    if not client.may_read(pipeline, store):
        raise ForbiddenError(
            f"This token may not read {pipeline}/{store}.", hint="the access file of the server says what it may read"
        )


def read(file: Path) -> dict[str, Client]:
    """The clients of a file.

    Raises:
        ConfigurationError: it cannot be read, or others may write to it.
    """
    return client_files.read(file, _File, _WHAT).clients


def add_client(file: Path, name: str, stores: tuple[str, ...]) -> str:
    """Makes a token for a client and notes its digest; returns the token, which is nowhere else.

    Args:
        file: made if it does not exist, for its owner only.
        name: of the client.
        stores: patterns of `pipeline/store`.

    Raises:
        ConfigurationError: the client is there already, or something is no name or no pattern.
    """
    for pattern in stores:
        _PATTERN.checked(pattern)
    return client_files.add(file, name, {"stores": stores}, _File, _WHAT)
