"""Code of a project is asked in a process of its own, whatever it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deltaworks.control import edited, project_code
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from tests.support.homes import settings_of


class Said(msgspec.Struct):
    text: str


ANSWERS = """import atexit, sys
from deltaworks.control import project_code
from tests.unit.control.test_project_code import Said

print("before", flush=True)
atexit.register(print, '{"text": "after"}')
project_code.answer(Said(text=sys.stdin.read() + " ".join(sys.argv[1:])))
"""
ENDS = 'import os, sys\nprint("the password is missing", file=sys.stderr, flush=True)\nos._exit(3)\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = settings_of(tmp_path / "home", tmp_path)
    package = Path(project_code.__file__).parents[2]
    return replace(found, python_path=(package, tmp_path, Path(__file__).parents[3]))


def asked(settings: Settings, code: str, patience_s: int = 300) -> Said:
    (settings.project / "said.py").write_text(code)
    return project_code.ask(
        settings, "said", "a", "b", kind=Said, what="jobs/counts.py", patience_s=patience_s, folder=settings.project
    )


def test_what_the_code_prints_before_and_after_is_no_answer(settings: Settings) -> None:
    assert asked(settings, ANSWERS) == Said(text="a b")


@pytest.mark.parametrize("instead", ["sys.stdout = io.StringIO()", "sys.stdout.close()", "sys.stdout = None"])
def test_code_that_replaces_the_output_is_heard_all_the_same(settings: Settings, instead: str) -> None:
    assert asked(settings, ANSWERS.replace("atexit.register", f"import io; {instead} #")) == Said(text="a b")


@pytest.mark.parametrize(
    ("code", "patience_s", "error"),
    [
        (ENDS, 300, "The process that imports jobs/counts.py ended with exit code 3: the password is missing."),
        ("", 300, "The process that imports jobs/counts.py ended with exit code 0: it said nothing."),
        ("import time\ntime.sleep(600)\n", 1, "jobs/counts.py was not imported within 1 s."),
    ],
)
def test_code_that_gives_no_answer_is_told(settings: Settings, code: str, patience_s: int, error: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        asked(settings, code, patience_s)
    assert raised.value.message == error


@pytest.mark.parametrize(
    ("code", "reason"),
    [("raise ValueError('no rate')\n", "no rate"), ("import os\nos._exit(7)\n", "ended with exit code 7")],
)
def test_a_verdict_about_code_that_fails_says_why(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    monkeypatch.setattr(edited, "_PATIENCE_S", 600)
    settings.jobs.mkdir()
    (settings.jobs / "counts.py").write_text(code)

    verdict = edited.ask(settings, "counts")

    assert verdict.fit == "fails" and reason in verdict.reason
