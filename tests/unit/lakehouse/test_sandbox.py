"""SQL of others sees tables, and neither files nor network nor settings, within limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import sandbox
from deltaworks.lakehouse.sandbox import Limits, Sandbox
from deltaworks.settings import Settings
from tests.unit.lakehouse.lake import run

ORDERS = pa.table({"id": range(1000), "city": ["Ulm", "Bonn"] * 500})


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(Limits(folder=tmp_path)) as found:
        found.add("orders", ORDERS)
        yield found


def refused(box: Sandbox, query: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as error:
        box.answer(query, 10)
    assert error.value.hint
    return error.value


FILES = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM read_duckdb('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '/etc/data.parquet'",
    "SELECT * FROM read_csv('https://example.com/orders.csv')",
    "SELECT * FROM query('SELECT * FROM read_csv(''/etc/passwd'')')",
    "CREATE TABLE mine AS SELECT * FROM read_csv('/etc/passwd')",
    "CREATE MACRO passwords() AS TABLE SELECT * FROM read_text('/etc/passwd'); FROM passwords()",
]


@pytest.mark.parametrize("query", FILES)
def test_a_query_reads_no_file(box: Sandbox, query: str) -> None:
    error = refused(box, query)

    assert "reaches outside its tables: Permission Error: Cannot access" in error.message
    assert "no files, network, extensions or settings" in str(error.hint)
    assert "--unrestricted" in str(error.hint)


OUTSIDE = [
    "COPY orders TO '{folder}/orders.csv'",
    "COPY (SELECT 1) TO '{folder}/orders.parquet' (FORMAT parquet)",
    "COPY orders FROM '/etc/passwd'",
    "EXPORT DATABASE '{folder}/all'",
    "IMPORT DATABASE '{folder}/all'",
    "ATTACH '{folder}/other.db'",
    "ATTACH ':memory:' AS other",
    "ATTACH 'https://example.com/other.db'",
    "DETACH memory",
    "INSTALL httpfs",
    "INSTALL '{folder}/mine.duckdb_extension'",
    "LOAD httpfs",
    "UPDATE EXTENSIONS",
    "SET memory_limit = '10GB'",
    "SET enable_external_access = true",
    "SET TimeZone = 'Europe/Berlin'",
    "RESET lock_configuration",
    "PRAGMA memory_limit = '10GB'",
    "PRAGMA enable_profiling",
    "CALL enable_logging(storage = 'file', storage_path = '{folder}/log')",
    "PREPARE copying AS COPY orders TO '{folder}/orders.csv'",
    "SELECT 1; COPY orders TO '{folder}/orders.csv'",
    "EXPLAIN ANALYZE COPY orders TO '{folder}/orders.csv'",
]


@pytest.mark.parametrize("statement", OUTSIDE)
def test_a_statement_that_is_no_query_is_refused_and_leaves_nothing(
    box: Sandbox, statement: str, tmp_path: Path
) -> None:
    before = list(tmp_path.iterdir())

    error = refused(box, statement.format(folder=tmp_path))

    assert "not allowed: " in error.message or "reaches outside" in error.message
    assert list(tmp_path.iterdir()) == before


def test_the_lock_holds_also_where_the_kind_of_a_statement_is_not_looked_at(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(box, "_check", lambda *_, **__: None)

    for statement in OUTSIDE:
        if statement.split()[0] not in ("DETACH", "PREPARE") and ":memory:" not in statement:
            refused(box, statement.format(folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("query-")] == []


def test_a_profile_is_written_nowhere(box: Sandbox, tmp_path: Path) -> None:
    for query in (
        f"SELECT * FROM enable_profiling('json', '{tmp_path}/profile')",
        f"SELECT * FROM enable_profiling(format = 'json', save_location = '{tmp_path}/profile')",
        "SELECT * FROM enable_logging()",
    ):
        refused(box, query)
    assert not (tmp_path / "profile").exists()


def test_variables_of_python_are_no_tables(box: Sandbox) -> None:
    secrets = pa.table({"password": ["x"]})

    assert "does not exist" in refused(box, "SELECT * FROM secrets").message
    assert len(secrets) == 1


def test_a_query_that_never_ends_is_stopped(tmp_path: Path) -> None:
    with Sandbox(Limits(seconds=0.3, folder=tmp_path)) as box:
        error = refused(box, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b")
        assert error.message == "The query took longer than 0.3 s and was stopped."
        assert "DELTAWORKS_QUERY_SECONDS" in str(error.hint)

        assert box.answer("SELECT 1", 1).rows == [(1,)], "the next query has its own time"


def test_a_query_that_needs_too_much_memory_says_so(tmp_path: Path) -> None:
    with Sandbox(Limits(memory_mb=20, folder=tmp_path)) as box:
        error = refused(box, "SELECT len(list(range)) FROM range(100000000)")

    assert error.message.startswith("The query needs more than 20 MB of memory and 160 MB of temporary files")
    assert "DELTAWORKS_QUERY_MEMORY_MB" in str(error.hint)


def test_temporary_files_are_bounded_and_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_SPILL", 1)
    rows = "SELECT hash(range) AS h, repeat('x', 100) || range AS s FROM range({rows}) ORDER BY h"
    with Sandbox(Limits(memory_mb=128, folder=tmp_path)) as box:
        fits, _ = box.select(rows.format(rows=1_000_000), 1)
        assert fits == 1_000_000
        (scratch,) = tmp_path.iterdir()
        assert list(scratch.iterdir()), "what does not fit into memory is here meanwhile"
        error = refused(box, f"CREATE TABLE big AS {rows.format(rows=2_000_000)}")
        assert "128 MB of temporary files" in error.message
        assert "failed to offload" in error.message

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_to_the_defaults_of_duckdb(box: Sandbox) -> None:
    found = dict(box.answer("SELECT name, value FROM duckdb_settings()", 1000).rows)

    off = ["enable_external_access", "python_enable_replacements", "allow_community_extensions"]
    off += ["autoinstall_known_extensions", "autoload_known_extensions", "allow_persistent_secrets"]
    assert {name: found[name] for name in off} == dict.fromkeys(off, "false")
    assert found["lock_configuration"] == "true"
    assert found["allowed_paths"] == "[]"
    assert found["allowed_directories"] == f"[{found['temp_directory']}/]"


def test_a_rule_is_a_single_query(box: Sandbox, tmp_path: Path) -> None:
    two = f"SELECT 1; COPY orders TO '{tmp_path}/orders.csv'"
    with pytest.raises(ConfigurationError, match="A rule is one query; this has 2 statements") as error:
        box.select(two, 1)

    assert error.value.hint == "make it a single SELECT"
    with pytest.raises(ConfigurationError, match="not allowed: DROP VIEW orders"):
        box.select("DROP VIEW orders", 1)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*), sum(id)::BIGINT FROM orders WHERE city = 'Ulm'", [(500, 249_500)]),
        ("FROM orders LIMIT 1", [(0, "Ulm")]),
        ("SELECT count(*) FROM (PIVOT orders ON city USING count(*))", [(1000,)]),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT max(i) FROM n", [(9,)]),
        ("CREATE TABLE mine AS SELECT max(id) AS id FROM orders; SELECT id FROM mine", [(999,)]),
        ("SELECT strftime(TIMESTAMPTZ '2026-03-01 00:00:00+00', '%H:%M')", [("00:00",)]),
        ("SELECT json_extract('{\"a\": 1}', '$.a')::VARCHAR", [("1",)]),
        ("SELECT 1; -- nothing else", [(1,)]),
    ],
)
def test_ordinary_queries_are_answered(box: Sandbox, query: str, rows: list[tuple[object, ...]]) -> None:
    assert box.answer(query, 10).rows == rows


@pytest.mark.parametrize(
    "query", ["SHOW TABLES", "DESCRIBE orders", "SUMMARIZE orders", "EXPLAIN FROM orders", "PIVOT orders ON city"]
)
def test_what_explains_tables_is_answered(box: Sandbox, query: str) -> None:
    assert box.answer(query, 10).rows


def test_a_wrong_query_names_the_tables(box: Sandbox) -> None:
    error = refused(box, "SELECT nothing FROM order")

    assert error.message.startswith("DuckDB refuses the query: Parser Error")
    assert error.hint == "tables: orders"


def test_without_restrictions_it_is_duckdb_as_it_comes(tmp_path: Path) -> None:
    with Sandbox(Limits(restricted=False)) as box:
        box.add("orders", ORDERS)
        box.answer(f"COPY orders TO '{tmp_path}/orders.parquet'", 1)
        box.answer("SET memory_limit = '300MB'", 1)
        assert box.answer(f"SELECT count(*) FROM '{tmp_path}/orders.parquet'", 1).rows == [(1000,)]


def test_limits_come_from_the_settings(tmp_path: Path) -> None:
    text = {"DELTAWORKS_QUERY_MEMORY_MB": "64", "DELTAWORKS_QUERY_SECONDS": "5", "DELTAWORKS_HOME": str(tmp_path)}
    text["DELTAWORKS_QUERY_FRAME_MB"] = "32"

    settings = Settings.from_environment(text, cwd=tmp_path)

    assert Limits.of(settings) == Limits(memory_mb=64, frame_mb=32, seconds=5, folder=tmp_path / "tmp")
    assert not Limits.of(settings, restricted=False).restricted
    assert text.items() <= settings.environment().items()


# The command, in a process of its own ---------------------------------------------------------------------------------


def sql(home: Path, *arguments: str, **limits: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DELTAWORKS_HOME": str(home), "COLUMNS": "200"} | limits
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "sql", *arguments], env=environment, capture_output=True, text=True
    )


def test_the_command_holds_values_that_duckdb_does_not_count(tmp_path: Path) -> None:
    """They are not part of DuckDB's own limit: without ours, this one takes seven gigabytes."""
    ended = sql(tmp_path, "SELECT len(range(100000000))", DELTAWORKS_QUERY_MEMORY_MB="64")

    assert ended.returncode == 78
    assert "error: The query needs more than 64 MB of memory" in ended.stderr
    assert "Hint: choose fewer rows or columns, or raise DELTAWORKS_QUERY_MEMORY_MB" in ended.stderr


def test_the_command_ends_in_time_where_a_function_hears_of_no_interruption(tmp_path: Path) -> None:
    script = (
        "import sys, time; from deltaworks.lakehouse import sandbox\n"
        "sandbox._GRACE_S = 0.1\n"
        "with sandbox.limited_process(sandbox.Limits(seconds=0.1)): time.sleep(60)\n"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)

    assert ended.returncode == 78
    assert "error: The query took longer than 0.1 s and was stopped.\n  Hint: " in ended.stderr


def test_the_command_reads_tables_and_no_files_unless_it_is_told_to(tmp_path: Path) -> None:
    run(tmp_path / "tables", 1)
    (tmp_path / "other.csv").write_text("a\n1\n")
    reads = f"SELECT count(*) AS n FROM read_csv('{tmp_path}/other.csv'), orders"

    refusal, allowed = sql(tmp_path, reads), sql(tmp_path, "--unrestricted", reads)

    assert refusal.returncode == 78 and "reaches outside its tables" in refusal.stderr
    assert allowed.returncode == 0, allowed.stderr


def test_the_process_has_its_own_limits_again_after_the_query() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with sandbox.limited_process(Limits()):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] != before[0]

    assert resource.getrlimit(resource.RLIMIT_DATA) == before
