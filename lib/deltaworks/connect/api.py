"""The client of Connect's REST interface.

A worker answers 409 while the workers share out their tasks anew, so such a request is sent again for a while. All
else fails at once, with what was asked, where, and what to do. No error has a secret in it.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import msgspec

from deltaworks import clock
from deltaworks.config import Reference
from deltaworks.connect.answers import (
    Failure,
    Info,
    Listed,
    Offset,
    Offsets,
    Plugin,
    Root,
    Status,
    UsedTopics,
    Validated,
)
from deltaworks.connect.secrets import MASK, masked_values
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
from deltaworks.names import hint_of
from deltaworks.settings import Settings

T = TypeVar("T")
_NOT_FOUND, _NO_METHOD, _CONFLICT, _SERVER = 404, 405, 409, 500
_REFUSED = (401, 403)
_LONGEST = 1000
_MOST_PAUSE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the client waits, in seconds."""

    connect_s: float = 5.0
    answer_s: float = 30.0
    work_s: float = 100.0
    """For an answer to what takes longer: a worker itself waits up to 90 seconds for a plugin or for the leader."""
    rebalance_s: float = 60.0
    """How long a request is sent again that a worker cannot take now."""
    pause_s: float = 0.5
    """Before it is sent again for the first time; the pauses grow."""


