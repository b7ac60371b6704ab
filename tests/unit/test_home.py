"""The home: made for its user alone, marked, and deleted as far as deltaworks has made it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError, StackError
from deltaworks.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    project = tmp_path / "project"
    (project / "jobs").mkdir(parents=True)
    return Settings.from_environment({"HOME": str(tmp_path / "user")}, cwd=project)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def of_before_there_were_marks(settings: Settings) -> None:
    (settings.kafka / "data").mkdir(parents=True)
    (settings.kafka / "data" / "meta.properties").write_text("cluster.id=x")
    settings.logs.mkdir()
    (settings.logs / "kafka.log").write_text("up")
    settings.pgpass.write_text("secret")


def test_a_new_home_is_marked_and_closed_to_others(settings: Settings) -> None:
    home.make(settings)

    assert home.contents(settings).marked
    assert mode(settings.home) == (0o711 if os.geteuid() == 0 else 0o700)
    assert {mode(folder) for folder in settings.private} == {0o700}
    assert mode(settings.marker) == 0o600


@pytest.mark.parametrize(("user", "expected"), [(0, 0o711), (1_000, 0o700)])
def test_only_under_root_does_another_user_pass_through_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, user: int, expected: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)

    home.make(settings)

    assert mode(settings.home) == expected


def test_a_home_of_before_is_marked_and_closed_when_it_is_used(settings: Settings) -> None:
    of_before_there_were_marks(settings)
    settings.home.chmod(0o755)
    (settings.logs / "kafka.log").chmod(0o644)
    settings.pgpass.chmod(0o644)

    home.make(settings)

    assert settings.marker.is_file()
    assert mode(settings.home) in (0o700, 0o711)
    assert mode(settings.logs / "kafka.log") == mode(settings.pgpass) == 0o600


def test_a_folder_with_other_things_is_used_as_it_is(settings: Settings) -> None:
    of_before_there_were_marks(settings)
    (settings.home / "thesis.tex").write_text("mine")
    settings.home.chmod(0o755)

    home.make(settings)

    assert not settings.marker.exists()
    assert mode(settings.home) == 0o755
    with pytest.raises(ConfigurationError, match=r"has no home.json.*nothing is deleted(.|\n)*kafka"):
        home.delete(settings)
    assert (settings.home / "thesis.tex").exists()
    assert settings.pgpass.exists()


def test_folders_of_the_same_names_alone_make_no_home(settings: Settings) -> None:
    settings.logs.mkdir(parents=True)
    (settings.logs / "web.log").write_text("mine")

    home.make(settings)

    assert not settings.marker.exists()


def test_a_home_of_before_is_not_deleted_before_it_is_marked(settings: Settings) -> None:
    of_before_there_were_marks(settings)

    assert not home.contents(settings).marked
    with pytest.raises(ConfigurationError, match=r"before homes were marked(.|\n)*--delete-data --yes"):
        home.delete(settings)
    assert settings.pgpass.exists()

    home.mark(settings)
    home.delete(settings)
    assert not settings.home.exists()


def test_what_deltaworks_has_not_made_stays(settings: Settings) -> None:
    home.make(settings)
    (settings.tables / "orders").mkdir()
    (settings.home / "notes.txt").write_text("mine")

    assert home.contents(settings).others == (settings.home / "notes.txt",)
    home.delete(settings)

    assert sorted(path.name for path in settings.home.iterdir()) == ["home.json", "notes.txt"]


def test_a_link_is_deleted_and_what_it_leads_to_stays(settings: Settings, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "big").mkdir()
    (elsewhere / "rows").write_text("mine")
    home.make(settings)
    settings.tables.rmdir()
    settings.tables.symlink_to(elsewhere)

    home.make(settings)
    home.delete(settings)

    assert not settings.home.exists()
    assert (elsewhere / "rows").exists()


def test_sizes_count_a_file_with_two_names_once(settings: Settings) -> None:
    home.make(settings)
    (settings.tables / "a").write_bytes(bytes(1_000))
    os.link(settings.tables / "a", settings.tables / "b")

    (tables,) = (part for part in home.contents(settings).parts if part.path == settings.tables)

    assert tables.size_bytes == 1_000


def test_folders_that_no_mark_makes_ours_are_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    home.make(settings)
    (link := tmp_path / "link").symlink_to(settings.home)
    for folder, why in (
        (Path("/"), "is the root of the file system"),
        (settings.project, "holds the project"),
        (settings.project / "jobs" / "..", "holds the project"),
        (tmp_path, "holds the project"),
        (tmp_path / "user", "holds the user's own folder"),
        (link, "is a link to"),
    ):
        at = replace(settings, home=folder)
        if folder != Path("/"):
            at.marker.write_text('{"format": 1}')
        with pytest.raises(ConfigurationError, match=f"{why}.*, so nothing in it is deleted"):
            home.delete(at)
    assert settings.marker.exists()


def test_the_folder_of_the_user_is_never_marked(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own := tmp_path / "user").mkdir(mode=0o755)
    monkeypatch.setenv("HOME", str(own))

    home.make(replace(settings, home=own))

    assert list(own.iterdir()) == []
    assert mode(own) == 0o755


def test_a_mark_of_another_version_is_refused(settings: Settings) -> None:
    home.make(settings)
    settings.marker.write_text('{"format": 2}')

    with pytest.raises(IncompatibleCheckpointError, match=r"home.json has format 2; this deltaworks reads format 1"):
        home.delete(settings)


def test_a_home_that_is_a_file_is_refused(settings: Settings) -> None:
    settings.home.write_text("")

    with pytest.raises(ConfigurationError, match="is not a folder"):
        home.make(settings)


def test_what_cannot_be_deleted_is_told_and_the_mark_stays(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    home.make(settings)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(StackError, match="pipelines cannot be deleted: Operation not permitted"):
        home.delete(settings)
    assert settings.marker.exists()
