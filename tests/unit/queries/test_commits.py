"""The last batch that is committed, whatever happens to the notes."""

from __future__ import annotations

from pathlib import Path

from deltaworks.queries.commits import Commits


def note(folder: Path, *batches: int) -> None:
    folder.mkdir(exist_ok=True)
    for batch in batches:
        (folder / str(batch)).touch()


def test_there_is_none_at_first(tmp_path: Path) -> None:
    commits = Commits(tmp_path / "commits")
    assert commits.last() is None
    note(tmp_path / "commits")
    assert commits.last() is None


def test_it_follows_the_stream(tmp_path: Path) -> None:
    note(tmp_path, 0, 1)
    commits = Commits(tmp_path)
    assert commits.last() == 1
    note(tmp_path, 2, 3)
    (tmp_path / ".4.tmp").touch()
    assert commits.last() == 3


def test_a_reader_that_was_away_for_long_finds_it_though_old_notes_are_gone(tmp_path: Path) -> None:
    note(tmp_path, 0)
    commits = Commits(tmp_path)
    assert commits.last() == 0
    (tmp_path / "0").unlink()
    note(tmp_path, 200, 201)
    assert commits.last() == 201


def test_notes_that_are_taken_back_do_not_count(tmp_path: Path) -> None:
    note(tmp_path, 5, 6)
    commits = Commits(tmp_path)
    assert commits.last() == 6
    (tmp_path / "6").unlink()
    assert commits.last() == 5
