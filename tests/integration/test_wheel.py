"""The wheel alone, in an environment that has only what it requires: the core, and the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from typing import get_args
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deltaworks.cli.projects import Kind

ROOT = Path(__file__).parents[2]
KINDS = list(enumerate(get_args(Kind)))
EXAMPLE = """
from datetime import timedelta
from deltaworks import Column, Pipeline, StreamsBuilder, TimeWindows
from deltaworks.testing import TopologyTestDriver

def topology(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str).group_by_key()
    counts = words.windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0))).count(store="counts")
    counts.to_delta("counts", key=Column("word", "The word"), value="times")

driver = TopologyTestDriver(Pipeline(name="words", topology=topology))
driver.create_input_topic("words", key=str, value=str).pipe_input("a", "", timestamp_ms=0)
table = driver.table("counts")
print([(window.key, count) for window, count in table.rows.items()])
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel and nothing that it does not require."""

    folder: Path

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment elsewhere, where the repository is out of sight."""
        environment = {"PATH": os.defpath, "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=self.folder if cwd is None else cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return built


def required(requirements: list[str], extra: str, found: set[str] | None = None) -> Iterator[str]:
    """Everything that is required, directly or not; it is installed here in the locked versions."""
    found = set() if found is None else found
    for each in map(Requirement, requirements):
        if (each.marker is not None and not each.marker.evaluate({"extra": extra})) or each.name == "deltaworks":
            continue
        name = each.name.lower()
        if name not in found:
            found.add(name)
            yield name
            yield from required(distribution(name).requires or [], "", found)


def environment(folder: Path, wheel: Path, extra: str, *others: str) -> Environment:
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (ours,) = (path for path in ZipPath(wheel).iterdir() if path.name.endswith(".dist-info"))
    for name in required([*(PathDistribution(ours).requires or []), *others], extra):
        for file in distribution(name).files or ():
            if not file.parts[0].startswith(".."):
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(file.locate())), target)
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    script = folder / "bin" / "deltaworks"
    script.write_text(f"#!{folder}/bin/python\nfrom deltaworks.cli import main\nmain()\n")
    script.chmod(0o755)
    return Environment(folder)


def test_the_core_builds_and_tests_a_topology(wheel: Path, tmp_path: Path) -> None:
    core = environment(tmp_path / "core", wheel, "")

    (site,) = core.folder.glob("lib/python*/site-packages")
    installed = {file.name for file in site.iterdir() if file.suffix == ".dist-info"}
    done = core.run("python", "-W", "error", "-c", EXAMPLE)
    columns = core.run("python", "-c", f"{EXAMPLE}\ntable.to_dicts()")
    command = core.run("deltaworks", "--help")

    assert len(installed) == 2, installed  # msgspec and deltaworks
    assert (done.stdout, done.stderr) == ("[('a', 1)]\n", "")
    assert "Hint: pip install 'deltaworks[delta]'" in columns.stderr
    assert (command.returncode, command.stdout) == (78, "")
    assert command.stderr == (
        "error: 'typer' is not installed, which deltaworks.cli needs.\n  Hint: pip install 'deltaworks[cli]'\n"
    )


def test_the_command_line_says_what_the_other_commands_need(wheel: Path, tmp_path: Path) -> None:
    cli = environment(tmp_path / "cli", wheel, "cli")

    shown, written = cli.run("deltaworks", "--help"), cli.run("deltaworks", "compose")
    hints = {
        command: cli.run("deltaworks", *command.split()).stderr.splitlines()[-1]
        for command in ("sql SELECT", "deploy orders", "quality orders", "replay orders", "up")
    }

    assert (shown.returncode, written.returncode) == (0, 0), shown.stderr + written.stderr
    assert "Kafka Streams topologies in Python" in shown.stdout
    assert hints == {
        command: f"  Hint: pip install 'deltaworks[{extra}]'"
        for command, extra in {
            "sql SELECT": "delta",
            "deploy orders": "control",
            "quality orders": "quality",
            "replay orders": "spark",
            "up": "stack",
        }.items()
    }


def test_a_new_project_is_green_with_the_core_and_pytest(wheel: Path, tmp_path: Path) -> None:
    cli = environment(tmp_path / "cli", wheel, "cli")
    core = environment(tmp_path / "core", wheel, "", "pytest")
    project = tmp_path / "my-streams"

    made = cli.run("deltaworks", "init", str(project))
    added = [cli.run("deltaworks", "new", "pipeline", f"p{n}", "--shows", kind, cwd=project) for n, kind in KINDS]
    tested = core.run("python", "-m", "pytest", "-q", cwd=project)
    refused = cli.run("deltaworks", "test", cwd=project)

    assert made.returncode == 0, made.stderr
    assert [each.stderr for each in added if each.returncode] == []
    pipelines = 1 + len(KINDS)
    assert f"{3 * pipelines} passed, {pipelines} skipped" in tested.stdout, tested.stdout + tested.stderr
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (78, "  Hint: pip install pytest")


def test_a_broker_in_a_container_needs_no_stack(wheel: Path, tmp_path: Path) -> None:
    containers = environment(tmp_path / "containers", wheel, "containers", "pytest")
    code = (
        "from deltaworks.pytest_plugin import container, live\n"
        "from deltaworks.runtime import consumer\n"
        "from deltaworks.testing import sample_data\n"
        "print(container.__name__)"
    )

    done = containers.run("python", "-c", code)

    assert done.stdout == "deltaworks.pytest_plugin.container\n", done.stderr


def test_the_lock_in_the_wheel_has_all_that_the_wheel_requires(wheel: Path) -> None:
    (ours,) = (path for path in ZipPath(wheel).iterdir() if path.name.endswith(".dist-info"))
    metadata = PathDistribution(ours)
    lock = ZipFile(wheel).read("deltaworks/_infra/runtime-constraints.txt").decode()
    extras = metadata.metadata.get_all("Provides-Extra") or []

    needed = {canonicalize_name(name) for extra in extras for name in required(metadata.requires or [], extra)}

    assert len(extras) > 5 and len(needed) > 100
    assert needed - {line.partition("==")[0] for line in lock.splitlines()} == set()


def test_the_wheel_has_all_that_runs(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())

    assert {
        "deltaworks/py.typed",
        "deltaworks/_infra/components.toml",
        "deltaworks/_infra/Dockerfile.jinja",
        "deltaworks/_infra/axonops/go.mod",
        "deltaworks/_infra/axonops/go.sum",
        "deltaworks/_infra/build-constraints.txt",
        "deltaworks/_infra/connect/transforms/META-INF/services/org.apache.kafka.connect.transforms.Transformation",
        "deltaworks/_infra/connect/transforms/deltaworks/connect/ChangeHeaders.java",
        "deltaworks/_infra/connect/worker.properties",
        "deltaworks/_infra/docker-compose.yml.jinja",
        "deltaworks/_infra/go-constraints.txt",
        "deltaworks/_infra/kubernetes/base/supervisor.yaml",
        "deltaworks/_infra/kubernetes/overlays/example/kustomization.yaml",
        "deltaworks/_infra/runtime-constraints.txt",
        "deltaworks/_infra/seaweedfs-constraints.txt",
        "deltaworks/_infra/jars/connect-plugins.lock",
        "deltaworks/_infra/jars/spark.lock",
        "deltaworks/control/migrations/env.py",
        "deltaworks/cli/project/job.py.jinja",
    } <= names
    assert not [name for name in names if name.startswith(("jobs/", "tests/", "tooling/"))]
