"""The server as a process: what it prints, TLS, SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deltaworks.stack.certificates import Authority


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of an empty project, and the URL that it prints."""
    environment = os.environ | {"DELTAWORKS_HOME": str(folder / "home"), "DELTAWORKS_PROJECT": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "deltaworks.cli", "ui", "--port", "0", *options],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def role(url: str, token: str | None, context: ssl.SSLContext | None = None) -> str:
    request = urllib.request.Request(f"{url}/api/me")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, context=context) as answer:
        return str(json.load(answer)["role"])


def test_the_address_that_it_prints_is_that_of_an_operator(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, printed):
        url, _, token = printed.partition("/#token=")
        assert url.startswith("http://127.0.0.1:") and len(token) > 30
        assert (role(url, token), role(url, None)) == ("operator", "viewer")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            role(url, "other")
        assert not (tmp_path / "home").exists(), "who only looks makes nothing"

        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_others_get_tls_and_need_a_token(tmp_path: Path) -> None:
    Authority.make(tmp_path, "ca").issue("server", hosts=["127.0.0.1"])
    token = subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "ui", "token", "me", "operator", "--access", "clients.toml"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    options = ("--access", "clients.toml", "--certificate", "server.pem", "--key", "server.key")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    with serving(tmp_path, "--host", "0.0.0.0", *options) as (_, printed):
        assert printed.startswith("https://0.0.0.0:") and printed.endswith("/")
        url = printed.rstrip("/").replace("0.0.0.0", "127.0.0.1")
        assert role(url, token, trusted) == "operator"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            role(url, None, trusted)


def test_without_tokens_it_is_for_this_machine(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as (process, said):
        assert process.wait(60) == 78 and "it needs tokens and TLS" in said
