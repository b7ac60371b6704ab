"""Nothing of a child is left, however its task ends; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.airflow.child import Child
from tests.support.polling import until
from tests.support.processes import is_gone

ROOT = Path(__file__).parents[3]
_GRANDCHILD = "import os, time; os.setpgid(0, 0); print('pid', os.getpid(), flush=True); time.sleep(600)"
"""As Spark's JVM: in the session, but in a process group of its own."""
_PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', {_GRANDCHILD!r}])
print('leader', flush=True)
"""
SLEEPS = [sys.executable, "-c", _PARENT + "time.sleep(600)"]
LEAVES_ONE_BEHIND = [sys.executable, "-c", _PARENT + "time.sleep(0.5)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _PARENT + "time.sleep(600)",
]
_TASK = """
import signal, sys
from pathlib import Path
from deltaworks.airflow.child import Child
folder = Path(sys.argv[1])
child = Child(folder / "run", "replay-x", folder / "log", {"PATH": "/usr/bin:/bin"})
signal.signal(signal.SIGTERM, lambda number, frame: child.end())  # what Airflow makes of `on_kill`
print("code", child.execute(sys.argv[2:], lambda line: print(line, flush=True)), flush=True)
"""


def child(folder: Path) -> Child:
    return Child(folder / "run", "replay-x", folder / "log", {"PATH": "/usr/bin:/bin"})


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def task(folder: Path, command: list[str]) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that has a child, as Airflow's for a task; and the pids of the child's, grandchild last."""
    process = subprocess.Popen(
        [sys.executable, "-c", _TASK, str(folder), *command],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}", "PATH": os.environ["PATH"], "AIRFLOW_HOME": str(folder)},
    )
    assert process.stdout is not None
    said: list[str] = []
    while not ("leader" in said and any(line.startswith("pid") for line in said)):
        line = process.stdout.readline()
        assert line, f"it said only {said}"
        said.append(line.strip())
    entry = processes.find(folder / "run", "replay-x")
    assert entry is not None
    grandchild = next(int(line.split()[1]) for line in said if line.startswith("pid"))
    return process, [entry.pid, grandchild]


def test_its_lines_are_handed_on_as_they_come_and_not_at_the_end(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    code = f"""
import sys, time
from pathlib import Path
print('one')
while not Path({str(heard)!r}).exists():
    time.sleep(0.01)
print('two', file=sys.stderr)
print('thr\u00e9e', end='')
"""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        heard.touch()

    assert child(tmp_path).execute(python(code), say) == 0
    assert said == ["one", "two", "thrée"]


def test_a_second_command_does_not_repeat_the_lines_of_the_first(tmp_path: Path) -> None:
    said: list[str] = []
    mine = child(tmp_path)
    mine.execute(python("print('first')"), said.append)
    mine.execute(python("print('second')"), said.append)

    assert said == ["first", "second"]
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
    assert mine.begin == len("first\n")


@pytest.mark.parametrize("code", [0, 1, 78])
def test_its_exit_code_is_known(tmp_path: Path, code: int) -> None:
    assert child(tmp_path).execute(python(f"raise SystemExit({code})"), print) == code


def test_one_that_is_killed_has_the_signal_as_its_code(tmp_path: Path) -> None:
    assert child(tmp_path).execute(python("import os; os.kill(os.getpid(), 9)"), print) == -signal.SIGKILL


def test_what_it_leaves_behind_is_ended(tmp_path: Path) -> None:
    said: list[str] = []

    assert child(tmp_path).execute(LEAVES_ONE_BEHIND, said.append) == 0

    assert all(is_gone(int(line.split()[1])) for line in said if line.startswith("pid"))
    assert processes.registered(tmp_path / "run") == []


def test_an_error_of_the_task_such_as_a_timeout_ends_it(tmp_path: Path) -> None:
    pids: list[int] = []

    def say(line: str) -> None:
        if line.startswith("pid"):
            pids.append(int(line.split()[1]))
            raise TimeoutError

    with pytest.raises(TimeoutError):
        child(tmp_path).execute(SLEEPS, say)

    assert pids and all(map(is_gone, pids))


@pytest.mark.parametrize("command", [SLEEPS, STUBBORN])
def test_sigterm_to_the_task_ends_all_of_it(tmp_path: Path, command: list[str]) -> None:
    process, pids = task(tmp_path, command)

    process.terminate()

    said, _ = process.communicate(timeout=60)
    assert all(map(is_gone, pids))
    assert "code -" in said
    assert processes.registered(tmp_path / "run") == []


def test_a_task_that_is_killed_takes_its_child_along_and_the_next_try_ends_the_rest(tmp_path: Path) -> None:
    process, [leader, grandchild] = task(tmp_path, SLEEPS)

    process.kill()
    process.communicate()

    until(lambda: is_gone(leader), 20.0)
    assert not is_gone(grandchild)
    said: list[str] = []
    assert child(tmp_path).execute(python("print('again')"), said.append) == 0
    assert is_gone(grandchild)
    assert said == ["an earlier try of this task left a process; ending it first", "again"]
