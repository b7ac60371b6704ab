"""`run` leaves word of its end in every case; what the others do is tested with the real actions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import Pipeline, StreamsBuilder, exits
from deltaworks.cli import app as cli
from deltaworks.cli.pipelines import _leaves_word, records_present
from deltaworks.control import actions, fence, outcome
from deltaworks.control.outcome import Outcome
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import KafkaReadError, LeaseError, StreamsError
from deltaworks.kafka import admin
from deltaworks.settings import Settings

PIPELINE = 'from deltaworks import Pipeline\npipeline = Pipeline(name="p", topology=lambda builder: None)\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)}), home=tmp_path / "home")


def word(settings: Settings, generation: int) -> Outcome | None:
    return outcome.read(PipelinePaths.of(settings, "p").outcome(generation))


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (StreamsError("the function raised"), exits.DATA, "the function raised"),
        (KafkaReadError("no answer", hint="wait"), exits.UNAVAILABLE, "no answer\n  Hint: wait"),
        (LeaseError("it runs"), exits.LEASE, "it runs"),
        (ZeroDivisionError("division"), exits.INTERNAL, "ZeroDivisionError: division"),
        (KeyboardInterrupt(), exits.INTERRUPTED, "interrupted"),
    ],
)
def test_every_end_is_noted(settings: Settings, error: BaseException, code: int, reason: str) -> None:
    with pytest.raises(type(error)), _leaves_word(PipelinePaths.of(settings, "p").outcome(3), 3, deployed=True):
        raise error

    seen = word(settings, 3)
    assert seen is not None and (seen.generation, seen.exit_code, seen.reason) == (3, code, reason)


def test_a_good_end_is_noted_too(settings: Settings) -> None:
    with _leaves_word(PipelinePaths.of(settings, "p").outcome(3), 3, deployed=True):
        pass

    seen = word(settings, 3)
    assert seen is not None and (seen.exit_code, seen.reason) == (exits.OK, None)


def test_a_run_that_was_not_let_in_says_nothing_about_a_number_that_is_not_its_own(settings: Settings) -> None:
    with pytest.raises(LeaseError), _leaves_word(PipelinePaths.of(settings, "p").outcome(4), 4, deployed=False):
        raise LeaseError("generation 3 runs")

    assert word(settings, 4) is None


def test_the_records_of_global_tables_are_present_too(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def topology(builder: StreamsBuilder) -> None:
        cities = builder.global_table("cities", key=str, value=str, store="cities")
        orders = builder.stream("orders", key=str, value=str)
        orders.join(cities, lambda order, city: order, selector=lambda _, order: order, value=str).to("placed")

    monkeypatch.setattr(admin, "end_offsets", lambda _, topics: {(topic, 0): 7 for topic in topics})

    present = records_present(settings, Pipeline(name="p", topology=topology))

    assert present == {("orders", 0): 7, ("cities", 0): 7}


@pytest.fixture
def command(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    (settings.project / "jobs").mkdir()
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(settings.project))
    monkeypatch.setenv("DELTAWORKS_HOME", str(settings.home))
    monkeypatch.setenv("DELTAWORKS_RUN_FROM", "source")
    monkeypatch.setenv("DELTAWORKS_CONTROL_URL", "postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    yield settings


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_a_deployed_driver_of_a_pipeline_that_is_gone_says_so(
    command: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "run", "p", "--generation", "2") == exits.CONFIG

    seen = word(command, 2)
    assert seen is not None and seen.exit_code == exits.CONFIG
    assert seen.reason is not None and "There is no" in seen.reason


def test_status_works_without_the_registry_and_says_so(
    command: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = PipelinePaths.of(command, "p")
    fence.advance(paths.fence, 4, "p")
    outcome.write(paths.outcome(4), 4, exits.DATA, "a record failed\n  Hint: look")

    assert call(monkeypatch, "status") == 0

    shown = capsys.readouterr().out
    assert "This is only what this host knows. The registry (PostgreSQL) does not answer" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("p ")]
    assert line.split()[:3] == ["p", "failed", "4"]
    assert line.rstrip().endswith("a record failed")


def test_deploy_without_the_registry_changes_nothing(
    command: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (command.project / "jobs" / "p.py").write_text(PIPELINE)

    assert call(monkeypatch, "restart", "p") == exits.UNAVAILABLE

    assert "deltaworks up" in capsys.readouterr().err
    assert not command.home.exists()


def test_traces_that_cannot_be_sent_stop_a_deployment_before_anything_changes(
    command: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (command.project / "deltaworks.toml").write_text('[traces]\nendpoint = { env = "NOWHERE" }\n')
    asked: list[str] = []
    monkeypatch.setattr(actions, "preflight", lambda *_, **__: asked.append("preflight"))
    monkeypatch.setattr(actions, "deploy", lambda *_, **__: asked.append("deploy"))

    assert call(monkeypatch, "deploy", "p") == exits.CONFIG

    assert "NOWHERE, which is not set" in " ".join(capsys.readouterr().err.split())
    assert asked == []


@pytest.mark.parametrize("arguments", [("topology", "p"), ("run", "p"), ("deploy", "p")])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            PIPELINE.replace("lambda builder: None", "lambda builder: (\n    builder.strem('words'))"),
            "StreamsBuilder has no operator 'strem'.\n    at {job}:3\n    Hint: stream(...)",
        ),
        (
            "from deltaworks import Stores\n\nStores.keyValueStoreBuilder()\n",
            "at {job}:3\n  Hint: Stores.key_value('name', key=str, value=int)",
        ),
        ("import deltaworks\npipeline = (\n", "SyntaxError: '(' was never closed.\n  at {job}:2"),
    ],
    ids=["topology", "module", "syntax"],
)
def test_a_mistake_in_a_job_is_told_with_its_line_and_without_a_traceback(
    arguments: tuple[str, ...],
    code: str,
    told: str,
    command: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = command.project / "jobs" / "p.py"
    job.write_text(code)
    monkeypatch.setattr(sys, "path", [str(command.project), *sys.path])
    for name in [each for each in sys.modules if each.split(".")[0] == "jobs"]:
        monkeypatch.delitem(sys.modules, name)

    assert call(monkeypatch, *arguments) == exits.CONFIG

    shown = capsys.readouterr().err
    assert told.format(job=job) in "\n".join(line.rstrip() for line in shown.splitlines())
    assert "Traceback" not in shown
