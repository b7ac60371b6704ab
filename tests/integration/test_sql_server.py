"""The SQL server, as real clients see it: PyHive, and Hive's JDBC driver with the command line that comes with it.

The tables are those of a stream that runs, and one that no pipeline writes.
"""

from __future__ import annotations

import csv
import gc
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from deltaworks.files import replace_file
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.java import find_java
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from deltaworks.stack.sql import client
from deltaworks.stack.sql.compiled import spark_jars
from deltaworks.stack.sql.server import credentials
from tests.docs import query_page
from tests.support.live_stack import listening
from tests.support.running_orders import HOME, RunningOrders, as_rows, running_orders

SUMS = """
    SELECT (SELECT sum(orders) FROM order_counts) AS windows, (SELECT count(*) FROM users_changelog) AS updates,
           (SELECT count(*) FROM users) AS users
"""
PLAIN = "plain"
"""A table without a cut."""
OUTSIDE = "outside"
"""A table that is not in the folder of the tables."""

READS = [
    query_page.question(),
    "WITH users AS (SELECT 1 AS x) SELECT * FROM users",
    "WITH a AS (SELECT user_id FROM users), b AS (SELECT * FROM a) SELECT count(*) FROM b",
    "SELECT users.country FROM users WHERE user_id IN (SELECT user_id FROM order_counts) LIMIT 1",
    "SELECT u.user_id FROM Users u WHERE EXISTS (SELECT 1 FROM order_counts o WHERE o.user_id = u.user_id) LIMIT 1",
    "SELECT (SELECT count(*) FROM users) a, (SELECT count(*) FROM default.users_changelog) b",
    "SELECT user_id, row_number() OVER (ORDER BY user_id) n FROM spark_catalog.default.users QUALIFY n = 2",
    "SELECT country, count(*) FROM users GROUP BY country HAVING count(*) > 0 ORDER BY 2 DESC LIMIT 2 OFFSET 1",
    "SELECT * FROM (SELECT country, user_id FROM users) PIVOT (count(user_id) FOR country IN ('FR', 'ES'))",
    "SELECT x FROM users LATERAL VIEW explode(array(1, 2)) t AS x LIMIT 1",
    "SELECT * FROM range(3) UNION ALL SELECT * FROM VALUES (7) EXCEPT SELECT 1 INTERSECT SELECT 1",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT sum(n) FROM t",
    "SELECT explode(array(1, 2))",
    "SELECT transform(array(1), x -> x + 1), try_divide(1, 0), date_trunc('hour', now()), CAST('1' AS INT)",
    "EXPLAIN SELECT * FROM users",
]
"""What has to be answered."""

WRITES = """\
INSERT INTO users VALUES ('a')
INSERT OVERWRITE DIRECTORY '{scratch}' USING csv SELECT * FROM users
INSERT OVERWRITE LOCAL DIRECTORY '{scratch}' USING csv SELECT 1
FROM users INSERT INTO users SELECT *
WITH a AS (SELECT 1) INSERT INTO users SELECT * FROM a
DELETE FROM users
UPDATE users SET name = 'x'
MERGE INTO users u USING users s ON u.user_id = s.user_id WHEN MATCHED THEN DELETE
DROP TABLE users
TRUNCATE TABLE users
CREATE TABLE t USING csv LOCATION '{scratch}' AS SELECT 1
CREATE TABLE t (a INT) USING delta LOCATION '{scratch}'
CREATE OR REPLACE VIEW v AS SELECT 1
CREATE TEMP VIEW v AS SELECT 1
CREATE TEMPORARY VIEW p USING parquet OPTIONS (path '/etc')
CREATE DATABASE d
CREATE FUNCTION f AS 'java.lang.System' USING JAR '/tmp/x.jar'
CREATE TEMPORARY FUNCTION g() RETURNS INT RETURN 1
ADD JAR '/tmp/x.jar'
ADD FILE '/etc/passwd'
LIST FILES
SET spark.sql.extensions
SET spark.sql.shuffle.partitions=3
SET -v
SET ROLE admin
RESET
USE other
CACHE TABLE users
CACHE TABLE c AS SELECT 1
UNCACHE TABLE users
REFRESH TABLE users
REFRESH '/etc'
ANALYZE TABLE users COMPUTE STATISTICS
OPTIMIZE users
VACUUM delta.`{tables}/users` RETAIN 0 HOURS
RESTORE TABLE users TO VERSION AS OF 0
ALTER TABLE users ADD COLUMN x INT
COMMENT ON TABLE users IS 'x'
LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE users
CONVERT TO DELTA parquet.`{scratch}`
EXPLAIN INSERT INTO users VALUES ('a')
EXECUTE IMMEDIATE 'DROP TABLE users'
BEGIN DROP TABLE users; END
BEGIN SELECT 1; END
DECLARE VARIABLE x INT
SET VAR x = 1
CALL system.procedure()
EXPORT TABLE users TO '/tmp/x'
""".splitlines()
"""What would change something."""

