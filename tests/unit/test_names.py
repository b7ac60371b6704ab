"""What may be a name, and every border at which one from outside becomes part of a path."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import names
from deltaworks.cli import replay
from deltaworks.control import code, commands, jobs, overview, table_commands
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, TableError
from deltaworks.lakehouse import repair
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.retained import RetainedFiles
from deltaworks.names import Rule
from deltaworks.object_path import ObjectPath
from deltaworks.replay import handover, runs
from deltaworks.replay.model import ReplayPaths
from deltaworks.runtime.replay import sorted_files
from deltaworks.settings import Settings
from deltaworks.stack import airflow_api, lifecycle

RULES = [rule for rule in vars(names).values() if isinstance(rule, Rule)]
ELSEWHERE = [
    "",
    ".",
    "..",
    "../../other",
    "a/../../other",
    "/etc",
    "a/b",
    "a\\b",
    "a\0b",
    "a\n",
    "\u202ename",
    "a" * 300,
]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path)
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_no_rule_allows_a_name_that_is_not_one_part_of_a_path(rule: Rule, name: str) -> None:
    assert not rule.allows(name)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (names.PIPELINE, "orders-2_b"),
        (names.TOPIC, "..."),
        (names.TOPIC, "a" * 249),
        (names.STORE, "-a._"),
        (names.TABLE, "_archive"),
        (names.MODULE, "sample_data"),
        (names.RUN, "20261122T103000-a1b2c3"),
        (names.RUN, "manual-2026-11-24T10-00-00-00-00-0123abcd-2"),
        (names.RUN, "5c2f4b8e-0d59-4f0c-8b3c-9f1a7a3f9a11"),
        (names.FILE, "replay-20261122T103000-a1b2c3"),
    ],
)
def test_names_that_are_in_use_are_allowed(rule: Rule, name: str) -> None:
    assert rule.checked(name) == name


def test_the_error_says_what_where_and_what_is_valid() -> None:
    with pytest.raises(ConfigurationError) as raised:
        names.RUN.checked("../x", Path("/data/replays"))

    assert raised.value.message == "'../x' cannot be the id of a replay, or of a checkpoint in /data/replays."
    assert raised.value.hint == "use letters, digits, '.', '_' and '-', as `deltaworks replays` shows them"


BORDERS: dict[str, Callable[[Settings, str], object]] = {
    "pipeline": lambda settings, name: PipelinePaths.of(settings, name),
    "replays": lambda settings, name: replay.replays(name),
    "status": lambda settings, name: overview.overview(settings, name),
    "job": lambda settings, name: jobs.load(settings, name),
    "module of a job": lambda settings, name: jobs.load_module(settings, f"quality.{name}"),
    "log": lambda settings, name: lifecycle.log_of(settings, name),
    "line": lambda settings, name: paths(settings).checkpoint_of(name),
    "hand-over": lambda settings, name: paths(settings).handover(name),
    "replay": lambda settings, name: ReplayPaths.of(paths(settings), name),
    "find a replay": lambda settings, name: runs.find(settings, name),
    "discard": lambda settings, name: runs.discard(settings, name),
    "publication": lambda settings, name: runs.publication_of(settings, name),
    "roll back a hand-over": lambda settings, name: handover.record_of(settings, name),
    "record of a publication": lambda settings, name: publication._read(paths(settings).publications, name),
    "kept files": lambda settings, name: RetainedFiles(settings.tables / "orders", keep_ms=0).forget(name),
    "table": lambda settings, name: repair.plan(settings.tables, name),
    "records by time": lambda settings, name: sorted_files._Writer(settings.home, (name, 0)),
    "code": lambda settings, name: code.find(settings, name),
    "answer": lambda settings, name: commands._answer_path(paths(settings).commands, name),
}


def paths(settings: Settings) -> PipelinePaths:
    return PipelinePaths.of(settings, "orders")


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("name", ["../../other", "..", "", "/etc/passwd"])
def test_a_name_that_leads_elsewhere_is_refused_at_every_border(settings: Settings, border: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be the (name|id) of"):
        BORDERS[border](settings, name)


def test_a_command_whose_id_is_not_its_file_is_set_aside_and_no_answer_is_written_elsewhere(settings: Settings) -> None:
    folder = paths(settings).commands
    folder.mkdir(parents=True)
    told = {"id": "../../../other", "kind": "publish", "arguments": {}, "requested_by": "x", "at_ms": 0}
    (folder / "publish-1.command.json").write_text(json.dumps(told))

    assert list(commands.pending(folder)) == []

    assert sorted(path.name for path in folder.iterdir()) == [
        "publish-1.answer.json",
        "publish-1.command.json.unreadable",
    ]
    assert "is not the name of the file" in (folder / "publish-1.answer.json").read_text()


def test_ids_are_one_part_of_the_path_of_a_request_to_airflow() -> None:
    assert airflow_api._task("a/b", "r/c", "t?x") == "/api/v2/dags/a%2Fb/dagRuns/r%2Fc/taskInstances/t%3Fx"


def test_staging_tables_are_those_of_a_replay_of_the_pipeline(settings: Settings) -> None:
    own = paths(settings)

    assert table_commands._staging(own, str(own.replays / "r" / "tables")) == own.replays / "r" / "tables"
    in_store = replace(own, lasting=ObjectPath("s3://lake/d/pipelines/orders"))
    staging = "s3://lake/d/pipelines/orders/replays/r/tables"
    assert table_commands._staging(in_store, staging) == ObjectPath(staging)
    for other in ("s3://lake/d/tables", "s3://lake/d/pipelines/other/replays/r/tables", f"{staging}/../../../../x"):
        with pytest.raises(TableError, match="holds no staging tables"):
            table_commands._staging(in_store, other)
    for elsewhere in (settings.tables, own.replays / ".." / ".." / "other" / "replays", Path("/etc")):
        with pytest.raises(TableError, match="holds no staging tables"):
            table_commands._staging(own, str(elsewhere))
