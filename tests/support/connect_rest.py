"""The REST interface of a worker of Kafka Connect, as a client sees it that knows nothing of ours."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Of a worker."""

    status: int
    content: Any


@dataclass(frozen=True)
class Rest:
    """A client of a worker."""

    url: str
    login: str | None
    """`user:password`; None: it says nothing."""

    def __call__(self, method: str, path: str, body: object = None) -> Answer:
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self.login is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.login.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                code, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                code, text = error.code, error.read()
        return Answer(code, json.loads(text) if text.startswith((b"{", b"[")) else text.decode())

    def states(self, name: str) -> list[str]:
        """Of a connector, and of its tasks; empty while it is not known, or nobody answers."""
        try:
            answer = self("GET", f"/connectors/{name}/status")
        except OSError:
            return []
        if answer.status != 200:
            return []
        return [answer.content["connector"]["state"], *(task["state"] for task in answer.content["tasks"])]