ELSEWHERE = """\
DESCRIBE HISTORY users
DESCRIBE DETAIL users
SHOW CREATE TABLE users
SHOW FUNCTIONS
SHOW TABLES IN other
DESCRIBE delta.`{outside}`
DESCRIBE QUERY SELECT * FROM text.`/etc/passwd`
SELECT TRANSFORM(user_id) USING 'cat /etc/passwd' AS (a) FROM users
SELECT * FROM (SELECT TRANSFORM(user_id) USING 'id' AS (a) FROM users)
SELECT * FROM parquet.`{tables}/users`
SELECT * FROM text.`/etc/passwd`
SELECT * FROM delta.`{tables}/users`
SELECT * FROM delta.`{outside}`
SELECT * FROM default.`{outside}`
SELECT * FROM `../outside`
SELECT * FROM users VERSION AS OF 0
SELECT * FROM users WITH (versionAsOf = 0)
SELECT * FROM table_changes('users', 0)
SELECT * FROM users WHERE EXISTS (SELECT * FROM text.`/etc/passwd`)
SELECT (SELECT max(value) FROM text.`/etc/passwd`)
SELECT array(1)[(SELECT count(*) FROM text.`/etc/passwd`)]
WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a
SELECT 1 UNION SELECT * FROM text.`/etc/passwd`
SELECT * FROM users JOIN LATERAL (SELECT * FROM text.`/etc/passwd`)
SELECT * FROM users ORDER BY (SELECT max(value) FROM text.`/etc/passwd`)
EXPLAIN FORMATTED SELECT * FROM text.`/etc/passwd`
TABLE text.`/etc/passwd`
SELECT * FROM IDENTIFIER('text.`/etc/passwd`')
SELECT reflect('java.lang.System', 'getProperty', 'user.home')
SELECT java_method('java.lang.System', 'getProperty', 'user.home')
SELECT try_reflect('java.lang.System', 'getProperty', 'user.home')
SELECT builtin.reflect('java.lang.System', 'getProperty', 'user.home')
SELECT system.builtin.reflect('java.lang.System', 'getProperty', 'user.home')
SELECT `reflect`('java.lang.System', 'getProperty', 'user.home')
SELECT call_function('reflect', 'java.lang.System', 'getProperty', 'user.home')
SELECT IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.home')
SELECT user_id FROM users ORDER BY reflect('java.lang.System', 'getProperty', 'user.home') LIMIT 1
SELECT transform(array(1), x -> reflect('java.lang.System', 'getProperty', 'user.home'))
SELECT sum(1) OVER (ORDER BY reflect('java.lang.System', 'getProperty', 'user.home'))
SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getProperty', 'user.home') = '') FROM users
SELECT x FROM users LATERAL VIEW explode(array(reflect('java.lang.System', 'getProperty', 'user.home'))) t AS x
SELECT * FROM explode(array(reflect('java.lang.System', 'getProperty', 'user.home')))
SELECT * FROM VALUES (reflect('java.lang.System', 'getProperty', 'user.home'))
SELECT xpath('<a/>', 'a')
SELECT from_xml('<a/>', 'a INT')
SELECT input_file_name() FROM users
SELECT * FROM read_files('/etc/passwd')
SELECT * FROM python_worker_logs()
SELECT * FROM python_udtf(1)
SELECT * FROM STREAM users
!id
dfs -ls /
KILL QUERY 'x'
""".splitlines()
"""What would read something else than tables as of their cuts."""


_PROMPT = re.compile(r"^\d+: jdbc:\S+> ", re.MULTILINE)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOrders]:
    project = tmp_path_factory.mktemp("project")
    with running_orders(project, [SUMS, query_page.question()]) as stream:
        for copy in (stream.tables / PLAIN, project / OUTSIDE):
            shutil.copytree(stream.tables / "users_changelog", copy)
        yield stream


@pytest.fixture(scope="module")
def server(stream: RunningOrders) -> Iterator[Settings]:
    settings = replace(own_settings(stream.project / HOME), query_seconds=60)
    stack = up(settings, only=["sql"], tethered=True)
    assert stack.started == ["sql"]
    try:
        yield settings
    finally:
        assert down(settings) == ["sql"]


def connected(settings: Settings, **other: Any) -> Any:
    hive = pytest.importorskip("pyhive.hive")
    login = credentials(settings)
    given = {"username": login.user, "password": login.password, "auth": "CUSTOM"} | other
    return hive.connect(host="127.0.0.1", port=settings.sql_port, **given)


