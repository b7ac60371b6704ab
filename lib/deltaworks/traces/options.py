"""The settings of traces: `[traces]` of `deltaworks.toml`, and what a pipeline has of its own."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from deltaworks.config import Reference
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

PATH = "/v1/traces"
INSTALL = "pip install 'deltaworks[traces]'"
_TIMEOUT_S = 10
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def require_usable(settings: Settings, pipeline: str) -> None:
    """Checks, before a pipeline is deployed, that its driver can send the traces that the settings want.

    Drivers of a supervisor that runs elsewhere are left alone: their secrets and packages are there.

    Args:
        settings: of the home.
        pipeline: its name.

    Raises:
        ConfigurationError: a secret is not there, a value that it refers to cannot be used, or OpenTelemetry is not
            installed.
    """
    if settings.supervisor == "elsewhere" or TraceOptions.of(settings, pipeline) is None:
        return
    if missing := [name for name in _NEEDED if not _is_there(name)]:
        raise ConfigurationError(
            f"'{missing[0]}' is not installed, which [traces] of {pipeline!r} needs.", hint=INSTALL
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # that above it
        return False


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Where traces go, and which."""

    endpoint: str
    """Where OTLP over HTTP is spoken, with the path for traces."""
    sample_ratio: float = 1.0
    """The share of the batches that have a trace; one that fails always has."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request, which may be secrets."""
    timeout_s: int = _TIMEOUT_S
    """How long the receiver has for an answer, with all tries."""
    ca_file: str | None = None
    """Certificates that the receiver's is checked with; None: those of the system."""

    @classmethod
    def of(cls, settings: Settings, pipeline: str) -> TraceOptions | None:
        """Those of a pipeline; None: it has no traces.

        Raises:
            ConfigurationError: a secret is not there, or a value that it refers to cannot be used.
        """
        said = settings.traces_of(pipeline)
        if not (endpoint := said.get("endpoint")):
            return None
        ca_file = said.get("ca_file")
        return cls(
            endpoint=_endpoint(endpoint),
            sample_ratio=float(str(said.get("sample_ratio", 1.0))),
            headers=_headers(said.get("headers")),
            timeout_s=int(str(said.get("timeout_seconds", _TIMEOUT_S))),
            ca_file=None if ca_file is None else str(ca_file),
        )

    @property
    def host(self) -> str:
        """Who gets them, for the log: no user, no password."""
        return urlsplit(self.endpoint).netloc.rpartition("@")[2]


def _endpoint(said: str | Reference) -> str:
    """The address with the path for traces, which the address of a receiver of all signals lacks."""
    address, origin = (said.read(), said.origin) if isinstance(said, Reference) else (said, "traces.endpoint")
    if not address.startswith(("http://", "https://")):  # never shown: it may have a password
        raise ConfigurationError(f"{origin} is no http:// or https:// address.", hint="such as http://127.0.0.1:4318")
    address = address.rstrip("/")
    return address if address.endswith(PATH) else address + PATH


def _headers(said: str | Reference | None) -> dict[str, str]:
    """Headers as the variable OTEL_EXPORTER_OTLP_HEADERS has them: `name=value,name=value`."""
    if said is None:
        return {}
    text, origin = (said.read(), said.origin) if isinstance(said, Reference) else (said, "traces.headers")
    found = {}
    for each in (each for each in text.split(",") if each.strip()):
        name, sign, value = each.partition("=")
        if not sign or not name.strip():
            raise ConfigurationError(
                f"{origin} has no headers in it.", hint="such as authorization=Bearer TOKEN,x-org=1"
            )
        found[name.strip().lower()] = value.strip()
    return found
