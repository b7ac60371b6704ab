"""Questions that nobody has answered are incidents, and their notes go when they do not wait any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deltaworks.control import questions
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.questions import Question
from deltaworks.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    return Settings.from_environment()


def question(run: str, pipeline: str = "orders") -> Question:
    return Question(pipeline=pipeline, dag="streams__dead_letters", run=run, task="approve", what=f"{run} waits")


def test_a_question_is_an_incident_while_it_waits(settings: Settings) -> None:
    for each in (question("manual__1"), question("manual__2"), question("manual__1"), question("manual__1", "clicks")):
        questions.note(settings, each)

    found = questions.waiting(settings, lambda _: True)
    left = questions.waiting(settings, lambda asked: asked.run == "manual__2")

    assert len(found) == 3
    assert {(each.pipeline, each.kind, each.place) for each in found} == {
        ("orders", "approval_waits", "streams__dead_letters/runs/manual__1"),
        ("orders", "approval_waits", "streams__dead_letters/runs/manual__2"),
        ("clicks", "approval_waits", "streams__dead_letters/runs/manual__1"),
    }
    assert [each.what for each in left] == ["manual__2 waits"]
    assert questions.waiting(settings, lambda _: True) == left


def test_a_question_of_another_version_is_left_alone(settings: Settings) -> None:
    questions.note(settings, question("manual__1"))
    [path] = PipelinePaths.of(settings, "orders").questions.iterdir()
    path.write_bytes(msgspec.json.encode({"format": 2, "of": "later"}))

    assert questions.waiting(settings, lambda _: False) == []
    assert path.exists()
