"""Reads what a component of this machine says of itself over HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any

_LOOPBACK = "127.0.0.1"


def said(port: int, path: str, *, timeout_s: float) -> dict[str, Any] | None:
    """The object that a page has as JSON; None: nobody answers, or something else.

    Args:
        port: where the component listens.
        path: of the page.
        timeout_s: in seconds, to connect and for each part of the answer.
    """
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        content: Any = json.loads(answer.read()) if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return content if isinstance(content, dict) else None
