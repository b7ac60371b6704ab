"""What `deltaworks sinks` says and does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deltaworks.cli import listings
from deltaworks.lakehouse.publish import sink_changes, stale_sinks
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, TableRows
from tests.unit.cli.test_documents import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, tmp_path, capsys)


@pytest.fixture
def publications(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines" / "orders" / "publications"
    found.mkdir(parents=True)
    return found


def wait_for(publications: Path, sink: str) -> None:
    """What a publication has left to do."""
    table = TableRows(rows=1, columns=("key",), identity=("key",), as_of_batch=3)
    kept = KeptSinks(
        run_id="run-2",
        action="publish",
        round=1,
        tables={"counts": table},
        corrected={sink: "counts"},
        stale={},
        made_ms=1,
        released_ms=60_000,
    )
    sink_changes.KEEPING.save(sink_changes.KEEPING.folder_of(publications, "run-2", "publish", 1), kept)


def states(terminal: Terminal, *arguments: str) -> list[tuple[str, str, str, str]]:
    found = msgspec.json.decode(terminal("sinks", *arguments, "--json"), type=listings.Sinks)
    return [(each.pipeline, each.sink, each.state, each.action) for each in found.sinks]


def test_sinks_behind_the_tables_are_listed_and_shown_by_status(terminal: Terminal, publications: Path) -> None:
    assert "Each sink is what the tables show." in terminal("sinks")
    stale_sinks.mark(publications, "files", "run-1", "publish", "files are never changed")
    wait_for(publications, "search-counts")

    assert (
        states(terminal, "orders")
        == states(terminal)
        == [
            ("orders", "files", "stale", "publish"),
            ("orders", "search-counts", "waiting", "publish"),
        ]
    )
    shown = terminal("sinks")
    assert "Sinks behind the tables" in shown and "run-1" in shown and "never changed" in shown
    assert "Sinks behind the tables" in terminal("status")
    status = msgspec.json.decode(terminal("status", "--json"), type=listings.Status)
    assert [each.sink for each in status.sinks] == ["files", "search-counts"]


def test_a_sink_that_was_written_anew_is_stale_no_longer(terminal: Terminal, publications: Path) -> None:
    for run in ("run-1", "run-2"):
        stale_sinks.mark(publications, "files", run, "publish", "files are never changed")

    assert "Sink 'other' of 'orders' is not stale" in " ".join(
        terminal("sinks", "orders", "--written", "other", code=78).split()
    )
    assert len(states(terminal)) == 2
    terminal("sinks", "orders", "--written", "files")
    assert states(terminal) == []


def test_a_sink_whose_corrections_wait_is_not_written_anew_before_they_are_given_up(
    terminal: Terminal, publications: Path
) -> None:
    wait_for(publications, "search-counts")
    stale_sinks.mark(publications, "search-counts", "run-1", "publish", "of the test")

    refused = " ".join(terminal("sinks", "orders", "--written", "search-counts", code=75).split())
    assert "Corrections of run-2/publish-1 wait for sink 'search-counts'" in refused

    terminal("sinks", "orders", "--give-up", "search-counts")
    assert states(terminal) == [
        ("orders", "search-counts", "stale", "publish"),
        ("orders", "search-counts", "stale", "publish"),
    ]
    again = " ".join(terminal("sinks", "orders", "--give-up", "search-counts", code=78).split())
    assert "No corrections wait for sink 'search-counts'" in again
    assert "The pipeline is missing" in terminal("sinks", "--give-up", "search-counts", code=78)
