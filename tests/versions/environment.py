"""An environment with the wheel in other versions of its dependencies, and the tests in a folder without `lib/`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tests.versions.rows import Row

ROOT = Path(__file__).parents[2]
_UV = Path(sysconfig.get_path("scripts")) / "uv"
_TOOLS = {"hypothesis", "mypy", "pytest", "pytest-timeout", "pytest-xdist", "ruff"}
"""What the tests themselves need, of the group `dev`."""
_PLUGIN = "tests.versions.plugin"


class Failed(Exception):
    """A command failed; the message has what it said last."""


@dataclass(frozen=True)
class Environment:
    """A folder with the environment, and with the tests beside it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def tests(self) -> Path:
        """The files of the clone; `lib/` has the installed package."""
        return self.folder / "tests"

    def versions(self) -> dict[str, str]:
        """Package -> version, of all that is installed."""
        return dict(re.findall(r"^([^=\n]+)==(.+)$", _run(_UV, "pip", "freeze", "--python", self.python), re.MULTILINE))

    def pytest(self, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Runs some tests against the installed package."""
        options = ("-q", "-n", "2", "--no-header", "--tb=short", "-o", "pythonpath=.", "-p", _PLUGIN)
        return subprocess.run(
            [self.python, "-m", "pytest", *options, *tests],
            cwd=self.tests,
            env=_surroundings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def build(folder: Path) -> Path:
    """Builds the wheel."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make(folder: Path, row: Row, wheel: Path) -> Environment:
    """Installs the wheel with the versions of a row.

    Raises:
        Failed: no set of versions fits together, or something cannot be downloaded, built or installed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = Environment(folder)
    _run(_UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    (folder / "tools.txt").write_text("\n".join([*_tools(), *row.also]))
    (folder / "constraints.txt").write_text("\n".join(row.constraints))
    resolved = folder / "resolved.txt"
    _run(
        *(_UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", made.python),
        *(option for extra in row.extras for option in ("--extra", extra)),
        *("--resolution", "lowest-direct" if row.lowest else "highest"),
        *("--constraints", folder / "constraints.txt", "--output-file", resolved),
        *("pyproject.toml", folder / "tools.txt"),
    )
    _run(_UV, "pip", "install", "--quiet", "--python", made.python, "-r", resolved)
    _run(_UV, "pip", "install", "--quiet", "--python", made.python, "--no-deps", wheel)
    _run(_UV, "pip", "check", "--python", made.python)
    _lay(made)
    return made


@contextmanager
def environment(folder: Path, row: Row, wheel: Path) -> Iterator[Environment]:
    """Makes the environment of a row, see `make`; it stays if something fails."""
    yield make(folder, row, wheel)
    shutil.rmtree(folder)


def _tools() -> list[str]:
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    return [each for each in group if Requirement(each).name in _TOOLS]


def _lay(made: Environment) -> None:
    """Copies the clone, but for `lib/`: tests that look for the package there find the installed one."""
    listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for file in filter(None, listed.split("\0")):
        if not file.startswith("lib/") and (ROOT / file).is_file():
            (made.tests / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, made.tests / file)
    (site,) = made.folder.glob("venv/lib/python*/site-packages")
    (made.tests / "lib").mkdir()
    (made.tests / "lib" / "deltaworks").symlink_to(site / "deltaworks")
    _run("git", "init", "--quiet", made.tests)  # tests ask git for the files of the repository


def _surroundings() -> dict[str, str]:
    """Our environment without what would lead to the clone's own packages or change pytest."""
    ours = ("DELTAWORKS_", "PYTEST_", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, env=_surroundings(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command[:3]))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
