"""Where a server of ours listens, and who could reach it there: loopback, or tokens and TLS."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from deltaworks.errors import ConfigurationError


@dataclass(frozen=True)
class Place:
    """An address, and the certificate that is shown there."""

    host: str
    port: int
    """0: any free one."""
    certificate: Path | None
    """With its chain, in PEM; None: no TLS."""
    key: Path | None
    """Of the certificate."""

    def require_safe(self, *, tokens: bool) -> None:
        """
        Args:
            tokens: whether everybody has to show one.

        Raises:
            ConfigurationError: others would reach the server without a token, or read along.
        """
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("A certificate needs its key, and a key its certificate.")
        if not self.is_loopback and (not tokens or self.certificate is None):
            raise ConfigurationError(
                f"Other machines reach {self.host}: it needs tokens and TLS.",
                hint="give --access, --certificate and --key, or serve at 127.0.0.1",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def run(app: ASGIApp, place: Place, ready: Callable[[str], None]) -> None:
    """Serves an application until SIGTERM or SIGINT.

    Args:
        app: what answers.
        place: where.
        ready: gets the URL when requests are taken.

    Raises:
        ConfigurationError: the address is in use, or a file cannot be read.
    """
    with _bound(place) as listener:
        try:
            config = uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2,
                ssl_certfile=place.certificate, ssl_keyfile=place.key,
            )  # fmt: skip
            config.load()
        except OSError as error:
            raise ConfigurationError(f"The certificate cannot be used: {error}.") from error
        host, port = listener.getsockname()[:2]
        scheme = "http" if place.certificate is None else "https"
        listener.listen()  # who connects from now on waits for the server
        ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        uvicorn.Server(config).run([listener])


def _bound(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        return socket.create_server((place.host, place.port), backlog=2048, family=family)
    except OSError as error:
        raise ConfigurationError(
            f"{place.host}:{place.port} cannot be used: {error}.", hint="choose another one with --port"
        ) from error
