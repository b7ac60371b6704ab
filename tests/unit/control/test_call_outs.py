"""Which systems count as down, for the heartbeat."""

from __future__ import annotations

import os
from pathlib import Path

from deltaworks.control import call_outs, task_notes


def test_what_a_process_notes_is_shown_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "call-outs"
    assert call_outs.states(folder) == {}

    call_outs.note(folder, "prices", "open")
    call_outs.note(folder, "names", "half-open")
    call_outs.note(folder, "names", "closed")
    call_outs.note(folder, "never", "closed")
    gone = folder / "999999999"
    gone.mkdir()
    (gone / "stale").write_text("open")

    assert call_outs.states(folder) == {"prices": "open"}


def test_of_several_processes_the_worst_counts(tmp_path: Path) -> None:
    call_outs.note(tmp_path, "prices", "half-open")
    other = tmp_path / str(os.getppid())
    other.mkdir()
    (other / "prices").write_text("open")

    assert call_outs.states(tmp_path) == {"prices": "open"}
    task_notes.clear(tmp_path)
    assert call_outs.states(tmp_path) == {}
