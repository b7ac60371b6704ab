"""The settings of traces: `[traces]` of `deltaworks.toml`, and what a pipeline has of its own."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from deltaworks.config import Reference
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

PATH = "/v1/traces"
INSTALL = "pip install 'deltaworks[traces]'"
_TIMEOUT_S = 10
_ADDRESS_HINT = (
    "such as http://127.0.0.1:4318 or https://user:password@host; in a password, %40 is @, %3A is :, %2F is /, %23 is #"
)
_HEADERS_HINT = "such as authorization=Bearer TOKEN,x-org=1; in both, %2C is a comma and %25 is %"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""Names of headers, see RFC 9110."""
_USER = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:%]*")
"""User and password in an address, see RFC 3986."""
_SHORT = 4
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def require_usable(settings: Settings, pipeline: str) -> TraceOptions | None:
    """Checks, before a pipeline is deployed, that its driver can send the traces that the settings want.

    Args:
        settings: of the home.
        pipeline: its name.

    Returns:
        Where they go; None: it has no traces, or the supervisor runs elsewhere, where its secrets and packages are.

    Raises:
        ConfigurationError: a secret is not there, a value that it refers to cannot be used, or OpenTelemetry is not
            installed.
    """
    options = None if settings.supervisor == "elsewhere" else TraceOptions.of(settings, pipeline)
    if options is None:
        return None
    if missing := [name for name in _NEEDED if not _is_there(name)]:
        raise ConfigurationError(
            f"'{missing[0]}' is not installed, which [traces] of {pipeline!r} needs.", hint=INSTALL
        )
    return options


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

    def hide(self, text: str, *addresses: str) -> str:
        """A text for the log, with *** for each value of a header, and each user and password.

        Args:
            text: may quote them.
            addresses: others than the endpoint, which may have users and passwords, too.
        """
        logins = [part for each in (self.endpoint, *addresses) for part in _login(each)]
        values = [part for each in self.headers.values() for part in (each, each.rpartition(" ")[2])]  # Bearer TOKEN
        secrets = {form for each in (*logins, *values) for form in (each, unquote(each), repr(each)[1:-1])} - {""}
        for secret in sorted(secrets, key=len, reverse=True):
            # a short one, such as the number of a tenant, may be a part of any other word
            pattern = re.escape(secret) if len(secret) >= _SHORT else rf"(?<!\w){re.escape(secret)}(?!\w)"
            text = re.sub(pattern, "***", text)
        return text


def _login(address: str) -> tuple[str, str]:
    """User and password in an address, which may be none."""
    user, _, password = address.partition("://")[2].rpartition("@")[0].partition(":")
    return user, password


def _endpoint(said: str | Reference) -> str:
    """The address with the path for traces, which the address of a receiver of all signals lacks."""
    address, origin = (said.read(), said.origin) if isinstance(said, Reference) else (said, "traces.endpoint")
    if problem := _problem(address):  # the address is never shown: it may have a password
        raise ConfigurationError(f"{origin} {problem}.", hint=_ADDRESS_HINT)
    address = address.rstrip("/")
    return address if address.endswith(PATH) else address + PATH


def _problem(address: str) -> str | None:
    """Why an address cannot be used; whoever sends to it must read the same host and password in it as we do."""
    if not address.startswith(("http://", "https://")):
        return "is no http:// or https:// address"
    if not address.isprintable() or " " in address or "\\" in address:
        return "is no address: it has blanks, backslashes or other characters that addresses do not have"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is no address: its host or port cannot be read"
    if not host or port == 0:
        return "is no address: it has no host, or the port 0"
    if "@" in parts.path or "@" in parts.query or "@" in parts.fragment:
        return "is no address: it has an @ behind its host"
    if "?" in address or "#" in address:
        return "is no address of a receiver: it has a query or a fragment"
    if not _USER.fullmatch(parts.netloc.rpartition("@")[0]):
        return "is no address: its user or password has a character that has to be percent-encoded"
    return None


def _headers(said: str | Reference | None) -> dict[str, str]:
    """Headers as the variable OTEL_EXPORTER_OTLP_HEADERS has them: `name=value,name=value`, percent-encoded."""
    if said is None:
        return {}
    text, origin = (said.read(), said.origin) if isinstance(said, Reference) else (said, "traces.headers")
    found = {}
    for number, each in enumerate((each for each in text.split(",") if each.strip()), 1):
        name, sign, value = (unquote(part).strip() for part in each.partition("="))
        if not sign:
            raise ConfigurationError(f"{origin} has no headers in it.", hint=_HEADERS_HINT)
        if not _TOKEN.fullmatch(name):  # neither is shown: what is split at the wrong place is a part of the secret
            raise ConfigurationError(f"The name of header {number} of {origin} is none of HTTP.", hint=_HEADERS_HINT)
        if not (value.isascii() and value.isprintable()):
            raise ConfigurationError(
                f"The value of header {number} of {origin} has a line break, or a character that headers do not have.",
                hint=_HEADERS_HINT,
            )
        found[name.lower()] = value
    return found
