"""Reads what a component of this machine says of itself over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Any

from deltaworks.stack.credentials import Credentials

_LOOPBACK = "127.0.0.1"


def said(port: int, path: str, *, timeout_s: float) -> dict[str, Any] | None:
    """The object that a page has as JSON; None: nobody answers, or something else.

    Args:
        port: where the component listens.
        path: of the page.
        timeout_s: in seconds, to connect and for each part of the answer.
    """
    text = _read(port, path, {}, timeout_s)
    try:
        content: Any = None if text is None else json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def lets_in(login: Credentials, port: int, path: str, *, timeout_s: float) -> bool:
    """Whether a component shows a page to somebody with a password; else as `said`."""
    token = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    return _read(port, path, {"Authorization": f"Basic {token}"}, timeout_s) is not None


def shows(port: int, path: str, *, timeout_s: float) -> bool:
    """Whether a component shows a page; else as `said`."""
    return _read(port, path, {}, timeout_s) is not None


def _read(port: int, path: str, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.read() if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
