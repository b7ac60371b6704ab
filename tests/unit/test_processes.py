"""Detached processes, with real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deltaworks import clock, processes
from deltaworks.errors import ConfigurationError

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]
_CODE = """
import subprocess, sys, time
child = 'import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)'
subprocess.Popen([sys.executable, '-c', child])
time.sleep(600)
"""
WITH_ESCAPED_CHILD = [sys.executable, "-c", _CODE]


def start(folder: Path, command: list[str], name: str = "it") -> processes.Registered:
    """Waits for its first line."""
    entry = processes.launch(
        folder / "run", name=name, kind="test", command=command, log=folder / "logs" / f"{name}.log"
    )
    log = Path(entry.log)
    for _ in range(1_000):
        if log.read_text().endswith("\n"):
            return entry
        psutil.Process().cpu_percent(interval=0.02)
    raise AssertionError("it said nothing")


def test_a_process_is_detached_registered_and_stopped(tmp_path: Path) -> None:
    entry = start(tmp_path, SLEEP)

    assert entry.alive
    assert os.getsid(entry.pid) == entry.pid
    assert processes.registered(tmp_path / "run") == [entry]
    assert processes.stop(tmp_path / "run", entry)
    assert not psutil.pid_exists(entry.pid)
    assert processes.registered(tmp_path / "run") == []


def test_only_its_user_reads_the_log_of_a_process(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        entry = start(tmp_path, SLEEP)
    finally:
        os.umask(before)
    processes.stop(tmp_path / "run", entry, timeout_s=1)

    log = Path(entry.log)
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_name_that_leads_elsewhere_is_none_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("mine")

    with pytest.raises(ConfigurationError, match=r"'\.\./other' cannot be the name of a file in .*/run"):
        processes.forget(tmp_path / "run", "../other")
    with pytest.raises(ConfigurationError):
        processes.find(tmp_path / "run", "../other")
    with pytest.raises(ConfigurationError):
        start(tmp_path, SLEEP, name="../other")
    assert not (tmp_path / "logs").exists()
    assert (tmp_path / "other.json").read_text() == "mine"


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    entry = start(tmp_path, STUBBORN)

    assert not processes.stop(tmp_path / "run", entry, timeout_s=0.2)
    assert not entry.members()


def test_children_that_left_the_process_group_are_found_even_without_their_parent(tmp_path: Path) -> None:
    entry = start(tmp_path, WITH_ESCAPED_CHILD)
    child = int(Path(entry.log).read_text())
    os.kill(entry.pid, signal.SIGKILL)
    assert processes._wait(entry, 10, leader_only=True)
    assert [process.pid for process in entry.members()] == [child]
    assert not entry.alive

    processes.stop(tmp_path / "run", entry, timeout_s=1)

    assert entry.members() == []


def test_a_pid_that_belongs_to_somebody_else_now_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL, start_new_session=True) as other:
        entry = processes.register(
            tmp_path / "run", name="it", kind="test", pid=other.pid, command=SLEEP, log=tmp_path / "log"
        )
        file = tmp_path / "run" / "it.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "started": f"{entry.started}0"}))
        stale = processes.find(tmp_path / "run", "it")
        assert stale is not None

        assert not stale.alive
        processes.stop(tmp_path / "run", stale)

        assert other.poll() is None
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        processes.stop(tmp_path / "run", stale)

        assert other.wait() == -signal.SIGKILL, "its end is for whoever started it"


def test_a_dead_process_is_not_alive_although_nobody_waited_for_it(tmp_path: Path) -> None:
    entry = start(tmp_path, [sys.executable, "-c", "print('bye')"])

    processes.stop(tmp_path / "run", entry)

    assert not entry.alive


def test_a_half_written_registration_counts_as_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "it.json").write_text('{"name": ')

    assert processes.registered(run) == []


def test_a_tethered_process_dies_with_whoever_started_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from deltaworks import processes\n"
        f"entry = processes.launch(Path({str(tmp_path)!r}), name='it', kind='test', command={SLEEP!r}, "
        f"log=Path({str(tmp_path / 'it.log')!r}), tethered=True)\n"
        "while not Path(entry.log).read_text(): pass\n"
        "print(entry.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    _, alive = psutil.wait_procs([p for p in psutil.process_iter() if p.pid == int(parent.stdout)], timeout=10)

    assert alive == []


def test_the_last_lines_of_a_log_leave_out_stack_frames(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n\nERROR broken\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)\nlast\n")

    assert processes.last_lines(log, 2) == ["ERROR broken", "last"]
    assert processes.last_lines(tmp_path / "none") == []


@pytest.fixture(autouse=True)
def children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_the_boot_id_stays_until_the_machine_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.boot_id() == processes.boot_id() != ""
    monkeypatch.setattr(clock, "boot_id", lambda: "")  # another system has none
    monkeypatch.setattr(psutil, "boot_time", lambda: 1_700_000_000.4)
    assert processes.boot_id() == "1700000000"
