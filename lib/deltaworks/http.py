"""A system that is asked over HTTP, for `KStream.enrich_from`."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from deltaworks.errors import CallOutError, ConfigurationError
from deltaworks.serdes import Json
from deltaworks.serdes.base import Serde, is_serde

A = TypeVar("A")

_PART = re.compile(r"\{(key|value)((?:\.[A-Za-z_]\w*)*)\}")
_ANY_PART = re.compile(r"\{[^}]*\}")
_BUSY = frozenset({408, 425, 429})
"""Statuses below 500 that say: ask again later."""


@dataclass(frozen=True, kw_only=True)
class Http(Generic[A]):
    """A system that is asked over HTTP, with a connection for each call.

    ```py
    products = Http(url="https://shop.example/products/{value.sku}?country={key}", answer=Product)
    ```

    A status of 2xx has the answer in its body. One of `missing` is the answer None. 408, 425, 429 and 5xx, and a
    connection that fails, are tried again, as `Asking` says. Any other status is an error of the record. Redirects of a
    GET are followed.

    Args:
        url: with `{key}`, `{value}` and their fields, such as `{value.address.city}`, which are percent-encoded.
        answer: type of the answers, which are JSON; `str` and `bytes` take the body as it is; or a serde.
        method: how it is asked.
        body: `(key, value) -> what is sent as JSON`; only with POST.
        headers: sent with each call; a function is called for each, in the worker, so that secrets are read there.
        missing: statuses that mean that the system does not know what was asked for.
        max_bytes: an answer of more bytes is an error of the record.

    Raises:
        ConfigurationError: the URL is no template, or a body is given with GET.
    """

    url: str
    answer: type[A] | Serde[A]
    method: Literal["GET", "POST"] = "GET"
    body: Callable[[Any, Any], Any] | None = None
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict)
    missing: frozenset[int] = frozenset({204, 404})
    max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        wrong = [part for part in _ANY_PART.findall(self.url) if not _PART.fullmatch(part)]
        if wrong:
            raise ConfigurationError(
                f"Http(url={self.url!r}): {wrong[0]} is neither key nor value.",
                hint="'https://shop.example/products/{value.sku}', with fields of the key and the value",
            )
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise ConfigurationError(f"Http(url={self.url!r}) is no URL of HTTP.", hint="https://HOST/PATH")
        if _ANY_PART.search(urlsplit(self.url).netloc):
            raise ConfigurationError(
                f"Http(url={self.url!r}): a record must not choose the host.", hint="name the host in the URL"
            )
        if self.body is not None and self.method != "POST":
            raise ConfigurationError("Http(body=...) is sent with POST only.", hint="method='POST'")

    def question(self, key: Any, value: Any) -> Any:
        """What the answer depends on: method, path with query, and body. The system may move to another host."""
        path = self._url(key, value).partition("://")[2].partition("/")[2]
        return [self.method, path, None if self.body is None else self.body(key, value)]

    def ask(self, key: Any, value: Any, timeout_s: float) -> Any:
        """Asks once.

        Args:
            key: of the record.
            value: of the record.
            timeout_s: seconds for each step of the connection.

        Raises:
            OSError: no answer; it may come later.
            CallOutError: the answer is that there will be none.
            SerializationError: the answer is not of its type.
        """
        url = self._url(key, value)
        body = None if self.body is None else msgspec.json.encode(self.body(key, value))
        headers = dict(self.headers() if callable(self.headers) else self.headers)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(url, data=body, headers=headers, method=self.method)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                status, content = response.status, response.read(self.max_bytes + 1)
        except urllib.error.HTTPError as error:
            status, content = error.code, b""
            error.close()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{self._who}: {type(error).__name__}") from error
        if status in self.missing:
            return None
        if status in _BUSY or status >= 500:
            raise ConnectionError(f"{self._who} answers {status}")
        if not 200 <= status < 300:
            raise CallOutError(f"{self._who} answers {status}")
        if len(content) > self.max_bytes:
            raise CallOutError(f"{self._who} answers more than {self.max_bytes} bytes")
        return self._decoded(content)

    @property
    def _who(self) -> str:
        """Without path and query, which may hold secrets."""
        return f"{self.method} {urlsplit(self.url).hostname}"

    def _url(self, key: Any, value: Any) -> str:
        def part(found: re.Match[str]) -> str:
            at = key if found[1] == "key" else value
            for name in filter(None, found[2].split(".")):
                at = at[name] if isinstance(at, Mapping) else getattr(at, name)
            if at is None:
                raise CallOutError(f"{found[0]} of the URL is None")
            return quote(str(at), safe="")

        return _PART.sub(part, self.url)

    def _decoded(self, content: bytes) -> Any:
        if self.answer is str:
            return content.decode()
        if self.answer is bytes:
            return content
        answer: Any = self.answer
        serde = answer if is_serde(answer) else Json(answer)
        return serde.deserialize(content)
