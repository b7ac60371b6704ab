"""What connectors and tasks do, and when that is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from deltaworks.connect import states
from deltaworks.connect.answers import Running, Status, Task
from deltaworks.connect.api import ConnectApi
from deltaworks.errors import ConfigurationError
from tests.support.fake_connect import POSTGRES, FakeConnect, fake_connect

TRACE = "org.apache.kafka.connect.errors.ConnectException: no server at db?password=hunter2\n\tat a.b.C\n"


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with fake_connect() as made:
        made.add("orders_cdc", {"connector.class": POSTGRES}, tasks=2)
        made.add("lines", {"connector.class": POSTGRES})
        yield made


@pytest.fixture
def api(fake: FakeConnect) -> Iterator[ConnectApi]:
    with ConnectApi(fake.url) as made:
        yield made


def test_failures_are_counted(fake: FakeConnect, api: ConnectApi) -> None:
    fake.fail("orders_cdc", 1, TRACE)

    found = states.look(api)

    assert [each.name for each in found.connectors] == ["lines", "orders_cdc"]
    assert (len(found.tasks), len(found.failed_tasks), found.has_failures) == (3, 1, True)
    assert states.in_words(found) == "2 of 3 tasks run, 1 have failed"
    assert not states.look(api, ["lines"]).has_failures
    assert states.first_line("x: Invalid value hunter2 for configuration a: no") == (
        "x: Invalid value *** for configuration a: no"
    )
    line = states.first_line(found.failed_tasks[0].trace)
    assert line == "org.apache.kafka.connect.errors.ConnectException: no server at db?password=***"


def test_a_connector_without_a_state_yet_is_there(
    fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "_expanded", lambda what: {})

    assert {each.connector.state for each in states.look(api).connectors} == {"UNASSIGNED"}


@pytest.mark.parametrize(
    ("own", "tasks", "settled"),
    [
        ("RUNNING", ["RUNNING", "FAILED"], True),
        ("RUNNING", [], False),
        ("RUNNING", ["UNASSIGNED"], False),
        ("RUNNING", ["RUNNING", "RESTARTING"], False),
        ("UNASSIGNED", [], False),
        ("STOPPED", [], True),
        ("PAUSED", ["PAUSED"], True),
        ("FAILED", [], True),
    ],
)
def test_what_is_settled(own: str, tasks: list[str], settled: bool) -> None:
    status = Status("a", Running(own), [Task(number, state) for number, state in enumerate(tasks)])

    assert states.is_settled(status) is settled


def test_it_waits_until_all_is_settled(fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    task = fake.connectors["lines"].tasks[0]
    task["state"] = "UNASSIGNED"

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 105:
            task["state"] = "RUNNING"

    _clock(monkeypatch, now, sleep)

    found = states.wait(api, ["lines"], 30.0, said.append)

    assert states.in_words(found) == "1 of 1 tasks run, 0 have failed" and said[0].startswith("0 of 1")
    assert 105 < now[0] < 107
    task["state"] = "UNASSIGNED"
    _clock(monkeypatch, now)
    before = now[0]
    assert states.in_words(states.wait(api, ["lines"], 3.0, said.append)).startswith("0 of 1")
    assert 3 <= now[0] - before < 4


def test_new_settings_take_a_moment(fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    _clock(monkeypatch, now)

    states.wait(api, ["lines"], 30.0, lambda line: None)

    assert 102 <= now[0] < 103


def test_offsets_change_only_while_a_connector_is_stopped(fake: FakeConnect, api: ConnectApi) -> None:
    with pytest.raises(ConfigurationError, match=r"is RUNNING: its offsets(.|\n)*deltaworks connect stop lines"):
        states.require_stopped(api, "lines")
    api.stop("lines")
    states.require_stopped(api, "lines")


def _clock(monkeypatch: pytest.MonkeyPatch, now: list[float], sleep: Callable[[float], None] | None = None) -> None:
    """A clock for `states` alone, which goes on while it sleeps: other threads of this process keep theirs."""

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(states, "clock", SimpleNamespace(ticks_s=lambda: now[0]))
    monkeypatch.setattr(states, "time", SimpleNamespace(sleep=sleep or passes))
