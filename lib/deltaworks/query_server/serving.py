"""Runs the server until it is stopped."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from deltaworks.errors import ConfigurationError
from deltaworks.query_server import access
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
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("A certificate needs its key, and a key its certificate.")
        if not _is_loopback(self.host) and (self.access_file is None or self.certificate is None):
            raise ConfigurationError(
                f"Other machines reach {self.host}: it needs tokens and TLS.",
                hint="give --access, --certificate and --key, or serve at 127.0.0.1",
            )


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
    with _bound(options) as listener:
        try:
            config = uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2,
                ssl_certfile=options.certificate, ssl_keyfile=options.key,
            )  # fmt: skip
            config.load()
        except OSError as error:
            raise ConfigurationError(f"The certificate cannot be used: {error}.") from error
        host, port = listener.getsockname()[:2]
        scheme = "http" if options.certificate is None else "https"
        listener.listen()  # who connects from now on waits for the server
        ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        uvicorn.Server(config).run([listener])


def _bound(options: Options) -> socket.socket:
    try:
        return socket.create_server((options.host, options.port), backlog=2048, family=_family(options.host))
    except OSError as error:
        raise ConfigurationError(
            f"{options.host}:{options.port} cannot be used: {error}.", hint="choose another one with --port"
        ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