@pytest.fixture
def cursor(server: Settings) -> Iterator[Any]:
    with closing(connected(server)) as connection:
        yield connection.cursor()


def rows(cursor: Any, query: str) -> list[tuple[Any, ...]]:
    cursor.execute(query)
    return list(cursor.fetchall())


def refusal(cursor: Any, statement: str) -> str:
    """What the server says instead of an answer."""
    with pytest.raises(Exception) as caught:
        cursor.execute(statement)
    return str(caught.value)


@pytest.mark.parametrize("query", [SUMS, query_page.question()], ids=["sums", "join"])
def test_a_query_finds_what_one_batch_has(stream: RunningOrders, cursor: Any, query: str) -> None:
    stream.agree(lambda: {query: as_rows(rows(cursor, query))}, times=2)


@pytest.mark.parametrize("query", READS)
def test_whatever_is_a_query_of_tables_is_answered(cursor: Any, query: str) -> None:
    assert rows(cursor, query)


@pytest.mark.parametrize("statement", [*WRITES, *ELSEWHERE])
def test_whatever_is_not_is_refused(stream: RunningOrders, cursor: Any, statement: str, tmp_path: Path) -> None:
    names = {"scratch": tmp_path / "new", "tables": stream.tables, "outside": stream.project / OUTSIDE}

    said = refusal(cursor, statement.format(**names))

    assert "RefusedException" in said or "ParseException" in said
    assert not (tmp_path / "new").exists()


def test_a_table_without_a_cut_is_as_it_is_now_and_new_ones_appear(stream: RunningOrders, cursor: Any) -> None:
    path, count = stream.tables / PLAIN, f"SELECT count(*) FROM {PLAIN}"
    before = DeltaTable(path).to_pyarrow_table()
    assert rows(cursor, count) == [(len(before),)]

    from deltalake import write_deltalake

    write_deltalake(path, before, mode="append")
    write_deltalake(stream.tables / "later", before.slice(0, 1))

    assert rows(cursor, count) == [(2 * len(before),)]
    assert rows(cursor, "SELECT count(*) FROM later") == [(1,)]
    assert ("default", "later", False) in rows(cursor, "SHOW TABLES")

    shutil.rmtree(stream.tables / "later")
    assert ("default", "later", False) not in rows(cursor, "SHOW TABLES")


def test_a_table_that_was_made_anew_is_read_anew(stream: RunningOrders, cursor: Any) -> None:
    from deltalake import write_deltalake

    path, row = stream.tables / "anew", DeltaTable(stream.tables / PLAIN).to_pyarrow_table().slice(0, 1)
    for _ in range(3):
        write_deltalake(path, row, mode="append")
    assert rows(cursor, "SELECT count(*) FROM anew") == [(3,)]

    shutil.rmtree(path)
    write_deltalake(path, row)

    assert rows(cursor, "SELECT count(*) FROM anew") == [(1,)]


def test_describe_says_what_columns_mean(cursor: Any) -> None:
    meaning = {name: text for name, _, text in rows(cursor, "DESCRIBE users")}
    columns = rows(cursor, "SHOW COLUMNS IN users")

    assert meaning["user_id"]
    assert ("country",) in columns
    assert ("default",) in rows(cursor, "SHOW SCHEMAS")
    cursor.execute("USE default")


def refused_login(settings: Settings, **other: Any) -> None:
    """A client that cannot log in; PyHive leaves its socket open."""
    with pytest.raises(Exception, match=r"Error validating the login|read 0 bytes"):
        connected(settings, **other)
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "other",
    [{"password": "wrong"}, {"password": ""}, {"username": "admin"}, {"auth": "NOSASL", "password": None}],
    ids=str,
)
def test_without_user_and_password_nobody_gets_in(server: Settings, other: Mapping[str, str | None]) -> None:
    refused_login(server, **other)


def test_settings_of_a_session_have_no_effect(server: Settings) -> None:
    for name, value in {
        "set:hiveconf:spark.sql.variable.substitute": "true",
        "spark.sql.variable.substitute": "true",
        "set:hivevar:spark.sql.variable.substitute": "true",
        "set:system:evil": "yes",
        "use:database": "x; DROP TABLE users",
    }.items():
        with closing(connected(server, configuration={name: value})) as connection:
            cursor = connection.cursor()
            assert rows(cursor, "SELECT '${env:HOME}', '${system:evil}', '${system:user.home}'") == [
                ("${env:HOME}", "${system:evil}", "${system:user.home}")
            ]
            assert rows(cursor, "SELECT current_database()") == [("default",)]