class ConnectApi:
    """A client of a worker, which may be any of its cluster. For one thread.

    Args:
        url: such as `https://connect.example.com:8083`.
        username: for basic authentication; None: none is sent.
        password: likewise.
        ca_file: certificates that are trusted instead of the system's.
        standalone: the worker is in standalone mode, which no answer of it says.
        patience: how long it waits.

    All methods raise `ConnectUnavailableError` if the worker does not answer, fails, or goes on rebalancing, and
    `ConfigurationError` if it refuses the request or the login, or there is no such connector.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        standalone: bool = False,
        patience: Patience | None = None,
    ) -> None:
        self.standalone = standalone
        self._patience = patience or Patience()
        try:
            address = urlsplit(url)
            base = httpx.URL(url)
        except (ValueError, httpx.InvalidURL):
            raise ConfigurationError("url of [connect] is no address.", hint="http://connect:8083") from None
        self.url = urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2])).rstrip("/")
        self._secrets = tuple(each for each in (password, address.password) if each)
        auth = (username or "", password or "") if username is not None or password is not None else None
        self._client = httpx.Client(base_url=base, auth=auth, verify=_trusted(address.scheme, ca_file), trust_env=False)

    @classmethod
    def of(cls, settings: Settings, patience: Patience | None = None) -> Self:
        """The client of `[connect]` in `deltaworks.toml`, or of the worker that the home's stack runs.

        Raises:
            ConfigurationError: neither says where a worker is, or a secret is not there.
        """
        table = settings.values.table("connect")
        found = {name: each.read() if isinstance(each, Reference) else each for name, each in table.items()}
        if "url" not in found:
            raise ConfigurationError(
                "The settings do not say where Kafka Connect is.",
                hint='[connect] with url = "http://connect:8083" in deltaworks.toml, or deltaworks up connect',
            )
        return cls(
            found["url"],
            username=found.get("username"),
            password=found.get("password"),
            ca_file=found.get("ca_file"),
            standalone=found.get("standalone") == "true",
            patience=patience,
        )

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cluster(self) -> str:
        """The id of the Kafka cluster that has the connectors."""
        return self._get("/", Root).kafka_cluster_id

    def names(self) -> list[str]:
        """The names of all connectors of the cluster, sorted."""
        return sorted(self._get("/connectors", list[str]))

    def configs(self) -> dict[str, dict[str, str]]:
        """All connectors of the cluster -> their settings, with references as they are."""
        found = self._get("/connectors?expand=info", dict[str, Listed])
        return {name: each.info.texts for name, each in sorted(found.items()) if each.info is not None}

    def config(self, name: str) -> dict[str, str] | None:
        """The settings of a connector; None: there is no such connector."""
        try:
            return self._get(_path(name), Info).texts
        except _NotFoundError:
            return None

    def statuses(self) -> dict[str, Status]:
        """All connectors whose state is known -> their states."""
        found = self._get("/connectors?expand=status", dict[str, Listed])
        return {name: each.status for name, each in found.items() if each.status is not None}

    def all(self) -> dict[str, Listed]:
        """All connectors of the cluster -> their settings and states, in one request."""
        return self._get("/connectors?expand=info&expand=status", dict[str, Listed])

    def status(self, name: str) -> Status | None:
        """The states of a connector and its tasks; None: none is known, or there is no such connector."""
        try:
            return self._get(_path(name, "status"), Status)
        except _NotFoundError:
            return None

    def plugins(self) -> list[Plugin]:
        """The classes of connectors that the worker has."""
        return self._get("/connector-plugins", list[Plugin])

    def validate(self, class_: str, properties: Mapping[str, str]) -> Validated:
        """What the worker says of settings. It may have followed references: its answer is not to be shown."""
        path = f"/connector-plugins/{quote(class_, safe='')}/config/validate"
        return self._decoded(self._send("PUT", path, dict(properties), works=True), Validated)

    def put(self, name: str, properties: Mapping[str, str]) -> None:
        """Creates a connector, or gives it other settings."""
        self._send("PUT", _path(name, "config"), dict(properties), works=True)

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restarts a connector with its tasks, or what has failed of them; the states follow later."""
        path = _path(name, f"restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")
        self._of_connector(name, "POST", path)

    def restart_task(self, name: str, task: int) -> None:
        """Restarts a task of a connector."""
        self._of_connector(name, "POST", _path(name, f"tasks/{task}/restart"), f"task {task} of connector '{name}'")

    def pause(self, name: str) -> None:
        """Tasks keep what they hold, and process nothing."""
        self._of_connector(name, "PUT", _path(name, "pause"))

    def resume(self, name: str) -> None:
        """A connector that is paused or stopped goes on."""
        self._of_connector(name, "PUT", _path(name, "resume"))

    def stop(self, name: str) -> None:
        """Ends the tasks of a connector, and keeps it with its offsets."""
        self._of_connector(name, "PUT", _path(name, "stop"))

    def delete(self, name: str) -> None:
        """Deletes a connector; its offsets stay."""
        self._of_connector(name, "DELETE", _path(name))

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has read or written since it was made; workers may be told not to say so."""
        found = self._decoded(self._of_connector(name, "GET", _path(name, "topics")), dict[str, UsedTopics])
        return sorted({topic for each in found.values() for topic in each.topics})

    def offsets(self, name: str) -> list[Offset]:
        """How far a connector is."""
        return self._decoded(self._of_connector(name, "GET", _path(name, "offsets")), Offsets).offsets

    def reset_offsets(self, name: str) -> None:
        """Forgets how far a stopped connector is."""
        self._of_connector(name, "DELETE", _path(name, "offsets"))

    def require(self, *names: str) -> list[str]:
        """All names of connectors; raises `ConfigurationError`, with near ones, if one of these is not among them."""
        there = self.names()
        for name in names:
            if name not in there:
                raise ConfigurationError(
                    f"Kafka Connect at {self.url} has no connector '{name}'.",
                    hint=hint_of(name, there, "connectors there"),
                )
        return there

    def _get(self, path: str, kind: type[T]) -> T:
        return self._decoded(self._send("GET", path), kind)

    def _of_connector(self, name: str, method: str, path: str, what: str | None = None) -> httpx.Response:
        """Sends what needs the connector to be there."""
        try:
            return self._send(method, path, works=method != "GET")
        except _NotFoundError as error:
            self.require(name)
            there = what or f"connector '{name}'"
            raise ConfigurationError(f"Kafka Connect at {self.url} has not got {there}: {error.said}.") from None

    def _send(
        self, method: str, path: str, body: Mapping[str, str] | None = None, *, works: bool = False
    ) -> httpx.Response:
        """Sends a request, again while the workers rebalance; `works`: the answer may take longer."""
        until, pause_s = clock.ticks_s() + self._patience.rebalance_s, self._patience.pause_s
        while True:
            response = self._sent(method, path, body, self._patience.work_s if works else self._patience.answer_s)
            if response.status_code != _CONFLICT or clock.ticks_s() + pause_s > until:
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        if response.is_success:
            return response
        raise self._failed(response, f"{method} {_bare(path)}")

    def _sent(self, method: str, path: str, body: Mapping[str, str] | None, answer_s: float) -> httpx.Response:
        timeout = httpx.Timeout(answer_s, connect=self._patience.connect_s)
        what = f"{method} {_bare(path)}"
        try:
            return self._client.request(method, path, json=body, timeout=timeout)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            hint = "its log says why" if method == "GET" else "deltaworks connect status shows whether it was done"
            raise ConnectUnavailableError(
                f"Kafka Connect at {self.url} has not answered {what} within {answer_s:g} s.", hint=hint
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            reason = self._safe(str(error)) or type(error).__name__
            raise ConnectUnavailableError(
                f"Kafka Connect at {self.url} does not answer {what}: {reason}.",
                hint="does a worker run there? url in [connect] says where it is",
            ) from error

    def _failed(self, response: httpx.Response, what: str) -> Exception:
        """The error for an answer that says no."""
        code, message = response.status_code, self._message(response)
        refused = f"Kafka Connect at {self.url} answers {code} to {what}"
        if code in _REFUSED:
            return ConfigurationError(
                f"Kafka Connect at {self.url} refuses the login ({code}) for {what}.",
                hint="username and password in [connect] of deltaworks.toml",
            )
        if code == _NOT_FOUND:
            return _NotFoundError(message or "404", refused)
        if code == _CONFLICT:
            return ConnectUnavailableError(
                f"Kafka Connect at {self.url} cannot take {what}, and was asked for {self._patience.rebalance_s:g} s:"
                f" {message}",
                hint="its workers rebalance: try again when they are done",
            )
        if code >= _SERVER:
            return ConnectUnavailableError(f"{refused}: {message}", hint="the log of the worker says more")
        hint = "workers older than Kafka 3.6 do not know this request" if code == _NO_METHOD else None
        return ConfigurationError(f"{refused}: {message}", hint=hint)

    def _decoded(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{self.url} does not answer as Kafka Connect does: {self._safe(str(error))}.",
                hint="url in [connect] is that of a worker's REST interface",
            ) from None

    def _message(self, response: httpx.Response) -> str:
        try:
            text = msgspec.json.decode(response.content, type=Failure).message
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = response.text
        return self._safe(text)[:_LONGEST].strip()

    def _safe(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return masked_values(text)


class _NotFoundError(ConfigurationError):
    """A worker does not have what was asked for; the text is its message."""

    def __init__(self, message: str, refused: str) -> None:
        super().__init__(f"{refused}: {message}", hint="is url in [connect] that of a worker?")
        self.said = message


def _trusted(scheme: str, ca_file: str | None) -> ssl.SSLContext | bool:
    if scheme != "https":
        return False  # there is no certificate, and reading those of the system takes a while
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigurationError(f"ca_file of [connect] cannot be read: {ca_file}: {error}.") from error


def _path(name: str, rest: str = "") -> str:
    return f"/connectors/{quote(name, safe='')}" + (f"/{rest}" if rest else "")


def _bare(path: str) -> str:
    return path.partition("?")[0]
