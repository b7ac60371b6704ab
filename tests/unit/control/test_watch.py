"""What a look at everything records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deltaworks.control import incidents, watch
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import Finding, Incident, Kind
from deltaworks.control.model import Observation, Overview, PipelineStatus
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings


class Book:
    """Takes notes of what is recorded."""

    found: list[Finding]
    looked_at: Callable[[Incident], bool]
    how: Callable[[Incident], str]

    def trends(self, beats: object) -> dict[str, Any]:
        return {}

    def settle(self, found: list[Finding], looked_at: Any, how: Any) -> None:
        self.found, self.looked_at, self.how = found, looked_at, how


def status(name: str, state: Any, desired: Any = "running") -> PipelineStatus:
    seen = Observation(pipeline=name, generation=1, state=state)
    return PipelineStatus(name=name, desired=desired, seen=seen, for_s=1.0, restarts=0, reason=None)


def incident(kind: Kind, pipeline: str = "") -> Incident:
    return Incident(id=1, pipeline=pipeline, kind=kind, what="so it is", opened_at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def watched(monkeypatch: pytest.MonkeyPatch, settings: Settings, problem: str | None = None) -> Book:
    book = Book()
    all_of_them = [status("broken", "dead"), status("hidden", "unknown"), status("idle", "stopped", "stopped")]
    seen = Overview(pipelines=all_of_them, deployments=[], registry_problem=problem)
    monkeypatch.setattr(watch, "overview", lambda *_, **__: seen)
    monkeypatch.setattr(IncidentBook, "of", lambda settings: book)
    monkeypatch.setattr(incidents, "of_home", lambda home: [])
    asks = Finding(pipeline="idle", kind="approval_waits", key="r", what="it waits")
    watch.watch(settings, [asks], ["approval_waits"])
    return book


def test_everything_that_was_found_is_recorded(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    book = watched(monkeypatch, settings)

    assert [(each.pipeline, each.kind) for each in book.found if each.opens] == [
        ("idle", "approval_waits"),
        ("broken", "failed"),
    ]


def test_only_what_was_looked_at_can_end(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    book = watched(monkeypatch, settings)

    assert book.looked_at(incident("lagging", "broken")) and book.looked_at(incident("lagging", "idle"))
    assert not book.looked_at(incident("lagging", "hidden"))
    assert book.looked_at(incident("disk_filling")) and book.looked_at(incident("approval_waits", "hidden"))
    assert not book.looked_at(incident("quality_failed", "idle"))


def test_a_stream_that_was_stopped_has_not_recovered(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    book = watched(monkeypatch, settings)

    assert book.how(incident("failed", "idle")) == "the stream was stopped"
    assert book.how(incident("approval_waits", "idle")) == "it was answered"
    assert book.how(incident("failed", "broken")) == "it has recovered"


def test_without_a_registry_nothing_is_known(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    with pytest.raises(ControlUnavailableError, match="away"):
        watched(monkeypatch, settings, problem="away")
