"""The client of Connect's REST interface, against a worker that also answers 401, 404, 409, 500, late or not at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaworks.config import Reference
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
from deltaworks.settings import Settings
from tests.support.fake_connect import POSTGRES, FakeConnect, fake_connect

PATIENT = Patience(answer_s=20.0, work_s=20.0, rebalance_s=20.0, pause_s=0.02)
HASTY = Patience(connect_s=1.0, answer_s=0.3, work_s=0.4, rebalance_s=0.5, pause_s=0.05)
SECRET = "hunter2"


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with fake_connect() as made:
        made.add("orders_cdc", {"connector.class": POSTGRES}, tasks=2)
        yield made


@pytest.fixture
def api(fake: FakeConnect) -> Iterator[ConnectApi]:
    with ConnectApi(fake.url, patience=PATIENT) as made:
        yield made


def test_what_it_asks_and_is_told(fake: FakeConnect, api: ConnectApi) -> None:
    fake.connectors["orders_cdc"].offsets = [{"partition": {"server": "shop"}, "offset": {"lsn": 7}}]

    assert api.names() == ["orders_cdc"]
    assert api.configs() == {"orders_cdc": {"connector.class": POSTGRES, "name": "orders_cdc"}}
    assert api.config("orders_cdc") == api.configs()["orders_cdc"]
    assert api.config("none") is None and api.status("none") is None
    assert [task.id for task in api.statuses()["orders_cdc"].tasks] == [0, 1]
    assert POSTGRES in [plugin.class_ for plugin in api.plugins()]
    assert api.offsets("orders_cdc")[0].offset == {"lsn": 7}
    api.put("new", {"name": "new", "connector.class": POSTGRES})
    api.stop("new")
    api.reset_offsets("new")
    api.delete("new")
    assert fake.changes == [
        ("PUT", "/connectors/new/config"),
        ("PUT", "/connectors/new/stop"),
        ("DELETE", "/connectors/new/offsets"),
        ("DELETE", "/connectors/new"),
    ]


def test_names_are_parts_of_paths_whatever_is_in_them(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("a/b c?d%", {"connector.class": POSTGRES})

    api.pause("a/b c?d%")

    assert fake.connectors["a/b c?d%"].state == "PAUSED"


def test_it_asks_again_while_the_workers_rebalance(fake: FakeConnect, api: ConnectApi) -> None:
    fake.next = [(409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance)")] * 3

    api.pause("orders_cdc")

    assert fake.connectors["orders_cdc"].state == "PAUSED"
    assert [path for _, path in fake.changes] == ["/connectors/orders_cdc/pause"] * 4


def test_it_does_not_ask_for_ever(fake: FakeConnect) -> None:
    fake.next = [(409, "worker rebalance")] * 1000
    patience = Patience(rebalance_s=0.5, pause_s=0.05)

    with (
        ConnectApi(fake.url, patience=patience) as api,
        pytest.raises(ConnectUnavailableError, match="cannot take PUT /connectors/orders_cdc/pause, and was asked for"),
    ):
        api.pause("orders_cdc")
    assert 2 <= len(fake.changes) <= 10


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (
            (500, "Request timed out"),
            ConnectUnavailableError,
            "answers 500 to PUT /connectors/orders_cdc/pause: Request",
        ),
        ((400, "no"), ConfigurationError, "answers 400 to PUT /connectors/orders_cdc/pause: no"),
        ((405, "HTTP 405"), ConfigurationError, "Hint: workers older than Kafka 3.6"),
        ((403, "no"), ConfigurationError, "refuses the login (403) for PUT /connectors/orders_cdc/pause"),
    ],
)
def test_an_answer_that_says_no_is_an_error(
    fake: FakeConnect, api: ConnectApi, answer: tuple[int, str], kind: type[Exception], told: str
) -> None:
    fake.next = [answer]

    with pytest.raises(kind) as raised:
        api.pause("orders_cdc")
    assert told in str(raised.value) and fake.url in str(raised.value)


def test_a_connector_that_is_not_there_has_near_ones(api: ConnectApi) -> None:
    for ask in (api.pause, api.resume, api.stop, api.delete, api.offsets, api.reset_offsets):
        with pytest.raises(ConfigurationError, match=r"has no connector 'order_cdc'(.|\n)*did you mean 'orders_cdc'"):
            ask("order_cdc")
    with pytest.raises(ConfigurationError, match=r"has not got task 7 of connector 'orders_cdc': Unknown task"):
        api.restart_task("orders_cdc", 7)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda api: api.names(), "has not answered GET /connectors within 0.3 s"),
        (lambda api: api.pause("orders_cdc"), "has not answered PUT /connectors/orders_cdc/pause within 0.4 s"),
    ],
)
def test_a_worker_that_hangs_is_an_error(fake: FakeConnect, ask: Callable[[ConnectApi], Any], told: str) -> None:
    fake.hangs = True

    with ConnectApi(fake.url, patience=HASTY) as api, pytest.raises(ConnectUnavailableError) as raised:
        ask(api)
    assert told in str(raised.value)


def test_nobody_there_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with ConnectApi(url, patience=PATIENT) as api, pytest.raises(ConnectUnavailableError) as raised:
            api.names()
    assert "does not answer GET /connectors: " in str(raised.value)
    assert "url in [connect]" in str(raised.value)


def test_somebody_else_there_is_an_error(fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "answer", lambda *asked: (200, {"hello": "world"}))

    with pytest.raises(ConfigurationError, match="does not answer as Kafka Connect does"):
        api.names()


def test_the_login_is_sent_and_never_told(fake: FakeConnect) -> None:
    fake.login = ("streams", SECRET)
    with ConnectApi(fake.url, username="streams", password=SECRET, patience=PATIENT) as api:
        assert api.names() == ["orders_cdc"]
        fake.next = [(500, f"the login streams:{SECRET} is odd")]
        with pytest.raises(ConnectUnavailableError) as raised:
            api.names()
    assert SECRET not in str(raised.value)
    in_url = fake.url.replace("://", f"://streams:{SECRET}@")
    with ConnectApi(in_url, patience=PATIENT) as api:
        assert (api.names(), api.url) == (["orders_cdc"], fake.url)
    with ConnectApi(fake.url, username="streams", password="other", patience=PATIENT) as api:
        with pytest.raises(ConfigurationError, match=r"refuses the login \(401\)") as refused:
            api.names()
        assert "username and password in [connect]" in str(refused.value) and "other" not in str(refused.value)


def test_it_is_where_the_settings_say(fake: FakeConnect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(project=tmp_path, home=tmp_path, infra=tmp_path, cache=tmp_path)
    monkeypatch.setenv("CONNECT_PASSWORD", SECRET)
    fake.login = ("streams", SECRET)
    table: dict[str, str | Reference] = {}
    monkeypatch.setattr(type(settings.values), "table", lambda self, kind, pipeline="": table)

    with pytest.raises(ConfigurationError, match=r"do not say where Kafka Connect is.(.|\n)*\[connect\] with url"):
        ConnectApi.of(settings)
    table |= {"url": fake.url, "username": "streams", "password": Reference(origin="here", env="CONNECT_PASSWORD")}
    with ConnectApi.of(settings, PATIENT) as api:
        assert api.names() == ["orders_cdc"]


@pytest.mark.parametrize(
    ("url", "ca_file", "told"),
    [
        ("https://connect:8083", "none.pem", r"ca_file of \[connect\] cannot be read: none.pem"),
        (f"http://u:{SECRET}@[bad", None, r"url of \[connect\] is no address"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(url: str, ca_file: str | None, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as raised:
        ConnectApi(url, ca_file=ca_file)
    assert SECRET not in str(raised.value)
