"""The process that reads state for a driver; what it reads: `tests/spark/test_widening.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import exits
from deltaworks.control import children
from deltaworks.control.children import ToldToStopError
from deltaworks.errors import QueryError
from deltaworks.settings import Settings
from deltaworks.spark import state_reader, stored_state
from deltaworks.spark.state_reader import StateReader


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path, cores=3)


def in_process(monkeypatch: pytest.MonkeyPatch, settings: Settings, read: Callable[..., None]) -> None:
    """The child runs in this process, with the settings that it is given."""

    def run(command: Sequence[str], environment: Mapping[str, str], **_: object) -> int:
        assert command[1:3] == ["-m", "deltaworks.spark.state_reader"]
        found = Settings.from_environment(environment)
        assert (found.home, found.cores) == (settings.home, settings.cores)
        with monkeypatch.context() as patch:
            patch.setattr(Settings, "from_environment", classmethod(lambda cls: found))
            return state_reader.main(command[3], *map(Path, command[4:]))

    monkeypatch.setattr(children, "run", run)
    monkeypatch.setattr(stored_state, "read", read)


def read_by(settings: Settings, *, told: bool = False) -> None:
    reader = StateReader(lambda: told, lambda _: None)
    scratch = settings.home / "scratch"
    reader(settings, "p", settings.home / "pipelines" / "p" / "checkpoint", scratch / "segments", scratch / "spark")


def test_it_reads_the_checkpoint_that_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    in_process(monkeypatch, settings, lambda *arguments: seen.extend(arguments[1:]))

    read_by(settings)

    scratch = settings.home / "scratch"
    assert seen == ["p", settings.home / "pipelines" / "p" / "checkpoint", scratch / "segments", scratch / "spark"]


def test_its_failure_is_ours(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise QueryError("a file is torn")

    in_process(monkeypatch, settings, read)
    with pytest.raises(QueryError, match=r"reads the state of 'p' at .*checkpoint ended with 70: a file is torn"):
        read_by(settings)


def test_a_process_that_was_killed_leaves_no_reason(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "run", lambda *_, **__: -9)
    with pytest.raises(QueryError, match="ended with -9: it left no reason"):
        read_by(settings)


def test_who_is_told_to_stop_does_not_go_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "run", lambda *_, **__: exits.OK)
    with pytest.raises(ToldToStopError):
        read_by(settings, told=True)
