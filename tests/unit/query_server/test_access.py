"""Who may read: the file of clients, tokens, and addresses that others reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.query_server import access
from deltaworks.query_server.serving import Options


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clients.toml"


def test_a_token_is_shown_once_and_only_its_digest_is_kept(file: Path) -> None:
    first = access.add_client(file, "dashboard", ("orders/*", "clicks/counts"))
    file.write_text(f"# of the team\n{file.read_text()}")
    second = access.add_client(file, "support", ("*",))

    text = file.read_text()
    assert first not in text and second not in text and first != second
    assert text.startswith("# of the team\n"), "what people write stays"
    assert file.stat().st_mode & 0o777 == 0o600
    found = access.Access(access.read(file))
    client = found.client(f"Bearer {first}")
    assert client.may_read("orders", "counts") and client.may_read("clicks", "counts")
    assert not client.may_read("clicks", "other") and not client.may_read("orders2", "counts")
    assert client.may_see("orders") and not client.may_see("ads")
    assert found.client(f"bearer {second}").may_read("ads", "x")
    for header in (None, "", first, f"Basic {first}", "Bearer ", f"Bearer {first}x", f"Bearer {client.sha256}"):
        with pytest.raises(access.UnknownClientError):
            found.client(header)


@pytest.mark.parametrize(("name", "store"), [("a b", "*"), ("", "*"), ("a", "orders"), ("a", 'x"/*'), ("a", "")])
def test_a_name_or_pattern_that_is_none_is_refused_and_nothing_is_written(file: Path, name: str, store: str) -> None:
    with pytest.raises(ConfigurationError):
        access.add_client(file, name, (store,))
    assert not file.exists()


def test_a_client_is_not_made_twice(file: Path) -> None:
    access.add_client(file, "dashboard", ("*",))
    before = file.read_text()

    with pytest.raises(ConfigurationError, match="has a client 'dashboard' already"):
        access.add_client(file, "dashboard", ("orders/*",))
    assert file.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "[clients.a]\nsha256 = 'short'\nstores = []",
        f"[clients.a]\nsha256 = '{'0' * 64}'",
        f"[clients.a]\nsha256 = '{'0' * 64}'\nstores = []\ntoken = 'x'",
        "[client.a]",
        "[",
    ],
)
def test_a_file_that_says_something_else_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(ConfigurationError, match="cannot be read as clients"):
        access.read(file)


def test_a_file_that_others_may_write_is_refused(file: Path) -> None:
    access.add_client(file, "dashboard", ("*",))
    file.chmod(0o660)

    with pytest.raises(ConfigurationError, match="Others may write"):
        access.read(file)


def test_two_clients_with_one_token_are_refused(file: Path) -> None:
    access.add_client(file, "dashboard", ("*",))
    file.write_text(file.read_text() + file.read_text().replace("dashboard", "other"))

    with pytest.raises(ConfigurationError, match="the same token"):
        access.read(file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "streams.example.com"])
def test_others_reach_it_only_with_tokens_and_tls(host: str, file: Path) -> None:
    tls: dict[str, Any] = {"certificate": file, "key": file}
    Options(host=host, access_file=file, **tls)

    missing: tuple[dict[str, Any], ...] = ({}, {"access_file": file}, tls)
    for given in missing:
        with pytest.raises(ConfigurationError, match="tokens and TLS"):
            Options(host=host, **given)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_reaches_it_without(host: str, file: Path) -> None:
    Options(host=host)

    with pytest.raises(ConfigurationError, match="needs its key"):
        Options(host=host, certificate=file)
