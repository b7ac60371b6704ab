"""`down --delete-data`: shows what goes, asks in a terminal, and never deletes what deltaworks has not made."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks import exits, home, processes
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import lifecycle

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings.from_environment(
        {**os.environ, "DELTAWORKS_PROJECT": str(tmp_path / "project"), "DELTAWORKS_HOME": str(tmp_path / "home")}
    )
    home.make(settings)
    (settings.tables / "orders").write_bytes(bytes(2_000_000))
    return settings


def down(settings: Settings, *options: str, answer: str | None = None) -> subprocess.CompletedProcess[str]:
    """`down --delete-data`; with an answer, in a terminal."""
    terminal, stdin = pty.openpty()
    try:
        if answer is not None:
            os.write(terminal, f"{answer}\n".encode())
        return subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", "down", "--delete-data", *options],
            stdin=subprocess.DEVNULL if answer is None else stdin,
            capture_output=True, text=True, env=settings.process_environment(), check=False,
        )  # fmt: skip
    finally:
        os.close(terminal)
        os.close(stdin)


def test_a_terminal_is_asked_and_a_no_stops_and_deletes_nothing(settings: Settings) -> None:
    entry = processes.launch(settings.run, name="it", kind="test", command=SLEEP, log=settings.logs / "it.log")
    try:
        said = down(settings, answer="n")

        assert said.returncode == 1
        assert "tables" in said.stdout and "2.0" in said.stdout and "Delete?" in said.stdout
        assert entry.alive
        assert (settings.tables / "orders").exists()
    finally:
        processes.stop(settings.run, entry, timeout_s=5)


def test_a_yes_in_a_terminal_deletes(settings: Settings) -> None:
    assert down(settings, answer="y").returncode == exits.OK
    assert not settings.home.exists()


def test_a_script_is_not_asked(settings: Settings) -> None:
    said = down(settings)

    assert said.returncode == exits.OK
    assert "tables" in said.stdout and "Delete?" not in said.stdout
    assert not settings.home.exists()


def test_a_script_deletes_nothing_without_a_mark_unless_it_is_told_to(settings: Settings) -> None:
    settings.marker.unlink()
    settings.pgpass.write_text("secret")

    refused = down(settings)

    assert refused.returncode == exits.CONFIG
    assert "before homes were marked" in refused.stderr and "down --delete-data --yes" in refused.stderr
    assert (settings.tables / "orders").exists()
    assert down(settings, "--yes").returncode == exits.OK
    assert not settings.home.exists()


def test_what_is_not_ours_stays_and_is_named(settings: Settings) -> None:
    (settings.home / "notes.txt").write_text("mine")

    said = down(settings, "--yes")

    assert "Kept, since deltaworks did not create them: notes.txt" in said.stdout
    assert (settings.home / "notes.txt").exists()
    assert not settings.tables.exists()


def test_a_folder_that_is_not_ours_is_refused_before_anything_is_stopped(settings: Settings) -> None:
    entry = processes.launch(settings.run, name="it", kind="test", command=SLEEP, log=settings.logs / "it.log")
    try:
        settings.marker.unlink()

        said = down(settings, "--yes")

        assert said.returncode == exits.CONFIG
        assert "so deltaworks may not have made it" in said.stderr
        assert entry.alive
        assert (settings.tables / "orders").exists()
    finally:
        processes.stop(settings.run, entry, timeout_s=5)


def test_who_calls_it_as_a_function_deletes_no_other_folder_either(settings: Settings) -> None:
    entry = processes.launch(settings.run, name="it", kind="test", command=SLEEP, log=settings.logs / "it.log")
    try:
        settings.marker.unlink()

        with pytest.raises(ConfigurationError, match="so deltaworks may not have made it"):
            lifecycle.down(settings, delete_data=True)

        assert entry.alive
        assert (settings.tables / "orders").exists()
    finally:
        processes.stop(settings.run, entry, timeout_s=5)
