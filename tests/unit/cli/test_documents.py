"""What the listings and `sql` print for programs."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.batch import running
from deltaworks.batch.running import DayResult
from deltaworks.cli import app as cli
from deltaworks.cli import listings
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import Incident
from deltaworks.control.model import Deployment, DeployOptions, Observation, Overview, PipelineStatus
from deltaworks.lakehouse import cuts
from deltaworks.quality import Outcome, Verdict, production, results
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import Status as Process
from tests.unit.lakehouse.lake import run as fill
from tests.unit.lakehouse.lake import task_tables, write_batch

PROJECT = Path(__file__).parents[3]
SCHEMAS = Path(__file__).with_name("documents.json")


class Terminal:
    """The command line, in a home with a few tables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("DELTAWORKS_HOME", str(home))
        monkeypatch.setenv("DELTAWORKS_PROJECT", str(PROJECT))
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.home, self.tables = home, home / "tables"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What a command prints."""
        self._monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        shown = self._capsys.readouterr()
        assert int(end.value.code or 0) == code, shown
        return shown.out if code == 0 or shown.out else shown.err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, tmp_path, capsys)


def test_the_documents_have_the_schemas_that_are_written_down() -> None:
    _, schemas = msgspec.json.schema_components(listings.DOCUMENTS)

    assert _ordered(json.loads(SCHEMAS.read_text())) == _ordered(schemas), (
        "scripts read these documents: add fields, and neither remove nor rename any; then write the new schemas down"
    )


def _ordered(schema: Any) -> Any:
    """Alternatives in a fixed order: versions of msgspec differ in theirs."""
    if isinstance(schema, list):
        return [_ordered(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    ordered = {name: _ordered(each) for name, each in schema.items()}
    return ordered | ({"anyOf": sorted(ordered["anyOf"], key=str)} if "anyOf" in ordered else {})


def test_tables(terminal: Terminal) -> None:
    committer, expected = fill(terminal.tables, 3)
    committer.refresh_snapshots(force=True)

    listed = msgspec.json.decode(terminal("tables", "--json"), type=listings.Tables)

    found = {table.name: table for table in listed.tables}
    assert found["orders"].rows == len(expected.orders)
    assert (found["orders"].batch_id, found["users"].batch_id) == (2, 2)
    assert found["users"].as_of is not None and found["users"].as_of.tzinfo is not None
    assert Path(found["orders"].path) == terminal.tables / "orders"


def test_tables_at_a_glance(terminal: Terminal) -> None:
    committer, expected = fill(terminal.tables, 3)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    passed = Verdict(
        table="counts", expectation="a", expects="e", why="w", severity="critical", outcome=Outcome.PASSED, rows=1
    )
    results.append(terminal.tables, "run", "shop", [passed], datetime(2026, 3, 1, tzinfo=UTC))

    listed = msgspec.json.decode(terminal("tables", "--json"), type=listings.Tables)
    shown, technical = terminal("tables"), terminal("tables", "--technical")

    found = {table.name: table for table in listed.tables}
    counts, verdicts = found["counts"], found["quality_results"]
    cut = cuts.latest(terminal.tables, "shop")
    assert cut is not None and counts.fresh_as_of == cut.at and verdicts.fresh_as_of == verdicts.committed_at
    assert (counts.kind, counts.key, counts.pipeline) == ("windowed", ("key",), "shop")
    assert counts.checked is not None and counts.checked.verdict == "passed" and verdicts.checked is None
    (line,) = [line for line in shown.splitlines() if line.startswith("counts ")]
    assert "a key and a window (key)" in line and " shop " in line and " passed" in line
    assert f"{len(expected.counts):,}" in line and f"{cut.at:%Y-%m-%d %H:%M:%S}" in line
    assert "with its outcome" in shown and "version" not in shown and "batch" not in shown
    assert "version" in technical and "batch" in technical and "one row is" not in technical


def test_one_kind_of_list_at_a_time(terminal: Terminal) -> None:
    assert "exclude each other" in terminal("tables", "--json", "--technical", code=78)


def test_the_catalog_is_written_and_described_like_any_table(terminal: Terminal) -> None:
    fill(terminal.tables, 1)

    first, second = terminal("catalog"), terminal("catalog", "--every", "10")

    assert "6 tables" in first and "version 1" in first
    assert "6 tables" in second and "nothing has changed" in second
    shown = msgspec.json.decode(terminal("tables", "show", "catalog", "--json"), type=listings.TableShown)
    assert (shown.kind, shown.grain, shown.pipeline) == ("catalog", "a table", None)
    (row,) = json.loads(
        terminal("sql", "SELECT columns[1].name AS first FROM catalog WHERE name = 'users'", "-f", "json")
    )
    assert row == {"first": "key"}
    assert "is not written by a pipeline" in terminal("tables", "repair", "catalog", code=65)


@pytest.mark.parametrize(
    "command",
    [
        ("tables", "show", "ordrs"),
        ("sql", "SELECT * FROM ordrs"),
        ("sql", "SELECT * FROM ordrs", "--at", "2100-01-01T00:00"),
        ("sql", "SELECT * FROM ordrs JOIN users USING (key)", "--at", "2100-01-01T00:00"),
    ],
)
def test_an_unknown_table_suggests_near_names(terminal: Terminal, command: tuple[str, ...]) -> None:
    committer, _ = fill(terminal.tables, 1)
    committer.refresh_snapshots(force=True)

    message = terminal(*command, code=65 if command[0] == "tables" else 78)

    assert "Hint: did you mean 'orders'?" in message


def test_a_table_is_shown_with_what_a_reader_has_to_know(terminal: Terminal) -> None:
    committer, _ = fill(terminal.tables, 3)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    verdicts = [
        Verdict(table="counts", expectation=name, expects="e", why="w", severity="critical", outcome=outcome, rows=1)
        for name, outcome in (("a", Outcome.PASSED), ("b", Outcome.PASSED), ("c", Outcome.FAILED))
    ]
    results.append(terminal.tables, "earlier", "shop", verdicts[:1], datetime(2026, 3, 1, tzinfo=UTC))
    results.append(terminal.tables, "later", "shop", verdicts, datetime(2026, 3, 2, 9, 30, tzinfo=UTC))
    beat = Heartbeat(
        pipeline="shop",
        generation=1,
        query_id="q",
        state="running",
        pid=1,
        at=0.0,
        lag_records=7,
        next_offsets={"raw": {"0": 12}},
    )
    heartbeat.write(terminal.home / "pipelines" / "shop" / "heartbeat.json", beat)

    shown = msgspec.json.decode(terminal("tables", "show", "counts", "--json"), type=listings.TableShown)
    text = terminal("tables", "show", "counts")

    assert (shown.kind, shown.grain, shown.pipeline) == ("windowed", "a key and a window", "shop")
    assert shown.partitioned_by == ("window_date",)
    assert [column.name for column in shown.columns if column.is_key] == ["key"]
    meanings = {column.name: column.meaning for column in shown.columns}
    assert meanings["is_final"] and meanings["window_start"]
    assert (shown.shown_batch_id, shown.lag_records, shown.offsets) == (2, 7, {"raw": {"0": 12}})
    assert shown.checked is not None
    assert (shown.checked.run_id, shown.checked.outcomes) == ("later", {"failed": 1, "passed": 2})
    assert shown.checked.verdict == "failed"
    json.loads(terminal("sql", shown.example, "-f", "json"))
    assert "one row is  a key and a window" in text
    assert "checked     2026-03-02 09:30 UTC: 1 failed, 2 passed" in text
    assert "batch 2, " in text and "7 records are still to be processed" in text
    assert f"deltaworks sql '{shown.example}'" in text
    assert shown.as_of_means and f"which means {shown.as_of_means}" in text


def test_the_example_of_every_kind_of_table_is_a_query(terminal: Terminal) -> None:
    committer, _ = fill(terminal.tables, 3)
    committer.refresh_snapshots(force=True)

    results.append(terminal.tables, "run", "shop", [], datetime(2026, 3, 1, tzinfo=UTC))
    terminal("catalog")
    for name in ("quality_results", "quality_failures", "catalog"):
        shown = msgspec.json.decode(terminal("tables", "show", name, "--json"), type=listings.TableShown)
        json.loads(terminal("sql", shown.example, "-f", "json"))

    kinds = set()
    for name in committer.tables:
        shown = msgspec.json.decode(terminal("tables", "show", name, "--json"), type=listings.TableShown)
        kinds.add(shown.kind)
        assert json.loads(terminal("sql", shown.example, "-f", "json")), name
        assert (shown.checked, shown.code, shown.lag_records, shown.shown_batch_id) == (None, None, None, None)
    assert kinds == {"append", "changelog", "snapshot", "windowed", "dead letters"}


def test_a_table_of_somebody_else_is_shown_too(terminal: Terminal) -> None:
    write_deltalake(terminal.tables / "theirs", pa.table({"a": [1], "b": [[1, 2]]}))

    shown = msgspec.json.decode(terminal("tables", "show", "theirs", "--json"), type=listings.TableShown)

    assert (shown.kind, shown.pipeline, shown.note) == (None, None, None)
    assert [(column.name, column.type) for column in shown.columns] == [("a", "long"), ("b", "array<long>")]
    assert "theirs" in terminal("tables", "show", "theirs")
    assert "There is no Delta table 'ours'" in terminal("tables", "show", "ours", code=65)


def test_status_without_a_registry(terminal: Terminal) -> None:
    listed = msgspec.json.decode(terminal("status", "--json"), type=listings.Status)

    assert (listed.pipelines, listed.deployments, listed.processes) == ([], [], [])
    assert listed.registry_problem is not None


def test_status_has_every_field_of_what_it_lists() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    seen = Observation(pipeline="orders", generation=3, state="failed", reason="why")
    pipeline = PipelineStatus(
        name="orders", desired="running", seen=seen, for_s=1.5, restarts=2, reason="why", incidents=4
    )
    deployment = Deployment(
        pipeline="orders",
        generation=3,
        requested_by="me",
        requested_at=at,
        options=DeployOptions(),
        state="failed",
        exit_code=65,
        reason="why",
        log="/log",
    )
    process = Process(
        name="kafka", kind="component", state="ready", pid=7, memory_mb=300, ports=(19092,), log="/kafka.log"
    )

    listed = listings.Status.of(
        Overview(pipelines=[pipeline], deployments=[deployment], registry_problem=None), [process]
    )

    again = msgspec.json.decode(msgspec.json.encode(listed), type=listings.Status)
    assert again == listed
    assert again.pipelines[0].incidents == 4
    assert again.pipelines[0].reason == "why" and again.pipelines[0].for_seconds == 1.5
    assert (again.deployments[0].exit_code, again.deployments[0].requested_at) == (65, at)
    assert (again.processes[0].ports, again.processes[0].log) == ((19092,), "/kafka.log")


def test_incidents(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    lagging = Incident(id=3, pipeline="orders", kind="lagging", what="it is late", cause="many records", opened_at=at)
    disk = Incident(id=2, pipeline="", kind="disk_filling", what="5% is free", opened_at=at, ended_at=at, how="room")
    found = {False: [lagging], True: [lagging, disk]}
    monkeypatch.setattr(IncidentBook, "listed", lambda self, name, ended: found[ended] if name is None else [])

    listed = msgspec.json.decode(terminal("incidents", "--all", "--json"), type=listings.Incidents)
    shown, every = terminal("incidents"), terminal("incidents", "--all")

    assert [(each.pipeline, each.how) for each in listed.incidents] == [("orders", None), (None, "room")]
    assert listed.incidents[0].runbook == "docs/runbooks.md#lagging"
    assert "it is late" in shown and "docs/runbooks.md#lagging" in shown and "Disk filling" not in shown
    assert "Disk filling" in every and "2026-03-01 12:00" in every
    assert "no open incidents" in terminal("incidents", "orders")
    assert "There is no pipeline 'ordres'" in terminal("incidents", "ordres", code=78)


def test_replays_and_records_that_were_set_aside(terminal: Terminal) -> None:
    replays = msgspec.json.decode(terminal("replays", "--json"), type=listings.Replays)
    terminal("set-aside", "orders", "raw-orders-0@17", "--reason", "poison")
    records = msgspec.json.decode(terminal("set-aside", "orders", "--list", "--json"), type=listings.SetAside)

    assert replays == listings.Replays(unfinished=[], publications=[], handovers=[])
    (record,) = records.records
    assert (records.pipeline, record.record, record.reason) == ("orders", "raw-orders-0@17", "poison")
    assert abs((datetime.now(UTC) - record.at).total_seconds()) < 60


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED])
def test_quality(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> None:
    row = {"key": b"\x01", "total": 2**70, "amount": Decimal("1.50")}
    verdict = Verdict(
        table="orders",
        expectation="ExpectX",
        expects="x",
        why="why",
        severity="critical",
        outcome=outcome,
        rows=3,
        unexpected=1,
        sample=(row,),
    )
    monkeypatch.setattr(production, "check", lambda *_, **__: [verdict])

    printed = terminal("quality", "orders", "--json", code=0 if outcome is Outcome.PASSED else 1)

    listed = msgspec.json.decode(printed, type=listings.Quality)
    assert (listed.passed, listed.checks[0].outcome) == (outcome is Outcome.PASSED, outcome.value)
    assert '"total": 1180591620717411303424' in printed and '"amount": 1.50' in printed and '"key": "01"' in printed


@pytest.mark.parametrize("version", [4, None], ids=["passed", "failed"])
def test_batch(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, version: int | None) -> None:
    asked: list[list[date]] = []

    def run(settings: Settings, name: str, days: list[date], **_: Any) -> list[DayResult]:
        asked.append(days)
        return [DayResult(day=days[0], rows=3, version=version, verdicts=())]

    monkeypatch.setattr(running, "run", run)
    code = 1 if version is None else 0

    printed = terminal("batch", "sales", "--day", "2026-03-02", "--day", "2026-03-01", "--json", code=code)
    shown = terminal("batch", "sales", "--day", "2026-03-01", code=code)

    listed = msgspec.json.decode(printed, type=listings.Batch)
    assert asked == [[date(2026, 3, 1), date(2026, 3, 2)], [date(2026, 3, 1)]]
    assert (listed.job, listed.passed, listed.days[0].version) == ("sales", version is not None, version)
    assert listed.run_id.startswith("command__")
    assert "2026-03-01" in shown


def test_without_a_day_it_is_yesterday(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[date] = []

    def run(settings: Settings, name: str, days: list[date], **_: Any) -> list[DayResult]:
        asked.extend(days)
        return []

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr("deltaworks.clock.utc_now", lambda: datetime(2026, 3, 1, 0, 5, tzinfo=UTC))

    terminal("batch", "sales")

    assert asked == [date(2026, 2, 28)]


def test_settings(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "deltaworks.toml").write_text(
        "cores = 3\ncontrol_url = { env = 'REGISTRY' }\nhttps_proxy = 'http://me:s3cret@proxy:1'\n"
        "[environments.prod]\ndriver_memory = '8g'\n"
    )
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(project))
    monkeypatch.setenv("DELTAWORKS_ENVIRONMENT", "prod")
    monkeypatch.setenv("REGISTRY", "postgresql://me:s3cret@registry/me")
    for variable in ("DELTAWORKS_CONTROL_URL", "HTTPS_PROXY", "https_proxy", "DELTAWORKS_CORES"):
        monkeypatch.delenv(variable, raising=False)

    printed, table = terminal("config", "show", "--json"), terminal("config", "show")

    listed = msgspec.json.decode(printed, type=listings.Config)
    assert (listed.file, listed.environment) == (str(project / "deltaworks.toml"), "prod")
    found = {setting.name: (setting.value, setting.origin) for setting in listed.settings}
    assert found["cores"] == ("3", f"cores in {project}/deltaworks.toml")
    assert found["driver_memory"] == ("8g", f"environments.prod.driver_memory in {project}/deltaworks.toml")
    assert found["control_url"][0] == "***"
    assert found["https_proxy"][0] == "http://me:***@proxy:1"
    assert found["query_seconds"] == ("600", None)
    assert "environment prod" in table and "driver_memory" in table
    assert "s3cret" not in printed + table


QUERY = """SELECT 1 AS n, 2.50::DECIMAL(9, 2) AS amount, 'a,"b' AS text, NULL AS nothing, [1, 2] AS list,
'ab'::BLOB AS bytes, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at, 2::HUGEINT ** 70 > 0 AS flag"""


def test_sql_as_json_and_as_csv(terminal: Terminal) -> None:
    as_json, as_csv = terminal("sql", QUERY, "--format", "json"), terminal("sql", QUERY, "-f", "csv")

    (row,) = json.loads(as_json, parse_float=Decimal)
    assert row == {
        "n": 1,
        "amount": Decimal("2.50"),
        "text": 'a,"b',
        "nothing": None,
        "list": [1, 2],
        "bytes": "6162",
        "at": "2026-01-01T00:00:00Z",
        "flag": True,
    }
    assert list(csv.reader(io.StringIO(as_csv))) == [
        list(row),
        ["1", "2.50", 'a,"b', "", "[1,2]", "6162", "2026-01-01T00:00:00+00:00", "True"],
    ]


def test_data_is_whole_and_a_table_is_short(terminal: Terminal) -> None:
    numbers = "SELECT * FROM range(60) AS numbers(n)"

    assert len(json.loads(terminal("sql", numbers, "-f", "json"))) == 60
    assert len(json.loads(terminal("sql", numbers, "-f", "json", "--limit", "7"))) == 7
    assert terminal("sql", numbers, "-f", "csv").count("\n") == 61
    assert len(re.findall(r"^\s*\d+\s*$", terminal("sql", numbers), re.MULTILINE)) == 50


def test_two_columns_of_one_name_are_no_json(terminal: Terminal) -> None:
    assert "Two columns have the same name: a, a." in terminal("sql", "SELECT 1 a, 2 a", "-f", "json", code=78)


def rows(terminal: Terminal, at: Any) -> int:
    (row,) = json.loads(terminal("sql", "SELECT count(*) AS n FROM orders", "-f", "json", "--at", str(at)))
    return int(row["n"])


def test_sql_sees_tables_as_they_were(terminal: Terminal) -> None:
    fill(terminal.tables, 3)
    history = {
        commit["version"]: datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
        for commit in DeltaTable(terminal.tables / "orders").history()
    }
    counted = {version: rows(terminal, version) for version in history}

    last = max(history)
    assert counted[last] > counted[last - 1] > 0
    assert rows(terminal, history[last].isoformat()) == counted[last]
    assert rows(terminal, history[last].replace(tzinfo=None).isoformat()) == counted[last]


def test_sql_sees_one_batch_in_all_tables_or_the_latest_version_of_each(terminal: Terminal) -> None:
    committer, expected = fill(terminal.tables, 3)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    of_the_cut = len(expected.orders)
    writes = write_batch(task_tables(terminal.tables), 3, expected)
    committer.commit(3, [write for write in writes if write.table == "orders"])

    def counted(*options: str) -> int:
        (row,) = json.loads(terminal("sql", "SELECT count(*) AS n FROM orders", "-f", "json", *options))
        return int(row["n"])

    assert (counted(), counted("--latest")) == (of_the_cut, len(expected.orders))
    assert len(expected.orders) > of_the_cut
    assert "--latest and --at exclude each other" in terminal("sql", "SELECT 1", "--latest", "--at", "1", code=78)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("99", "Table 'orders' has not got version 99.\n  Hint: its versions are from 0 of "),
        ("2001-02-03", "Table 'orders' has not got a version at 2001-02-03 00:00:00+00:00."),
        ("yesterday", "There is no pin 'yesterday'.\n  Hint: pins: none; a time is 2026-03-01T12:00"),
        ("2026-13", "--at takes a time, a version or a pin, but got '2026-13'."),
    ],
)
def test_what_a_table_has_not_got_is_said(terminal: Terminal, at: str, message: str) -> None:
    fill(terminal.tables, 1)

    assert message in terminal("sql", "SELECT * FROM orders", "--at", at, code=78)


def test_a_version_whose_files_are_gone_is_not_read(terminal: Terminal) -> None:
    fill(terminal.tables, 2)
    table = DeltaTable(terminal.tables / "orders")
    Path(table.file_uris()[0].removeprefix("file://")).unlink()

    shown = terminal("sql", "SELECT * FROM orders", "--at", str(table.version()), code=78)

    assert "1 of its files are gone." in shown
    assert "the table looks back for 90 days at most" in shown


def test_a_table_that_the_query_does_not_name_need_not_be_there(terminal: Terminal) -> None:
    fill(terminal.tables, 1)

    assert json.loads(terminal("sql", "SELECT 1 AS n", "-f", "json", "--at", "2001-02-03")) == [{"n": 1}]


def test_version_and_exit_codes(terminal: Terminal) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", terminal("--version"))
    assert "78 topology, settings, environment or checkpoint do not fit" in " ".join(terminal("--help").split())


def test_pins(terminal: Terminal) -> None:
    committer, expected = fill(terminal.tables, 2)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    assert "audit-q3: shop as of batch 1, " in terminal(
        "tables", "pin", "audit-q3", "shop", "--reason", "the third quarter"
    )
    before = len(expected.orders)
    committer.commit(2, write_batch(task_tables(terminal.tables), 2, expected))
    committer.refresh_snapshots(force=True)
    committer.publish_cut()

    (pin,) = msgspec.json.decode(terminal("tables", "pins", "--json"), type=listings.Pins).pins
    rows = json.loads(terminal("sql", "SELECT count(*) AS rows FROM orders", "--at", "audit-q3", "-f", "json"))

    assert (pin.name, pin.pipeline, pin.batch_id, pin.reason) == ("audit-q3", "shop", 1, "the third quarter")
    assert pin.tables.keys() == committer.tables.keys()
    assert rows == [{"rows": before}]
    assert "the third quarter" in terminal("tables", "pins")
    assert "There is no pin 'audit'.\n  Hint: pins: audit-q3" in terminal(
        "sql", "FROM orders", "--at", "audit", code=78
    )
    assert "There is a pin 'audit-q3' of 'shop' already" in terminal("tables", "pin", "audit-q3", "shop", code=78)
    assert "not kept any more" in terminal("tables", "unpin", "audit-q3", "shop")
    assert "There is no pin 'audit-q3' of 'shop'" in terminal("tables", "unpin", "audit-q3", "shop", code=78)
    assert msgspec.json.decode(terminal("tables", "pins", "--json"), type=listings.Pins).pins == []
