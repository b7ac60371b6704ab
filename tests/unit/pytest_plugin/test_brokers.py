"""Which broker the fixture `kafka` starts, and what is told where none is possible."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.pytest_plugin import brokers, container
from deltaworks.settings import Settings
from tests.support.docker_engine import answering


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been started; both kinds are possible."""
    found: list[str] = []

    @contextmanager
    def native(home: Path) -> Iterator[str]:
        found.append("native")
        yield "native"

    @contextmanager
    def in_container(settings: Settings) -> Iterator[str]:
        found.append("container")
        yield "127.0.0.1:32768"

    monkeypatch.setattr(brokers, "_native", native)
    monkeypatch.setattr("deltaworks.stack.java.find_java", lambda *_: None)
    monkeypatch.setattr(container, "broker", in_container)
    monkeypatch.setattr(container, "engine_error", lambda: None)
    return found


def without(package: str, importing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package were not installed; a module of ours that imports it is not imported yet."""
    above, _, name = importing.rpartition(".")
    monkeypatch.delattr(sys.modules[above], name)
    monkeypatch.delitem(sys.modules, importing)
    for each in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, each, None)


def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_java(*_: object) -> None:
        raise ConfigurationError("Spark and Kafka need Java 17 or 21.")

    monkeypatch.setattr("deltaworks.stack.java.find_java", find_java)


def start(kind: str, home: Path) -> None:
    with brokers.running(kind, home):
        pass


def test_the_native_broker_comes_first(started: list[str], tmp_path: Path) -> None:
    start("auto", tmp_path)

    assert started == ["native"]


def test_without_the_stack_it_is_a_container(
    started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without("psutil", "deltaworks.stack.lifecycle", monkeypatch)

    with brokers.running("auto", tmp_path) as settings:
        assert (settings.bootstrap, settings.home) == ("127.0.0.1:32768", tmp_path)
    assert started == ["container"]


def test_without_java_it_is_a_container(started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_java(monkeypatch)

    start("auto", tmp_path)

    assert started == ["container"]


@pytest.mark.parametrize("kind", ["native", "container"])
def test_it_may_be_chosen(kind: str, started: list[str], tmp_path: Path) -> None:
    start(kind, tmp_path)

    assert started == [kind]


def test_where_nothing_is_possible_both_ways_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_java(monkeypatch)
    without("testcontainers", "deltaworks.pytest_plugin.container", monkeypatch)

    with pytest.raises(ConfigurationError) as raised:
        start("auto", tmp_path)

    assert str(raised.value) == (
        "There is no Kafka for these tests.\n"
        "  native: Spark and Kafka need Java 17 or 21.\n"
        "  container: 'testcontainers' is not installed\n"
        "  Hint: either pip install 'deltaworks[stack]' and Java, or pip install 'deltaworks[containers]' and Docker"
    )


def test_what_was_chosen_is_not_replaced(started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(container, "engine_error", lambda: "no Docker engine answers: refused")

    with pytest.raises(ConfigurationError, match=r"container: no Docker engine answers: refused"):
        start("container", tmp_path)
    assert started == []


def test_an_engine_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")

    with warnings.catch_warnings():  # the client leaves its socket open
        warnings.simplefilter("ignore")
        error = container.engine_error()
        gc.collect()

    assert error is not None and error.startswith("no Docker engine answers: ")


def test_an_engine_that_answers_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()

    with answering(tmp_path):
        assert container.engine_error() is None


def test_a_container_that_ends_is_told_with_its_log_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(container, "answers", lambda _: False)
    command = f"{sys.executable} -c \"print('no room'); import sys; sys.exit(1)\""

    with answering(tmp_path, command) as engine, pytest.raises(StackError, match=r"has ended \(exited\)") as raised:
        start("container", tmp_path / "home")

    assert raised.value.log == ("no room",)
    assert engine.told[-1] == "removed"


def run_in(project: Path, configuration: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The tests of a project that prints which broker is chosen."""
    (project / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{configuration}\n")
    (project / "conftest.py").write_text(
        "import contextlib\n"
        "from deltaworks.pytest_plugin import brokers\n"
        "brokers.running = lambda kind, home: contextlib.nullcontext(print('broker:', kind))\n"
    )
    (project / "test_one.py").write_text("def test_one(deltaworks_broker):\n    pass\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_option_wins_over_the_configuration_and_that_over_the_default(tmp_path: Path) -> None:
    configured = 'deltaworks_kafka = "container"'

    assert "broker: auto" in run_in(tmp_path, "").stdout
    assert "broker: container" in run_in(tmp_path, configured).stdout
    assert "broker: native" in run_in(tmp_path, configured, "--deltaworks-kafka=native").stdout


def test_an_unknown_kind_is_refused_at_once(tmp_path: Path) -> None:
    done = run_in(tmp_path, 'deltaworks_kafka = "docker"')

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "deltaworks_kafka is 'docker'; it must be one of auto, native, container" in done.stderr
