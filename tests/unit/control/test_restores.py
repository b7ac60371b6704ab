"""Notes of restores that go on."""

from __future__ import annotations

from pathlib import Path

from deltaworks.control import restores, task_notes
from deltaworks.control.restores import Restoring


def test_what_goes_on_is_found_until_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "restores"
    assert restores.going_on(folder) == {}
    restores.note(folder, "0-3", Restoring(done=1, total=10))
    restores.note(folder, "0-3", Restoring(done=5, total=10))
    restores.note(folder, "1-0", Restoring(done=2, total=4))

    assert restores.going_on(folder) == {"0-3": Restoring(done=5, total=10), "1-0": Restoring(done=2, total=4)}

    restores.ended(folder, "0-3")
    restores.ended(folder, "0-3")
    assert set(restores.going_on(folder)) == {"1-0"}
    task_notes.clear(folder)
    assert restores.going_on(folder) == {}


def test_notes_of_processes_that_are_gone_and_notes_that_are_not_whole_do_not_count(tmp_path: Path) -> None:
    restores.note(tmp_path, "0-1", Restoring(done=1, total=2))
    [note] = tmp_path.glob("*/*")
    (gone := tmp_path / "4194999").mkdir()  # beyond the highest number of a process
    (gone / "0-2").write_bytes(note.read_bytes())
    (note.parent / ".0-3.1-ab").write_bytes(note.read_bytes())
    (note.parent / "0-4").write_bytes(b"{")

    assert set(restores.going_on(tmp_path)) == {"0-1"}
