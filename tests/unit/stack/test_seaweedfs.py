"""The object store before it starts: its keys, what clients are told, its ports and its command."""

from __future__ import annotations

import os
import socket
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import ports, seaweedfs
from deltaworks.stack.components import read_components
from deltaworks.stack.native import NativeHost
from tests.support.receivers import says

LAST = 65_527
OUTGOING = range(32_768, 61_000)
"""What Linux gives to outgoing connections, by default."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home in which nothing is downloaded and whose sockets are not in `/tmp`."""
    monkeypatch.setattr(seaweedfs, "ensure_program", lambda *_: Path("/cache/weed"))
    monkeypatch.setattr(seaweedfs, "_SOCKETS", tmp_path)
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home", s3_port=free_row())


def free_row() -> int:
    """A port of the API whose parts find theirs free."""
    settings = Settings.from_environment()
    while True:
        (port,) = ports.free_ports(1)
        if all(map(ports.is_free, seaweedfs.inner_ports(replace(settings, s3_port=port)).values())):
            return port


def prepared(settings: Settings) -> Settings:
    home.make(settings)
    seaweedfs.prepare(settings, print)
    return settings


def test_keys_are_made_once_and_only_their_user_can_read_them(settings: Settings) -> None:
    first, second = (seaweedfs.credentials(prepared(settings)) for _ in range(2))

    assert (first.user, first.password) == (second.user, second.password)
    assert (len(first.user), len(first.password)) == (24, 60)
    assert first.password not in repr(first)
    assert {stat.S_IMODE(file.stat().st_mode) for file in settings.s3.rglob("*.*") if file.is_file()} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in settings.s3.rglob("*") if folder.is_dir()} == {0o700}


def test_they_are_new_only_the_first_time(settings: Settings) -> None:
    home.make(settings)

    assert [seaweedfs.credentials(settings).created_now for _ in range(2)] == [True, False]


def test_clients_are_told_where_it_is_and_where_the_keys_are(settings: Settings) -> None:
    file = settings.s3_access_in(prepared(settings).home)
    told = tomllib.loads(file.read_text())

    login = seaweedfs.credentials(settings)
    keys = [(file.parent / told["s3"].pop(name)["file"]).read_text().strip() for name in ("access_key", "secret_key")]
    assert keys == [login.user, login.password]
    endpoint = f"http://127.0.0.1:{settings.s3_port}"
    assert told == {"s3": {"endpoint": endpoint, "region": "us-east-1", "path_style": True}}
    assert login.password not in file.read_text()


def test_a_stack_reaches_its_own_store(settings: Settings) -> None:
    prepared(settings)

    found = Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.project).values.table("s3")

    assert found["endpoint"] == f"http://127.0.0.1:{settings.s3_port}"


def test_another_port_is_told_at_the_next_start(settings: Settings) -> None:
    prepared(settings)
    prepared(replace(settings, s3_port=8333))

    assert 'endpoint = "http://127.0.0.1:8333"' in settings.s3_access_in(settings.home).read_text()


@pytest.mark.parametrize("port", [1024, 9000, 19_333, 19_991, 19_992, 20_000, 29_990, LAST])
def test_each_part_has_a_port_of_its_own_that_outgoing_connections_do_not_take(settings: Settings, port: int) -> None:
    found = seaweedfs.inner_ports(replace(settings, s3_port=port))

    assert len({port, *found.values()}) == 10
    assert found["admin.port.grpc"] == found["admin.port"] + 10_000
    assert all(1023 < each < 65_536 for each in found.values())
    assert port > 30_000 or not set(found.values()) & set(OUTGOING)


def test_a_port_that_leaves_no_room_for_the_parts_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=f"is {LAST + 1}; .*\n  Hint: choose one up to {LAST}"):
        seaweedfs.inner_ports(replace(settings, s3_port=LAST + 1))


def test_it_listens_on_this_machine_and_gets_its_keys_in_the_environment(settings: Settings) -> None:
    software = read_components(settings.infra).software["seaweedfs"]
    command, environment = seaweedfs.command(settings, software), seaweedfs.environment(prepared(settings))

    options = dict(word.removeprefix("-").split("=") for word in command[3:])
    assert command[:3] == ["/cache/weed", "-logtostderr=true", "mini"]
    assert (options["ip"], options["ip.bind"], options["master.telemetry"]) == ("127.0.0.1", "127.0.0.1", "false")
    assert options["dir"] == f"{settings.home}/s3/data"
    assert not [name for name, value in options.items() if name.endswith("Socket") and "/" in value]
    login = seaweedfs.credentials(settings)
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == (login.user, login.password)
    assert not [word for word in command if login.password in word or login.user in word]
    assert Path(environment["HOME"]) == settings.s3


def test_where_nobody_listens_there_is_no_answer(settings: Settings) -> None:
    assert not seaweedfs.answers(settings, read_components(settings.infra).software["seaweedfs"])


def test_it_is_not_ready_before_it_reaches_what_is_in_its_objects(settings: Settings) -> None:
    """Its API answers earlier, then with 500 to whoever reads."""
    master = seaweedfs.inner_ports(settings)["master.port"]

    assert not seaweedfs._has_volumes(settings)
    for topology, ready in (({"Max": 0}, False), ({"DataCenters": None}, False), ({"DataCenters": [{}]}, True)):
        with says(master, "/dir/status", {"Topology": topology}):
            assert seaweedfs._has_volumes(settings) == ready


def test_whoever_has_a_port_of_a_part_is_named(settings: Settings) -> None:
    host, port = NativeHost.of(settings), seaweedfs.inner_ports(settings)["filer.port"]

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(StackError, match=rf"Port {port}, where s3 \(filer\.port\) .* process {os.getpid()} "):
            host.require_room_and_ports(host.components.by_name["s3"])


def test_only_sockets_of_a_server_that_has_ended_are_removed(settings: Settings) -> None:
    """The server makes them outside of its home."""
    sockets = seaweedfs._sockets(settings)
    for file in sockets.values():
        file.touch()

    seaweedfs.tidy(settings)
    assert all(file.exists() for file in sockets.values()), "the home has no store"

    prepared(settings)
    busy = min(sockets)
    with socket.socket() as server:
        server.bind(("127.0.0.1", busy))
        server.listen()
        seaweedfs.tidy(settings)
    assert [port for port, file in sockets.items() if file.exists()] == [busy]


def test_a_socket_of_another_user_is_not_used(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    home.make(settings)
    file = next(iter(seaweedfs._sockets(settings).values()))
    file.touch()
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)

    with pytest.raises(StackError, match=f"{file} belongs to another user"):
        seaweedfs.prepare(settings, print)


def test_without_a_client_it_says_what_to_install(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"needs boto3, its client\.\n  Hint: pip install 'deltaworks\[s3\]'"):
        seaweedfs.prepare(settings, print)
