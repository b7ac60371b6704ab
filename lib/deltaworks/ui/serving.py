"""Runs the server of the page until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.query_server import listening
from deltaworks.settings import Settings
from deltaworks.ui import access
from deltaworks.ui.access import Access
from deltaworks.ui.app import Place, application, by_token
from deltaworks.ui.history import Watch
from deltaworks.ui.reading import Reader

PORT = 19300
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where and for whom it serves."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0: any free one."""
    access_file: Path | None = None
    """Clients and what they may see, see `access`; None: anybody on this machine is a viewer."""
    certificate: Path | None = None
    """With its chain, in PEM; None: no TLS."""
    key: Path | None = None
    """Of the certificate."""
    airflow: str | None = None
    """Address of Airflow, as browsers reach it; None: that of the stack."""

    def __post_init__(self) -> None:
        """
        Raises:
            ConfigurationError: others would reach it without a token, or read along; or an address is none.
        """
        self.place.require_safe(tokens=self.access_file is not None)
        if self.airflow and not self.airflow.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{self.airflow!r} is no address of Airflow.", hint="--airflow https://airflow.example.org"
            )

    @property
    def place(self) -> listening.Place:
        """Where it listens."""
        return listening.Place(self.host, self.port, self.certificate, self.key)


def serve(settings: Settings, options: Options, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        settings: of the home that is shown.
        options: where and for whom.
        ready: gets the URL when requests are taken; without a file of clients, it has the token of an operator.

    Raises:
        ConfigurationError: the address is in use, or a file cannot be read.
    """
    if options.access_file is None:
        allowed, token = Access.for_this_machine()
        suffix = f"/#token={token}"
    else:
        allowed, suffix = access.read(options.access_file), "/"
    watch = Watch(settings)
    airflow = f"http://127.0.0.1:{settings.airflow_port}" if options.airflow is None else options.airflow
    place = Place(
        airflow=airflow.rstrip("/") or None,
        docs=settings.docs_url,
        hosts=(*_LOOPBACK, options.host) if options.place.is_loopback else (),
    )
    app = application(Reader(settings, watch), watch, by_token(allowed), place)
    listening.run(app, options.place, lambda url: ready(url + suffix))
