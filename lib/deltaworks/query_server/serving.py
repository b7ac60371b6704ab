"""Runs the server until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltaworks.query_server import access, listening
from deltaworks.query_server.app import application
from deltaworks.query_server.streams import Streams
from deltaworks.settings import Settings

PATIENCE_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where and for whom it serves."""

    host: str = "127.0.0.1"
    port: int = 19200
    """0: any free one."""
    access_file: Path | None = None
    """Clients and what they may read, see `access`; None: anybody on this machine, everything."""
    certificate: Path | None = None
    """With its chain, in PEM; None: no TLS."""
    key: Path | None = None
    """Of the certificate."""
    rate: float | None = None
    """Requests per second and client; None: any number."""

    def __post_init__(self) -> None:
        """
        Raises:
            ConfigurationError: others would reach it without a token, or read along.
        """
        self.place.require_safe(tokens=self.access_file is not None)

    @property
    def place(self) -> listening.Place:
        """Where it listens."""
        return listening.Place(self.host, self.port, self.certificate, self.key)


def serve(settings: Settings, options: Options, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        settings: of the project whose streams are read.
        options: where and for whom.
        ready: gets the URL when requests are taken.

    Raises:
        ConfigurationError: the address is in use, or a file cannot be read.
    """
    clients = None if options.access_file is None else access.read(options.access_file)
    app = application(Streams.of(settings, patience_s=PATIENCE_S), access.Access(clients, options.rate))
    listening.run(app, options.place, ready)
