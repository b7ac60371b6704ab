"""Who may see the page: the file of clients, tokens, and addresses that others reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.query_server.access import UnknownClientError
from deltaworks.ui import access
from deltaworks.ui.access import Access, Client
from deltaworks.ui.serving import Options


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clients.toml"


def test_a_token_is_shown_once_and_only_its_digest_is_kept(file: Path) -> None:
    first = access.add_client(file, "wall", "viewer", ("orders", "click*"))
    file.write_text(f"# of the team\n{file.read_text()}")
    second = access.add_client(file, "ada", "operator", ("*",))

    text = file.read_text()
    assert first not in text and second not in text and first != second
    assert text.startswith("# of the team\n"), "what people write stays"
    assert file.stat().st_mode & 0o777 == 0o600
    found = access.read(file)
    wall, ada = found.client(f"Bearer {first}"), found.client(f"bearer {second}")
    assert wall.may_see("orders") and wall.may_see("clicks") and not wall.may_see("orders2")
    assert not wall.operates and ada.operates and ada.may_see("anything")
    for header in (None, "", first, f"Basic {first}", "Bearer ", f"Bearer {first}x", f"Bearer {wall.sha256}"):
        with pytest.raises(UnknownClientError):
            found.client(header)


def test_who_may_see_a_connector_may_not_see_a_stream_of_its_name() -> None:
    both = Client(sha256=64 * "0", role="viewer", pipelines=("orders*",))
    one = Client(sha256=64 * "0", role="viewer", pipelines=("clicks",), connectors=("orders",))

    assert both.may_see("orders") and both.may_see_connector("orders")
    assert one.may_see_connector("orders") and not one.may_see("orders") and not one.may_see_connector("clicks")


def test_on_this_machine_anybody_is_a_viewer_and_who_has_the_token_an_operator() -> None:
    found, token = Access.for_this_machine()

    assert not found.client(None).operates
    assert found.client(f"Bearer {token}").operates
    with pytest.raises(UnknownClientError):
        found.client("Bearer other")
    assert Access.for_this_machine()[1] != token


@pytest.mark.parametrize(
    ("name", "role", "pipelines"),
    [("a b", "viewer", "*"), ("", "viewer", "*"), ("a", "owner", "*"), ("a", "viewer", 'x"'), ("a", "viewer", "a/b")],
)
def test_what_is_no_name_role_or_pattern_is_refused_and_nothing_is_written(
    file: Path, name: str, role: str, pipelines: str
) -> None:
    with pytest.raises(ConfigurationError):
        access.add_client(file, name, role, (pipelines,))
    assert not file.exists()


def test_a_client_is_not_made_twice(file: Path) -> None:
    access.add_client(file, "wall", "viewer", ("*",))
    before = file.read_text()

    with pytest.raises(ConfigurationError, match="has a client 'wall' already"):
        access.add_client(file, "wall", "operator", ("*",))
    assert file.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "[clients.a]\nsha256 = 'short'\nrole = 'viewer'",
        f"[clients.a]\nsha256 = '{'0' * 64}'",
        f"[clients.a]\nsha256 = '{'0' * 64}'\nrole = 'owner'",
        f"[clients.a]\nsha256 = '{'0' * 64}'\nrole = 'viewer'\nstores = ['*']",
        "".join(f"[clients.{name}]\nsha256 = '{'0' * 64}'\nrole = 'viewer'\n" for name in "ab"),
        "no = toml =",
    ],
)
def test_a_file_that_says_something_else_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(ConfigurationError, match="clients"):
        access.read(file)


def test_a_file_that_others_may_change_is_refused(file: Path) -> None:
    access.add_client(file, "wall", "viewer", ("*",))
    file.chmod(0o622)

    with pytest.raises(ConfigurationError, match="Others may write"):
        access.read(file)


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "example.org"},
        {"host": "0.0.0.0", "access_file": Path("clients.toml")},
        {"host": "0.0.0.0", "certificate": Path("c.pem"), "key": Path("c.key")},
        {"certificate": Path("c.pem")},
        {"airflow": "javascript:alert(1)"},
    ],
)
def test_others_reach_it_only_with_tokens_and_tls(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Options(**options)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_on_this_machine_it_needs_neither(host: str) -> None:
    assert Options(host=host).place.is_loopback
