"""Processes that are forked in place of being started: like those that are started, and gone when they shall be."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from deltaworks.spark import fork_client, forking
from deltaworks.spark.forking import ForkServer
from tests.support.processes import is_gone

_DRIVER = """
import os
import sys
from pathlib import Path
from deltaworks.spark.forking import ForkServer

server = ForkServer.start("forks of a test", os.environ["PYTHONPATH"], preloaded=("json", "marker"))
print(server.pid, server.executable(Path(sys.argv[1])), flush=True)
input()
server.close()
"""
_MARKER = "import os; IMPORTED_BY = os.getpid()"
_SHOWS = """
import json, os, sys
import marker
print(json.dumps({
    "arguments": sys.argv[1:], "file": __file__, "name": __name__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "folder": os.getcwd(), "variable": os.environ.get("OF_THE_CALLER"), "driver": os.environ.get("OF_THE_DRIVER"),
    "marker": marker.IMPORTED_BY, "short": open("/proc/self/comm").read(),
    "title": " ".join(open("/proc/self/cmdline").read().split("\\0")).strip(),
    "files": sorted(int(each) for each in os.listdir("/proc/self/fd")), "input": sys.stdin.read(), "hash": hash("text"),
}))
print("to the log", file=sys.stderr)
sys.exit(3)
"""
_VARIABLE = {"OF_THE_CALLER": "a\nvalue = with lines"}
_WAITS = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Any]:
    for name, text in {"marker": _MARKER, "shows": _SHOWS, "waits": _WAITS, "fails": "1 / 0"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    environment = _environment(tmp_path) | {"OF_THE_DRIVER": "yes"}
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(tmp_path)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        server, executable = process.stdout.readline().split()
        process.server, process.executable = int(server), executable  # type: ignore[attr-defined]
        yield process
        process.kill()


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"}


def _call(driver: Any, folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [driver.executable, *arguments],
        env=_environment(folder) | _VARIABLE, cwd=folder, input=text, capture_output=True, text=True,
    )  # fmt: skip


Begin = Callable[[], tuple[subprocess.Popen[str], psutil.Process]]


@pytest.fixture
def begin(driver: Any, tmp_path: Path) -> Iterator[Begin]:
    """Starts what Spark knows, and says what was forked for it."""
    with ExitStack() as started:

        def begin() -> tuple[subprocess.Popen[str], psutil.Process]:
            process = subprocess.Popen(
                [driver.executable, "-m", "waits"],
                env=_environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            return process, psutil.Process(int(process.stdout.readline()))

        yield begin


def _until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_is_like_a_python_that_is_started(driver: Any, tmp_path: Path) -> None:
    forked = _call(driver, tmp_path, "-m", "shows", "one", "two words", text="some input")
    started = subprocess.run(
        [sys.executable, "-m", "shows", "one", "two words"],
        env=_environment(tmp_path) | _VARIABLE, cwd=tmp_path, input="some input", capture_output=True, text=True,
    )  # fmt: skip
    found, wanted = json.loads(forked.stdout), json.loads(started.stdout)

    assert found.pop("marker") == driver.server != wanted.pop("marker"), "imported once"
    assert found == wanted
    assert forked.stderr == started.stderr == "to the log\n"


def test_an_error_goes_to_the_log_of_the_caller(driver: Any, tmp_path: Path) -> None:
    assert "ZeroDivisionError" in _call(driver, tmp_path, "-m", "fails").stderr
    assert "No module named nothing" in _call(driver, tmp_path, "-m", "nothing").stderr


def test_what_is_no_module_is_an_ordinary_python(driver: Any, tmp_path: Path) -> None:
    done = _call(driver, tmp_path, "-c", "import os; print(os.getppid())")
    assert int(done.stdout) != driver.server


def test_many_at_once(driver: Any, begin: Begin) -> None:
    processes = [begin() for _ in range(8)]
    assert {forked.ppid() for _, forked in processes} == {driver.server}
    for process, forked in processes:
        forked.kill()
        assert process.wait(timeout=20) == 0, "the caller learns that it has ended"


def test_who_ends_what_he_started_ends_what_was_forked(begin: Begin) -> None:
    process, forked = begin()
    process.terminate()
    process.wait()
    _until(lambda: is_gone(forked))


@pytest.mark.parametrize("way", ["closed", "killed"])
def test_nothing_outlives_the_driver(driver: Any, begin: Begin, way: str) -> None:
    process, forked = begin()
    server = psutil.Process(driver.server)
    if way == "closed":
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.wait(timeout=20) == 0
    else:
        driver.kill()
    _until(lambda: is_gone(forked) and is_gone(server))
    process.wait(timeout=20)


def test_a_server_that_was_killed_is_not_needed(driver: Any, begin: Begin, tmp_path: Path) -> None:
    process, forked = begin()
    os.kill(driver.server, signal.SIGKILL)

    process.wait(timeout=20)
    assert json.loads(_call(driver, tmp_path, "-m", "shows").stdout)["marker"] != driver.server
    forked.kill()


def test_a_server_that_ends_before_it_takes_a_request_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("print('started')")
    name = f"deltaworks-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dying:
        dying.bind("\0" + name)
        dying.listen()
        command = [sys.executable, "-I", "-S", fork_client.__file__, sys.executable, name, "-m", "waits"]
        with subprocess.Popen(command, env=_environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
            connection, _ = dying.accept()
            _, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            for each in (*streams, connection.detach()):
                os.close(each)
            output, _ = process.communicate(timeout=20)

    assert output == "started\n"


def test_without_a_folder_for_programs_python_is_started(driver: Any, tmp_path: Path) -> None:
    code = (
        "import os\nfrom pathlib import Path\nfrom deltaworks.spark.forking import ForkServer\n"
        "os.access = lambda *_: False\nserver = ForkServer.start('t', '', ())\n"
        "print(server.executable(Path('.')))\nserver.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == sys.executable


def test_libraries_that_start_threads_have_no_server(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    done = subprocess.run(
        [sys.executable, "-m", "deltaworks.spark.forking", "0", "of a test", "threads"],
        env=_environment(tmp_path), input="", capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert "have started 1 threads" in done.stderr


def test_what_it_imports_starts_no_threads(tmp_path: Path) -> None:
    """So that a new version of a library that does is noticed here."""
    (tmp_path / "whose.py").write_text("import os; print(os.getppid())")
    environment = _environment(tmp_path)
    server = ForkServer.start("of a test", environment["PYTHONPATH"])
    try:
        whose = [server.executable(tmp_path), "-m", "whose"]
        done = subprocess.run(whose, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert int(done.stdout) == server.pid
    finally:
        server.close()


def test_both_ends_at_once_do_not_end_the_server() -> None:
    """Whoever waits is killed as the process ends: one look of the server finds both."""
    client, other = socket.socketpair()
    listener = socket.socket()
    server = forking._Server(listener)
    pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    child = os.pidfd_open(pid)
    server._clients[pid] = client
    server._selector.register(child, selectors.EVENT_READ, lambda: server._reap(pid, child))
    server._selector.register(client, selectors.EVENT_READ, lambda: server._abandoned(pid))
    other.close()
    while len(found := server._selector.select()) < 2:
        time.sleep(0.01)

    for key, _ in sorted(found, key=lambda each: each[0].fileobj is client):
        key.data()

    assert server._clients == {}
    assert not server._selector.get_map()
    listener.close()
