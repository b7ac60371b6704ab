"""The server as a process: what it prints, TLS, a port in use, SIGTERM."""

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
        [sys.executable, "-m", "deltaworks.cli", "store", "serve", "--port", "0", *options],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_it_answers_at_the_url_that_it_prints_and_ends_politely(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, url):
        assert url.startswith("http://127.0.0.1:") and url.endswith("/pipelines")
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer) == []

        port = url.split(":")[2].partition("/")[0]
        with serving(tmp_path, "--port", port) as (other, said):
            assert other.wait(60) == 78 and f"127.0.0.1:{port} cannot be used" in said

        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_others_get_tls_and_need_a_token(tmp_path: Path) -> None:
    Authority.make(tmp_path, "ca").issue("server", hosts=["127.0.0.1"])
    token = subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "store", "token", "me", "*", "--access", "clients.toml"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    options = ("--access", "clients.toml", "--certificate", "server.pem", "--key", "server.key")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    with serving(tmp_path, *options) as (_, url):
        assert url.startswith("https://")
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=trusted) as answer:
            assert json.load(answer) == []
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=trusted)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--host", "0.0.0.0"), "tokens and TLS"),
        (("--certificate", "no.pem", "--key", "no.key"), "The certificate cannot be used"),
        (("--access", "no.toml"), "cannot be read as clients"),
    ],
)
def test_what_cannot_be_served_is_told_before_it_listens(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    with serving(tmp_path, *options) as (process, said):
        assert process.wait(60) == 78
        assert says in said
