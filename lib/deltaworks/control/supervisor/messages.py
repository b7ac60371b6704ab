"""What a supervisor is asked and what it answers: one line of JSON each way, one question per connection."""

from __future__ import annotations

import hashlib
import socket
from typing import Any, Literal

import msgspec

from deltaworks.control.model import Overview
from deltaworks.processes import Registered
from deltaworks.settings import Settings

LIMIT_BYTES = 1_000_000
"""No question and no answer is longer."""
About = Literal["status", "suspended", "request_stop", "kill"]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Are you there?"""


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """Start a driver and register it; as `processes.launch` does."""

    name: str
    kind: str
    command: tuple[str, ...]
    log: str
    environment: dict[str, str]


class AskAbout(msgspec.Struct, frozen=True, tag="about"):
    """Asks or tells a driver of the supervisor's machine something, see `control.launchers.base`."""

    what: About
    driver: dict[str, Any]


class AskForOverview(msgspec.Struct, frozen=True, kw_only=True, tag="overview"):
    """Asks how the streams are, see `control.overview`: it has looked at them all along, and is connected."""

    pipeline: str | None
    registry: str
    """See `digest_of_registry`; one that has another cannot answer."""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """End; drivers go on."""


Question = Hello | Launch | AskAbout | AskForOverview | Leave


class Envelope(msgspec.Struct, frozen=True):
    """A question, and the right to ask it."""

    token: str
    question: Question


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It was done."""

    started: Registered | None = None
    fact: str | bool | None = None
    overview: Overview | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It was not done."""

    message: str
    hint: str | None = None


Answer = Done | Refused


def digest_of_registry(settings: Settings) -> str:
    """Which registry they mean, without its password."""
    return hashlib.sha256(settings.registry_url.encode()).hexdigest()


def send(connection: socket.socket, message: Envelope | Answer) -> None:
    """Writes one line."""
    connection.sendall(msgspec.json.encode(message) + b"\n")


def receive(connection: socket.socket) -> bytes:
    """Reads one line.

    Raises:
        OSError: the other side is silent, gone, or says too much.
    """
    with connection.makefile("rb") as lines:
        line = lines.readline(LIMIT_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionError(f"the connection ended after {len(line)} bytes of a message")
    return line
