"""Where Linux's and Unix' own facilities are absent, projects can still be made and pipelines tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ABSENT = '''
"""Runs before anything else in each Python process: a system without some of Unix and Linux."""
import importlib.abc
import os
import sys

MODULES = {"fcntl", "pwd", "grp", "resource"}


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_proc(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(arguments[0])


for module in MODULES:
    sys.modules.pop(module, None)
for name in ("pidfd_open", "posix_spawn", "posix_spawnp", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
sys.meta_path.insert(0, Absent())
sys.addaudithook(no_proc)
'''
DRIVER = """
from deltaworks import Pipeline, StreamsBuilder
from deltaworks.testing import TopologyTestDriver


def topology(builder: StreamsBuilder) -> None:
    builder.stream("words", key=str, value=str).map_values(str.upper).to("loud")


with TopologyTestDriver(Pipeline(name="loud", topology=topology)) as driver:
    driver.create_input_topic("words", key=str, value=str).pipe_input("a", "b")
    print(driver.create_output_topic("loud", key=str, value=str).read_values_to_list())
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(ABSENT)
    ours = ("DELTAWORKS_", "PYTEST_", "COV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(tmp_path / "absent"), str(Path(__file__).parents[3] / "lib")])
    return kept | {"PYTHONPATH": path}


def run(environment: dict[str, str], folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("what", ["import fcntl", "import pwd", "open('/proc/self/stat')", "import os; os.pidfd_open"])
def test_they_are_absent(environment: dict[str, str], tmp_path: Path, what: str) -> None:
    done = run(environment, tmp_path, "-c", what)

    assert done.returncode == 1
    assert any(word in done.stderr for word in ("No module named", "FileNotFoundError", "has no attribute"))


def test_a_topology_runs_in_the_test_driver(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, tmp_path, "-c", DRIVER)

    assert (done.stdout, done.stderr) == ("['B']\n", "")


@pytest.mark.thorough
def test_a_project_is_made_and_its_tests_pass(environment: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "streams"

    made = run(environment, tmp_path, "-m", "deltaworks.cli", "init", str(project))
    added = run(environment, project, "-m", "deltaworks.cli", "new", "pipeline", "refunds", "--shows", "join")
    tested = run(environment, project, "-m", "deltaworks.cli", "test", "-q", "--ignore-glob", "*_live.py")

    assert (made.returncode, added.returncode) == (0, 0), made.stderr + added.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "passed" in tested.stdout
