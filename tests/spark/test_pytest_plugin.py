"""The fixtures for integration tests, as a new project uses them: a real Kafka, Spark and Delta tables."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from deltaworks.cli.projects import Kind
from deltaworks.stack.components import read_components

ROOT = Path(__file__).parents[2]
FAILING = """
import pytest
from deltaworks import Pipeline, StreamsBuilder
from deltaworks.pytest_plugin.live import StreamEndedError


def upper(text: str) -> str:
    if text == "bad":
        raise ValueError("no word")
    return text.upper()


def topology(builder: StreamsBuilder) -> None:
    builder.stream("words", key=str, value=str).map_values(upper).to("loud")


def test_topics_are_read(kafka, stream):
    kafka.produce("words", [("k", "a"), ("k", "b")])
    stream(Pipeline(name="loud", topology=topology))
    assert [record.value for record in kafka.read("loud", key=str, value=str)] == ["A", "B"]


def test_a_stream_that_fails_says_why(kafka, stream, tables):
    kafka.produce("words", [("k", "bad")])
    with pytest.raises(StreamEndedError, match="exit code 65") as error:
        stream(Pipeline(name="loud", topology=topology))
    assert "ValueError: no word" in str(error.value)
    assert list(tables) == []
    with pytest.raises(KeyError, match="there is no Delta table 'loud'; there are: none yet"):
        tables["loud"]
"""


ENGINE = """
from pathlib import Path

import pytest
from tests.support.docker_engine import answering


@pytest.fixture(scope="session", autouse=True)
def engine():
    with answering(Path("containers").absolute()) as engine:
        yield
    told = "".join(f"{line}\\n" for line in engine.told)
    Path("told").write_text(told + "".join(container.status for container in engine.made))
"""


@dataclass(frozen=True)
class Project:
    """A new one, and its tests."""

    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        ours = ("DELTAWORKS_", "PYTEST_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def add(self, name: str, content: str) -> None:
        (self.folder / "tests").mkdir(exist_ok=True)
        (self.folder / "tests" / name).write_text(content)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_project_tests_its_pipelines_on_the_real_thing(project: Project) -> None:
    kinds = get_args(Kind)
    made = [project.run("deltaworks.cli", "init", "--pipeline", "sales")]
    for number, kind in enumerate(kinds[1:]):
        made.append(project.run("deltaworks.cli", "new", "pipeline", f"p{number}", "--shows", kind))
    made.append(project.run("deltaworks.cli", "new", "batch", "daily_sales", "--reads", "sales_revenue"))
    project.add("test_words_live.py", FAILING)
    tested = project.run("pytest", "-q")

    assert [each.stderr for each in made if each.returncode] == []
    assert f"{3 + 4 * len(kinds)} passed" in tested.stdout, tested.stdout + tested.stderr


def test_a_stream_writes_exactly_once_into_a_broker_in_a_container(project: Project) -> None:
    project.add("conftest.py", ENGINE)
    project.add("test_words_live.py", FAILING)

    tested = project.run("pytest", "-q", "--deltaworks-kafka", "container", "-k", "topics_are_read")

    image = read_components(ROOT / "infra").software["kafka"].image
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
    assert (project.folder / "told").read_text().splitlines() == [f"image {image}", "started", "removed", "exited"]
