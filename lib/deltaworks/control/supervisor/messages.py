"""The questions to a supervisor and its answers: one line of JSON each way, one question per connection."""

from __future__ import annotations

import hashlib
import socket
from typing import Any, Literal

import msgspec

from deltaworks.control.model import Overview
from deltaworks.processes import Registered
from deltaworks.settings import Settings

LIMIT_BYTES = 1_000_000
"""Maximum length of a question or answer."""
About = Literal["status", "suspended", "request_stop", "kill"]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Are you there?"""


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """Start a driver and register it, like `processes.launch`."""

    name: str
    kind: str
    command: tuple[str, ...]
    log: str
    environment: dict[str, str]


class AskAbout(msgspec.Struct, frozen=True, tag="about"):
    """Call a method of `control.launchers.base` for a driver on the supervisor's machine."""

    what: About
    driver: dict[str, Any]


class AskForOverview(msgspec.Struct, frozen=True, kw_only=True, tag="overview"):
    """Give `control.overview` of the streams: the supervisor watches them anyway and is connected to the registry."""

    pipeline: str | None
    registry: str
    """See `digest_of_registry`; a supervisor with another registry cannot answer."""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """End; drivers keep running."""


Question = Hello | Launch | AskAbout | AskForOverview | Leave


class Envelope(msgspec.Struct, frozen=True):
    """A question with the token that permits it."""

    token: str
    question: Question


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The answer if the request was carried out."""

    started: Registered | None = None
    fact: str | bool | None = None
    overview: Overview | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The answer if the request was refused."""

    message: str
    hint: str | None = None


Answer = Done | Refused


def digest_of_registry(settings: Settings) -> str:
    """Identifies the registry of the settings, without its password."""
    return hashlib.sha256(settings.registry_url.encode()).hexdigest()


def send(connection: socket.socket, message: Envelope | Answer) -> None:
    """Writes one line."""
    connection.sendall(msgspec.json.encode(message) + b"\n")


def receive(connection: socket.socket) -> bytes:
    """Reads one line.

    Raises:
        OSError: the other side is silent or gone, or sends too much.
    """
    with connection.makefile("rb") as lines:
        line = lines.readline(LIMIT_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionError(f"the connection ended after {len(line)} bytes of a message")
    return line
