"""The whole stack with Airflow on real processes: what is killed comes back, and nobody else can connect."""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
import sys
import time
from contextlib import closing

import psutil
import pytest

from deltaworks.control.supervisor import address
from deltaworks.stack import airflow
from deltaworks.stack.lifecycle import status
from deltaworks.stack.state import read_state
from tests.support.live_stack import LiveStack, await_restart, listening
from tests.support.processes import is_gone

COMPONENTS = (
    "supervisor",
    "airflow-scheduler",
    "airflow-triggerer",
    "airflow-dag-processor",
    "airflow-api-server",
    "postgres",
    "kafka",
)


def post(stack: LiveStack, path: str, content: dict[str, str]) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.settings.airflow_port, timeout=20)
    with closing(connection):
        connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_everything_is_ready_and_known_to_status(platform: LiveStack) -> None:
    entries = {entry.name: entry for entry in status(platform.settings)}

    assert set(COMPONENTS) <= set(entries)
    for name in COMPONENTS:
        assert entries[name].state == "ready"
        print(f"{name}: {entries[name].memory_mb} MB")
    assert sum(entry.memory_mb for entry in entries.values()) < 4_000


def test_all_servers_listen_on_this_machine_only(platform: LiveStack) -> None:
    settings = platform.settings
    sockets = listening(*(entry.pid for entry in status(settings)))
    supervisor = address.read(settings.run)
    assert supervisor is not None

    assert sockets
    assert {address for address, _ in sockets} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert {port for _, port in sockets} == {
        settings.broker_port,
        settings.controller_port,
        settings.postgres_port,
        settings.airflow_port,
        supervisor.port,
    }


def test_only_the_generated_password_logs_in_and_only_its_owner_can_read_it(platform: LiveStack) -> None:
    login = airflow.credentials(platform.settings)

    code, answer = post(platform, "/auth/token", {"username": login.user, "password": login.password})
    assert code == 201
    assert answer["access_token"]
    assert post(platform, "/auth/token", {"username": login.user, "password": "admin"})[0] == 401
    for file in (login.file, login.file.with_name("secrets.json"), platform.settings.pgpass):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert login.password not in repr(login)
    words = [word for entry in status(platform.settings) for word in psutil.Process(entry.pid).cmdline()]
    assert not [word for word in words if login.password in word or "passfile" in word]


@pytest.mark.parametrize("name", COMPONENTS)
def test_what_is_killed_comes_back_and_leaves_no_process(platform: LiveStack, name: str) -> None:
    platform.start()
    before = {entry.name: entry.pid for entry in status(platform.settings)}
    workers = psutil.Process(before[name]).children(recursive=True)
    begin = time.monotonic()

    os.kill(before[name], signal.SIGKILL)

    state = await_restart(platform.settings, name, before[name])
    print(f"\n{name}: back {time.monotonic() - begin:.1f} s after SIGKILL", file=sys.stderr)
    assert state.last_exit == "SIGKILL"
    assert [worker for worker in workers if not is_gone(worker)] == []
    platform.start()
    now = read_state(platform.settings.run)
    assert now is not None
    assert {c.name: c.phase for c in now.components if c.phase not in ("ready", "done")} == {}
