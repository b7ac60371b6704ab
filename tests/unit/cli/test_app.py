from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.cli import app as cli

PROJECT = Path(__file__).parents[3]


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> int:
    """The exit code of a command, in an empty home."""
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(PROJECT))
    monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_help_loads_no_engine() -> None:
    script = (
        "import sys; from deltaworks.cli import main\n"
        "sys.argv = ['deltaworks', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "engines = 'pyspark', 'deltalake', 'duckdb', 'confluent_kafka', 'pyarrow', 'great_expectations'\n"
        "print([engine for engine in engines if engine in sys.modules])\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT / "lib"
    )

    assert ran.stdout.splitlines()[-1] == "[]"
    commands = "up down status logs compose produce topology run stop tables sql quality demo"
    for command in commands.split():
        assert f" {command} " in ran.stdout


def test_topology_is_described_in_kafkas_format_and_in_mermaid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, "topology", "orders") == 0
    assert "Source: orders-source (topics: [raw-orders])" in capsys.readouterr().out
    assert run(monkeypatch, tmp_path, "topology", "orders", "--mermaid") == 0
    assert capsys.readouterr().out.startswith("flowchart")


def test_an_error_is_one_message_without_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(monkeypatch, tmp_path, "topology", "order")

    shown = capsys.readouterr().err
    assert code == 78
    assert shown.startswith("error: There is no ")
    assert "Hint: pipelines here: " in shown and "orders" in shown
    assert "Traceback" not in shown


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, "topology", "order", "--debug")

    assert "Traceback" in capsys.readouterr().err


def test_a_wrong_query_names_the_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, "sql", "SELECT nothing") == 78
    assert "Hint: tables: none yet" in capsys.readouterr().err


def test_sql_shows_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(monkeypatch, tmp_path, "sql", "SELECT 1234 AS n, 1.500 AS price, TIMESTAMP '2026-03-01 00:00:00' AS at")
        == 0
    )

    assert capsys.readouterr().out.split() == ["n", "price", "at", "1,234", "1.5", "2026-03-01", "00:00:00"]