def test_settings_of_a_statement_have_no_effect(server: Settings) -> None:
    ttypes = pytest.importorskip("TCLIService.ttypes")
    with closing(connected(server)) as connection:
        request = ttypes.TExecuteStatementReq(
            connection.sessionHandle,
            "SELECT '${env:HOME}'",
            confOverlay={"spark.sql.variable.substitute": "true", "set:hiveconf:a": "b"},
            runAsync=False,
        )
        answer = connection.client.ExecuteStatement(request)
        fetched = connection.client.FetchResults(
            ttypes.TFetchResultsReq(answer.operationHandle, ttypes.TFetchOrientation.FETCH_NEXT, 10)
        )

    assert fetched.results.columns[0].stringVal.values == ["${env:HOME}"]


def test_the_functions_that_are_refused_are_the_rest_of_sparks(server: Settings) -> None:
    ttypes = pytest.importorskip("TCLIService.ttypes")
    with closing(connected(server)) as connection:
        request = ttypes.TGetFunctionsReq(connection.sessionHandle, functionName="%")
        answer = connection.client.GetFunctions(request)
        fetch = ttypes.TFetchResultsReq(answer.operationHandle, ttypes.TFetchOrientation.FETCH_NEXT, 5_000)
        names = connection.client.FetchResults(fetch).results.columns[2].stringVal.values
    lines = (Path(client.__file__).parent / "functions.txt").read_text().splitlines()
    allowed = {name for line in lines if not line.startswith("#") for name in line.split()}

    known = {name.rpartition(".")[2] for name in names if name.rpartition(".")[2].isidentifier()}

    assert allowed <= known
    assert {name for name in known - allowed if not name.startswith("xpath")} == {
        *("reflect", "try_reflect", "java_method", "python_worker_logs", "measure"),
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
        *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
        *("from_xml", "to_xml", "schema_of_xml", "table_changes", "table_changes_by_path"),
    }


def test_a_query_that_takes_too_long_is_stopped(cursor: Any) -> None:
    with pytest.raises(Exception, match=r"(?i)timed ?out"):
        rows(cursor, "SELECT max(hash(id)) FROM range(0, 1000000000000000, 1, 1)")


def test_an_answer_that_is_too_large_is_refused_and_the_server_goes_on(cursor: Any) -> None:
    said = refusal(cursor, "SELECT uuid() FROM range(2000000)")

    assert "maxResultSize" in said
    assert rows(cursor, "SELECT 1") == [(1,)]


def found(settings: Settings, name: str) -> Status:
    return next(entry for entry in status(settings) if entry.name == name)


def test_it_listens_on_this_machine_only_and_nothing_shows_the_password(server: Settings) -> None:
    process, login = found(server, "sql"), credentials(server)
    java = psutil.Process(process.pid)

    assert process.state == "ready"
    where = {(address.removeprefix("::ffff:"), port) for address, port in listening(process.pid)}
    assert ("127.0.0.1", server.sql_port) in where
    assert {address for address, _ in where} == {"127.0.0.1"}
    assert stat.S_IMODE(login.file.stat().st_mode) == 0o600
    assert not [word for word in java.cmdline() if login.password in word]
    assert login.password not in log_of(server, "sql").read_text()


def test_it_is_ready_for_the_right_password_only(server: Settings) -> None:
    assert client.answers(server)
    assert not client.answers(replace(server, sql_password="wrong"))
    assert not client.answers(replace(server, sql_port=server.controller_port))


def beeline(settings: Settings, folder: Path, *statements: str) -> list[dict[str, str]]:
    """What Hive's command line prints: the rows of all answers."""
    login = credentials(settings)
    java = find_java(settings, read_components(settings.infra).java_versions)
    replace_file(folder / "password", login.password.encode(), mode=0o600)
    done = subprocess.run(
        [
            *(java.executable, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={folder}"),
            *("-cp", f"{spark_jars()}/*", "org.apache.hive.beeline.BeeLine", "--silent=true", "--outputformat=tsv2"),
            *("-u", login.url, "-n", login.user, "-w", str(folder / "password")),
            *(word for statement in statements for word in ("-e", statement)),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = _PROMPT.sub("", done.stdout).replace("\0", "")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT count(*) AS n FROM plain", {"n"}),
        ("!tables", {"TABLE_NAME", "REMARKS"}),
        ("!columns users", {"COLUMN_NAME", "REMARKS"}),
    ],
    ids=["query", "tables", "columns"],
)
def test_jdbc_shows_tables_columns_and_rows(
    server: Settings, tmp_path: Path, statement: str, expected: set[str]
) -> None:
    answer = beeline(server, tmp_path, statement)

    assert expected <= set(answer[0])
    if statement == "!tables":
        assert {"users", "order_counts", PLAIN} <= {row["TABLE_NAME"] for row in answer}
    if statement == "!columns users":
        assert {row["COLUMN_NAME"]: row["REMARKS"] for row in answer}["user_id"]
