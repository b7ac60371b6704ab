"""`deltaworks query` and `deltaworks store stats`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaworks.cli import app
from deltaworks.control import jobs
from deltaworks.exits import CONFIG, DATA, UNAVAILABLE
from tests.hosts.test_queries import Several

Command = Callable[..., str]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Several]:
    made = Several(tmp_path)
    for number in range(3):
        made.put("in", f"k{number}", b"x", 1_000 + number)
    made.put("prices", "a", (1).to_bytes(8, "big"), 1_000)
    made.put("prices", "a", (2).to_bytes(8, "big"), 2_000)
    made.put("countries", "it", b"Italy", 1)
    made.put("countries", "fr", b"France", 1)
    made.put("countries", "fi", b"Finland", 1)
    made.batch()
    made.lose_worker()
    yield made
    made.close()


@pytest.fixture
def command(stream: Several, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setattr(jobs, "load", lambda *_: stream.pipeline)
    monkeypatch.setenv("DELTAWORKS_HOME", str(stream.settings.home))

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
        with pytest.raises(SystemExit) as end:
            app.main()
        shown = capsys.readouterr()
        assert int(end.value.code or 0) == code, shown
        return shown.out + shown.err

    return run


def rows(command: Command, *arguments: str) -> list[dict[str, Any]]:
    found = json.loads(command("query", "several", *arguments, "--json"))
    assert (found["batch"], found["pipeline"]) == (0, "several")
    return list(found["rows"])


def test_a_key(command: Command) -> None:
    assert rows(command, "countries", "--key", "it") == [{"key": "it", "value": "Italy", "timestamp_ms": 1}]
    shown = command("query", "several", "countries", "--key", "it")
    assert "countries of several, as of batch 0" in shown and "Italy" in shown


def test_a_key_without_a_value_is_exit_code_1(command: Command) -> None:
    assert "nothing" in command("query", "several", "countries", "--key", "de", code=1)


def test_ranges_and_pages(command: Command) -> None:
    def keys(*arguments: str) -> list[str]:
        return [row["key"] for row in rows(command, "countries", *arguments)]

    assert keys("--from", "fj") == ["fr", "it"]
    assert keys("--prefix", "f", "--reverse") == ["fr", "fi"]
    first = json.loads(command("query", "several", "countries", "--limit", "2", "--json"))
    assert [row["key"] for row in first["rows"]] == ["fi", "fr"]
    assert keys("--after", first["next"]) == ["it"]
    assert f"more: --after {first['next']}" in command("query", "several", "countries", "--limit", "2")


def test_windows_sessions_and_versions(command: Command) -> None:
    (window,) = rows(command, "windows", "--key", "k1")
    assert window == {"key": "k1", "start_ms": 1_000, "end_ms": 1_010, "value": 1, "timestamp_ms": 1_001}
    assert len(rows(command, "windows", "--since", "1970-01-01 00:00:00")) == 3
    assert rows(command, "windows", "--until", "1970-01-01 00:00:00") == []
    assert [row["start_ms"] for row in rows(command, "sessions", "--from", "k1", "--to", "k2")] == [1_001, 1_002]
    assert rows(command, "versions", "--key", "a") == [{"key": "a", "value": 2, "valid_from_ms": 2_000}]
    assert rows(command, "versions", "--key", "a", "--at", "1970-01-01 00:00:01")[0]["value"] == 1


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("nothing",), "has no store 'nothing'", DATA),
        (("countries", "--key", "it", "--prefix", "f"), "exclude each other", CONFIG),
        (("countries", "--at", "1970-01-01"), "--at is not for a key-value store", CONFIG),
        (("windows", "--prefix", "k"), "A window store has no prefixes", CONFIG),
        (("windows", "--reverse"), "--reverse is not for a window store", CONFIG),
        (("versions",), "A versioned store is asked by key", CONFIG),
        (("countries", "--key", "it", "--min-batch", "9", "--wait", "0"), "batch 9 is not committed yet", UNAVAILABLE),
        (("countries", "--limit", "1000000"), "a page has from 1 to 100,000 rows", DATA),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(
    command: Command, arguments: tuple[str, ...], said: str, code: int
) -> None:
    assert said in command("query", "several", *arguments, code=code)


def test_the_sizes_of_stores(command: Command) -> None:
    found = json.loads(command("store", "stats", "several", "--json"))["stores"]
    entries = {each["store"]: (each["kind"], each["tasks"], each["entries"]) for each in found}
    assert entries == {
        "countries": ("key-value", 0, 3),
        "sessions": ("session", 2, 3),
        "versions": ("versioned", 1, 2),
        "windows": ("window", 2, 3),
    }
    (windows,) = json.loads(command("store", "stats", "several", "windows", "--json"))["stores"]
    assert (windows["oldest"], windows["newest"]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z")
    assert "Stores of several" in command("store", "stats", "several")
