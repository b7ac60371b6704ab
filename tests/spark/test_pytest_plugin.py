"""The fixtures for integration tests, as a new project uses them: a real Kafka, Spark and Delta tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_new_project_tests_its_pipeline_on_the_real_thing(tmp_path: Path) -> None:
    ours = ("DELTAWORKS_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    made = run("deltaworks.cli", "init", "--pipeline", "sales")
    (tmp_path / "tests" / "test_words_live.py").write_text(FAILING)
    tested = run("pytest", "-q")

    assert made.returncode == 0, made.stderr
    assert "6 passed" in tested.stdout, tested.stdout + tested.stderr
