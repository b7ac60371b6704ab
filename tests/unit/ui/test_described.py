"""What code of a project says is asked for in processes that end, and again when that may help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks import clock
from deltaworks.control import jobs, project_code
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.ui.described import Pipelines
from deltaworks.ui.graph import Graph
from deltaworks.ui.told import Described, Told, Unreadable
from tests.support.homes import settings_of

SAID = Described(graph=Graph(boxes=(), lines=(), width=0, height=0), stores=(), tables=(), dead_letters=None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "counts.py").write_text("pipeline = None\n")
    return settings_of(tmp_path / "home", tmp_path)


def hangs() -> Told:
    raise ConfigurationError("jobs/counts.py was not imported within 60 s.")


def fails() -> Told:
    return Told(unreadable=Unreadable(error="it was not imported: a variable is not set"))


@pytest.mark.parametrize("first", [hangs, fails])
def test_code_that_fails_is_asked_again_after_a_while(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first: Callable[[], Told]
) -> None:
    now, asked = [1_000.0], list[str]()

    def answer(*_: object, **__: object) -> Told:
        asked.append("")
        return first() if len(asked) == 1 else Told(pipeline=SAID)

    monkeypatch.setattr(clock, "ticks_s", lambda: now[0])
    monkeypatch.setattr(project_code, "ask", answer)
    pipelines = Pipelines(settings)

    for _ in range(3):
        with pytest.raises(ConfigurationError, match="was not imported"):
            pipelines.described("counts")
    assert len(asked) == 1, "whoever asks meanwhile does not wait for the same"
    now[0] += 61.0
    assert pipelines.described("counts") is SAID
    now[0] += 1_000_000.0
    assert pipelines.described("counts") is SAID and len(asked) == 2


def test_a_link_to_nothing_is_no_code(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emacs makes one beside a file that somebody edits."""
    (settings.jobs / ".#counts.py").symlink_to("ada@host.4711:1")
    monkeypatch.setattr(project_code, "ask", lambda *_, **__: Told(pipeline=SAID))

    assert Pipelines(settings).described("counts") is SAID
    assert jobs.names(settings) == ["counts"]
