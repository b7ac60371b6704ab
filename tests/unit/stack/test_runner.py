"""The runner, with real processes that are small scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaworks import processes
from deltaworks.stack.state import ComponentState, read_state, write_wanted
from tests.support.processes import is_gone

WORKS = "ready.touch(); time.sleep(600)"
NAMED_END = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n{WORKS}"


class Running:
    """A runner and what it says."""

    def __init__(self, folder: Path, **components: dict[str, Any]) -> None:
        self.folder = folder
        (folder / "components.json").write_text(json.dumps(components))
        self.want(*components)
        self.entry = processes.launch(
            folder / "run",
            name="runner",
            kind="runner",
            command=[sys.executable, "-m", "tests.unit.stack.runner_case", str(folder)],
            log=folder / "logs" / "runner.log",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            tethered=True,
        )

    def want(self, *names: str) -> None:
        write_wanted(self.folder / "run", names)

    def state(self, name: str) -> ComponentState | None:
        state = read_state(self.folder / "run")
        return state.find(name) if state is not None and state.pid == self.entry.pid else None

    def until(self, name: str, fact: Callable[[ComponentState], bool]) -> ComponentState:
        end = time.monotonic() + 30
        while (state := self.state(name)) is None or not fact(state):
            assert time.monotonic() < end, (state, self.said())
            time.sleep(0.02)
        return state

    def ready(self, name: str) -> ComponentState:
        return self.until(name, lambda state: state.phase == "ready")

    def said(self) -> str:
        return (self.folder / "logs" / "runner.log").read_text()

    def stop(self) -> None:
        processes.stop(self.folder / "run", self.entry, timeout_s=30)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def start(**components: dict[str, Any]) -> Running:
        started.append(Running(tmp_path, **components))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def wait_until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_component_starts_when_what_it_needs_is_ready_and_stops_before_it(start: Start) -> None:
    running = start(
        page={"code": WORKS, "after": ["migrate"]},
        migrate={"code": "assert (folder / 'base').exists()", "after": ["base"], "step": True},
        base={"code": f"time.sleep(0.3); {WORKS}"},
    )

    running.ready("page")
    running.stop()

    assert {log.stat().st_mode & 0o777 for log in (running.folder / "logs").iterdir()} == {0o600}
    events = re.findall(r"(\w+): (started|ready|done|stopped)", running.said())
    assert events == [
        ("base", "started"),
        ("base", "ready"),
        ("migrate", "started"),
        ("migrate", "done"),
        ("page", "started"),
        ("page", "ready"),
        ("page", "stopped"),
        ("base", "stopped"),
    ]


def test_what_is_killed_is_started_again_and_says_how_it_ended(start: Start) -> None:
    running = start(base={"code": WORKS})
    first = running.ready("base")

    os.kill(first.pid, signal.SIGKILL)

    again = running.until("base", lambda state: state.phase == "ready" and state.restarts == 1)
    assert again.pid != first.pid
    assert again.last_exit == "SIGKILL"


def test_pauses_between_starts_double_up_to_a_limit(start: Start) -> None:
    running = start(base={"code": "sys.exit(3)"})

    running.until("base", lambda state: state.restarts == 4)

    pauses = [float(text) for text in re.findall(r"ended \(exit code 3\), next start in ([\d.]+) s", running.said())]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.4]


def test_what_a_killed_component_left_is_killed_but_never_a_process_with_a_session_of_its_own(start: Start) -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session={own}).pid"
    code = f"(folder / 'worker').write_text(str({child.format(own=False)}))\n"
    code += (
        f"if not (folder / 'stream').exists(): (folder / 'stream').write_text(str({child.format(own=True)}))\n{WORKS}"
    )
    running = start(scheduler={"code": code})
    killed = running.ready("scheduler")
    worker, stream = (int((running.folder / name).read_text()) for name in ("worker", "stream"))
    try:
        os.kill(killed.pid, signal.SIGKILL)
        running.until("scheduler", lambda state: state.phase == "ready" and state.restarts == 1)
        assert is_gone(worker)
        running.stop()
        assert not is_gone(stream)
    finally:
        os.kill(stream, signal.SIGKILL)


def test_what_does_not_get_ready_is_killed_and_started_again(start: Start) -> None:
    running = start(base={"code": "time.sleep(600)", "ready_timeout_s": 0.3})

    state = running.until("base", lambda state: state.restarts >= 1)

    assert state.last_exit == "not ready after 0 s"


def test_what_sends_no_more_heartbeats_is_killed_and_started_again(start: Start) -> None:
    running = start(
        base={
            "code": "ready.touch()\nfor _ in range(20): beat.touch(); time.sleep(0.1)\ntime.sleep(600)",
            "silence_s": 1,
        }
    )
    first = running.ready("base")

    again = running.until("base", lambda state: state.phase == "ready" and state.restarts == 1)

    assert again.pid != first.pid
    assert again.last_exit == "no heartbeat for 1 s"
    assert is_gone(first.pid)


def test_what_sends_heartbeats_or_whose_heartbeats_nobody_can_tell_is_left_alone(start: Start) -> None:
    running = start(
        beating={"code": "ready.touch()\nwhile True: beat.touch(); time.sleep(0.1)", "silence_s": 1},
        unknown={"code": WORKS, "silence_s": 1},
        unwatched={"code": f"beat.touch(); {WORKS}"},
        silent={"code": f"beat.touch(); {WORKS}", "silence_s": 2},
    )
    pids = {name: running.ready(name).pid for name in ("beating", "unknown", "unwatched")}

    running.until("silent", lambda state: state.restarts >= 1)

    assert {name: running.ready(name).pid for name in pids} == pids


def test_silence_while_nobody_could_tell_does_not_count(start: Start) -> None:
    code = "ready.touch()\nwhile not (folder / 'end').exists(): beat.touch(); time.sleep(0.05)\nbeat.unlink()\n"
    running = start(base={"code": f"{code}time.sleep(1.5)\nbeat.touch()\ntime.sleep(600)", "silence_s": 1})
    first = running.ready("base")
    (running.folder / "end").touch()
    wait_until(lambda: not (running.folder / "base.beat").exists())
    wait_until(lambda: (running.folder / "base.beat").exists())

    assert running.ready("base").pid == first.pid
    running.until("base", lambda state: state.restarts == 1)


def test_a_component_gets_its_own_signal_and_is_killed_when_it_ignores_it(start: Start) -> None:
    running = start(
        polite={
            "code": f"signal.signal(signal.SIGINT, lambda *_: sys.exit(5))\n{WORKS}",
            "stop_signal": "SIGINT",
        },
        stubborn={"code": f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WORKS}", "stop_patience_s": 0.2},
    )
    running.ready("polite"), running.ready("stubborn")

    running.stop()

    assert "polite: stopped (exit code 5)" in running.said()
    assert "stubborn: stopped (SIGKILL)" in running.said()


def test_components_come_and_go_as_they_are_wanted_and_others_do_not_notice(start: Start) -> None:
    running = start(base={"code": WORKS}, page={"code": WORKS, "after": ["base"]})
    base, page = running.ready("base"), running.ready("page")

    running.want("base")
    wait_until(lambda: running.state("page") is None)
    assert is_gone(page.pid)
    running.want("base", "page")
    assert running.ready("page").pid != page.pid
    assert running.ready("base") == base
    running.want()
    wait_until(lambda: not running.entry.alive)


def test_nothing_outlives_a_runner_that_is_killed(start: Start) -> None:
    running = start(base={"code": WORKS}, page={"code": NAMED_END, "after": ["base"]})
    pids = [running.ready(name).pid for name in ("base", "page")]

    os.kill(running.entry.pid, signal.SIGKILL)

    wait_until(lambda: all(is_gone(pid) for pid in pids))
