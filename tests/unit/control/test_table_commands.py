"""What is asked of the driver of a pipeline; `tests/hosts` carries it out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import Pipeline
from deltaworks.control import commands, table_commands
from deltaworks.control.commands import Answer, Command
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import TableError
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.lakehouse.publish.sink_changes import SinksRequest
from deltaworks.settings import Settings

PIPELINE = Pipeline(name="shop", topology=lambda builder: builder.stream("in", key=str, value=int).to_delta("t"))
PLAIN = PublicationRequest(
    run_id="run-1", pipeline="shop", code_version="c", batches=(0, 1), end_offsets={}, tables=("t",), requested_by="me"
)
WITH_SINKS = msgspec.structs.replace(PLAIN, sinks=SinksRequest(corrected={"search-t": "t"}, stale={}))


def told(request: PublicationRequest) -> Publication:
    return Publication(request=request, state="published", round=1, tables={}, begun_ms=0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of commands, which a driver from before there were sinks answers."""
    found: list[str] = []

    def wait(folder: Path, command: Command, **_: Any) -> Answer:
        found.append(command.kind)
        if command.kind in ("publish", "rollback"):
            return Answer(result=msgspec.to_builtins(told(PLAIN)), seconds=0.0, by="driver 1")
        return Answer(error=f"There is no command {command.kind!r}.", hint="versions", seconds=0.0, by="driver 1")

    monkeypatch.setattr(commands, "wait", wait)
    return found


def test_a_driver_that_does_not_know_of_sinks_refuses_a_publication_with_sinks(
    settings: Settings, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TableError, match=r"driver of 'shop' \(driver 1\) is of an older version .* Nothing has") as old:
        table_commands.publish(settings, PIPELINE, settings.home, WITH_SINKS)
    assert old.value.hint is not None and "deltaworks deploy shop" in old.value.hint
    monkeypatch.setattr(publication, "read", lambda *_: told(WITH_SINKS))
    with pytest.raises(TableError, match="leave the sinks of run run-1 as they are"):
        table_commands.rollback(settings, PIPELINE, "run-1", requested_by="me")

    assert asked == ["publish-with-sinks", "rollback-with-sinks"]


def test_it_publishes_what_has_no_sinks(settings: Settings, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert table_commands.publish(settings, PIPELINE, settings.home, PLAIN).round == 1
    monkeypatch.setattr(publication, "read", lambda *_: told(PLAIN))
    table_commands.rollback(settings, PIPELINE, "run-1", requested_by="me")
    monkeypatch.setattr(publication, "read", lambda *_: None)
    table_commands.rollback(settings, PIPELINE, "run-1", requested_by="me")

    assert asked == ["publish", "rollback", "rollback"]


@pytest.mark.parametrize("kind", ["publish", "publish-with-sinks", "rollback", "rollback-with-sinks", "repaint"])
def test_a_driver_of_this_version_knows_both(settings: Settings, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, committer = PipelinePaths.of(settings, "shop"), object()
    monkeypatch.setattr(publication, "publish", lambda *_: told(WITH_SINKS))
    monkeypatch.setattr(publication, "rollback", lambda *_: told(WITH_SINKS))
    arguments = {
        "run_id": "run-1",
        "staging": str(paths.replays / "run-1"),
        "request": msgspec.to_builtins(WITH_SINKS),
    }
    command = Command(id="c", kind=kind, arguments=arguments, requested_by="me", at_ms=0)

    if kind == "repaint":
        with pytest.raises(TableError, match=r"^There is no command 'repaint'\."):
            table_commands._execute(paths, committer, command)  # type: ignore[arg-type]
    else:
        assert table_commands._execute(paths, committer, command)["round"] == 1  # type: ignore[arg-type]
