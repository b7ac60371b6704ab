"""The files of connectors in a project, in Python and in JSON, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deltaworks.connect import project
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

PYTHON = """\
from deltaworks.connect import FileSource

connector = FileSource(name="{name}", file="/data/lines.txt", topic="lines")
"""
LINES = '"/data/lines.txt"'
CONFIG = {"connector.class": "org.example.Sink", "tasks.max": "2", "topics": "a", "flag": True, "batch.size": 7}


class Project:
    """A project whose files are written by a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "jobs" / "connectors"
        self.folder.mkdir(parents=True)
        self.settings = Settings(project=folder, home=folder / "home", infra=folder, cache=folder)

    def python(self, name: str, text: str = PYTHON) -> None:
        (self.folder / f"{name}.py").write_text(text.replace("{name}", name))

    def json(self, name: str, document: Any) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        (self.folder / f"{name}.json").write_text(text)

    def refused(self, *names: str) -> str:
        with pytest.raises(ConfigurationError) as told:
            project.load_all(self.settings, names)
        return str(told.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def test_connectors_are_files(here: Project) -> None:
    here.python("lines")
    here.json("whole", {"name": "whole", "config": {**CONFIG, "name": "whole"}, "tasks": [], "type": "sink"})
    here.json("bare", CONFIG)
    (here.folder / "_common.py").write_text("shared = 1")
    (here.folder / "README.md").write_text("what these are")

    found = project.load_all(here.settings)

    assert list(found) == ["bare", "lines", "whole"]
    assert found["whole"].properties == {
        "name": "whole",
        "connector.class": "org.example.Sink",
        "tasks.max": "2",
        "topics": "a",
        "flag": "true",
        "batch.size": "7",
    }
    assert {**found["bare"].properties, "name": "whole"} == found["whole"].properties
    assert list(project.load_all(here.settings, ["lines"])) == ["lines"]


def test_a_project_may_have_none(here: Project) -> None:
    here.folder.rmdir()

    assert project.load_all(here.settings) == {}


def test_files_may_share_what_a_file_has_that_is_no_connector(here: Project) -> None:
    here.python("_common", 'FILE = "/data/lines.txt"')
    here.python("lines", f"from jobs.connectors._common import FILE\n{PYTHON.replace(LINES, 'FILE')}")

    assert project.load_all(here.settings)["lines"].config["file"] == "/data/lines.txt"


def test_a_number_of_tasks_that_json_does_not_say_is_not_sent(here: Project) -> None:
    here.json("bare", {"connector.class": "org.example.Sink"})

    assert project.load_all(here.settings)["bare"].properties == {
        "name": "bare",
        "connector.class": "org.example.Sink",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", 'jobs/connectors/a.py defines no connector.\n  Hint: connector = Connector(name="a", ...)'),
        ("connector = 7", "jobs/connectors/a.py defines a connector of type int."),
        (PYTHON.replace("{name}", "b"), "jobs/connectors/a.py has a connector named 'b'; its name must be that of"),
        ("import nothing_at_all", "jobs/connectors/a.py fails when it is imported: ModuleNotFoundError"),
        (PYTHON.replace("topic=", "topics="), "jobs/connectors/a.py fails when it is imported: TypeError"),
        (PYTHON.replace(LINES, "[]"), "has 'file' of type list; expected text, a number or a bool"),
    ],
)
def test_a_python_file_that_has_no_connector_is_named(here: Project, text: str, told: str) -> None:
    here.python("a", text)

    assert told in here.refused()


def test_an_error_of_a_connector_names_its_line(here: Project) -> None:
    here.python("a", "from deltaworks.connect import Connector\n\nconnector = Connector(name='a', class_='')\n")

    assert "Connector 'a' has no class.\n  at jobs/connectors/a.py:3" in here.refused()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ('{"connector.class": ', "jobs/connectors/a.json cannot be read: Expecting value"),
        ('{"x": 1, "x": 2}', "jobs/connectors/a.json cannot be read: 'x' is there twice"),
        ([1], "jobs/connectors/a.json is no JSON object."),
        ({"name": "a"}, "jobs/connectors/a.json has no 'connector.class'."),
        ({"name": "a", "config": [1]}, "jobs/connectors/a.json: 'config' is no object."),
        ({"name": "b", "config": CONFIG}, "has a connector named 'b'; its name must be that of the file"),
        ({**CONFIG, "name": "b"}, "has a connector named 'b'"),
        ({"name": "a", "config": {**CONFIG, "name": "b"}}, "has two names: a and b"),
        ({"config": CONFIG, "initial_state": "STOPPED"}, "has 'initial_state' beside 'name' and 'config'"),
        ({**CONFIG, "list": ["a"]}, "jobs/connectors/a.json: Connector 'a' has 'list' of type list"),
        ({**CONFIG, "none": None}, "has 'none' of type null; expected text, a number or a bool"),
        ({**CONFIG, "tasks.max": "many"}, "has tasks_max='many'"),
    ],
)
def test_a_json_file_that_cannot_be_used_is_named(here: Project, document: Any, told: str) -> None:
    here.json("a", document)

    assert told in here.refused()


def test_a_secret_in_json_is_refused_without_showing_it(here: Project) -> None:
    here.json("a", {**CONFIG, "connection.password": "hunter2"})

    told = here.refused()
    assert "has the secret 'connection.password' as text" in told and "${env:NAME}" in told
    assert "hunter2" not in told


def test_one_name_is_one_file(here: Project) -> None:
    here.python("lines")
    here.json("lines", CONFIG)

    assert "jobs/connectors/lines.json and jobs/connectors/lines.py are one connector 'lines'." in here.refused()


def test_a_name_that_a_connector_cannot_have_is_refused(here: Project) -> None:
    here.json("a.b", CONFIG)

    assert "'a.b' cannot be the name of a connector" in here.refused()


def test_all_files_that_fail_are_named_together(here: Project) -> None:
    here.python("a", "x = 1")
    here.json("b", "{")
    here.python("lines")

    told = here.refused()
    assert told.startswith("2 connectors cannot be loaded:\n  jobs/connectors/a.py defines no connector.")
    assert "\n  jobs/connectors/b.json cannot be read: " in told


def test_a_file_that_is_not_there_has_near_ones(here: Project) -> None:
    here.python("lines")

    assert "There is no connector 'linse' in" in here.refused("linse")
    assert "did you mean 'lines'?" in here.refused("linse")


def test_what_is_wrong_with_one_file_keeps_no_other_from_being_loaded(here: Project) -> None:
    here.python("lines")
    here.json("broken", "{")
    here.python("twice")
    here.json("twice", CONFIG)
    (here.folder / "no name.json").write_text(json.dumps(CONFIG))

    found = project.load_each(here.settings)

    assert list(found.connectors) == ["lines"]
    assert found.broken.keys() == {"broken", "twice", "no name"}
    assert "are one connector 'twice'" in found.broken["twice"]
    assert project.load(here.settings, "lines").name == "lines"
    assert "cannot be the name of a connector" in here.refused(), "but applying all of them is refused"
    with pytest.raises(ConfigurationError, match="There is no connector 'nowhere'"):
        project.load(here.settings, "nowhere")
