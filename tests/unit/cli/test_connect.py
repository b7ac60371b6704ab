"""The commands `connect`, in a project with two connectors, against a worker in a thread."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from deltaworks import exits
from deltaworks.cli import app as cli
from deltaworks.cli import listings, stack
from deltaworks.config import Values
from deltaworks.connect import states
from deltaworks.connect.slots import Slot
from deltaworks.connectors import dead_letters, resends, slots, sweep
from deltaworks.connectors.dead_letters import Letter
from deltaworks.connectors.sweep import Sweep, Swept
from deltaworks.control.connector_book import ConnectorBook, Desired
from deltaworks.errors import KafkaReadError
from deltaworks.kafka import admin
from deltaworks.topology.records import Coordinates
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FILE_SOURCE, JDBC, POSTGRES, FakeConnect, Refused, fake_connect

CDC = """\
from deltaworks.connect import DebeziumPostgres

connector = DebeziumPostgres(
    name="orders_cdc",
    hostname="db",
    user="cdc",
    password={"env": "CDC_PASSWORD"},
    dbname="shop",
    topic_prefix="shop",
    tables=["public.orders"],
)
"""
LINES = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": "/data/lines.txt", "topic": "lines"}
TRACE = "org.apache.kafka.connect.errors.ConnectException: the file is gone\n\tat org.example.Task.poll\n"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConnect]:
    folder = tmp_path / "jobs" / "connectors"
    folder.mkdir(parents=True)
    (folder / "orders_cdc.py").write_text(CDC)
    (folder / "lines.json").write_text(json.dumps({"name": "lines", "config": LINES}))
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.split(".")[0] == "jobs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(states, "_SETTLE_S", 0.0)
    monkeypatch.setattr(states, "_ASK_S", 0.02)
    with fake_connect() as made:
        monkeypatch.setattr(admin, "cluster_id", away)
        table = Values.table
        monkeypatch.setattr(
            Values,
            "table",
            lambda self, kind, pipeline="": {"url": made.url} if kind == "connect" else table(self, kind, pipeline),
        )
        yield made


@pytest.fixture
def call(fake: FakeConnect, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["deltaworks", "connect", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return called


def away(*_: object, **__: object) -> str:
    raise KafkaReadError("The broker does not answer.")


def test_a_plan_shows_what_would_change_and_changes_nothing(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", {**LINES, "topic": "old"})
    fake.add("theirs", {"connector.class": POSTGRES})

    code, shown, _ = call("plan")

    assert code == exits.OK
    rows = [line.split() for line in shown.splitlines()]
    assert ["lines", "changed", "topic", "old", "lines"] in rows
    assert ["orders_cdc", "new", "connector.class", POSTGRES] in rows
    assert ["database.password", "${env:CDC_PASSWORD}"] in rows
    assert any(row[:2] == ["theirs", "unknown"] for row in rows)
    assert "1 new, 1 changed, 0 unchanged" in shown
    assert fake.changes == []
    assert call("plan", "--exit-code")[0] == 1
    assert call("apply", "--wait", "0")[0] == exits.OK
    assert call("plan", "--exit-code")[0] == exits.OK
    assert "theirs" in fake.connectors


def test_a_plan_for_scripts(fake: FakeConnect, call: Call) -> None:
    fake.errors = {"file": ["The file is not there"]}

    code, printed, told = call("plan", "--json")

    listed = msgspec.json.decode(printed, type=listings.ConnectorsPlanned)
    assert code == exits.CONFIG and "The file is not there" in told
    assert {each.name: each.change for each in listed.connectors} == {"lines": "new", "orders_cdc": "new"}
    assert [(each.connector, each.setting, each.what) for each in listed.problems] == [
        ("lines", "file", "The file is not there")
    ]


def test_apply_creates_and_waits(fake: FakeConnect, call: Call) -> None:
    code, shown, _ = call("apply")

    assert code == exits.OK, shown
    assert set(fake.connectors) == {"lines", "orders_cdc"}
    assert "lines is created" in shown and "2 of 2 tasks run, 0 have failed" in shown
    assert fake.connectors["orders_cdc"].config["database.password"] == "${env:CDC_PASSWORD}"
    code, shown, _ = call("apply")
    assert (code, len(fake.changes)) == (exits.OK, 2)
    assert "0 new, 0 changed, 2 unchanged" in shown


def test_apply_of_some(fake: FakeConnect, call: Call) -> None:
    assert call("apply", "lines")[0] == exits.OK
    assert set(fake.connectors) == {"lines"}


def test_nothing_is_applied_if_one_does_not_fit(fake: FakeConnect, call: Call, tmp_path: Path) -> None:
    file = tmp_path / "jobs/connectors/lines.json"
    file.write_text(json.dumps({**LINES, "batch.siz": 7}))

    code, _, told = call("apply")

    assert (code, fake.changes) == (exits.CONFIG, [])
    assert "lines: batch.siz: the class defines no such setting; did you mean 'batch.size'?" in told
    assert "--allow-undefined" in told
    assert call("apply", "--allow-undefined")[0] == exits.OK


def test_apply_says_what_it_has_done_before_it_failed(fake: FakeConnect, call: Call) -> None:
    def before_put() -> None:
        if "lines" in fake.connectors:
            raise Refused(400, "not this one")

    fake.before_put = before_put

    code, shown, told = call("apply")

    assert code == exits.CONFIG and list(fake.connectors) == ["lines"]
    assert "lines is created" in shown and "answers 400 to PUT /connectors/orders_cdc/config: not this one" in told


def test_apply_says_what_has_failed(fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    add = fake.add

    def failing(name: str, config: dict[str, str], tasks: int = 1) -> None:
        add(name, config, tasks)
        fake.fail(name, 0, TRACE)

    monkeypatch.setattr(fake, "add", failing)

    code, shown, _ = call("apply", "lines")

    assert code == 1
    assert "lines: org.apache.kafka.connect.errors.ConnectException: the file is gone" in shown


def test_validate_with_a_worker_and_without(fake: FakeConnect, call: Call) -> None:
    code, shown, _ = call("validate")
    assert code == exits.OK and "orders_cdc" in shown and FILE_SOURCE in shown
    fake.errors = {"file": ["The file is not there"]}
    code, _, told = call("validate")
    assert code == exits.CONFIG and "lines: file: The file is not there" in told
    asked = len(fake.requests)
    assert call("validate", "--offline")[0] == exits.OK
    assert len(fake.requests) == asked and fake.changes == []


def test_status(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", LINES, tasks=2)
    fake.add("orders_cdc", {"connector.class": POSTGRES})
    fake.fail("lines", 1, TRACE)

    code, shown, _ = call("status")
    printed = msgspec.json.decode(call("status", "--json")[1], type=listings.Connectors)
    one = msgspec.json.decode(call("status", "orders_cdc", "--json")[1], type=listings.Connectors)

    assert code == exits.OK
    assert "2 connectors, 3 tasks, 1 failed" in shown
    assert "FAILED" in shown and "the file is gone" in shown and "Task.poll" not in shown
    assert (printed.total_tasks, printed.failed_tasks) == (3, 1)
    assert printed.connectors[0].tasks[1].error == TRACE.splitlines()[0]
    assert printed.connectors[0].worker == "127.0.0.1:8083"
    assert [each.name for each in one.connectors] == ["orders_cdc"]
    assert "did you mean 'lines'?" in call("status", "line")[2]


LOST = 'org.postgresql.util.PSQLException: ERROR: can no longer access replication slot "orders_cdc"\n\tat x'


def test_status_says_of_a_lost_slot_what_to_do(fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add("orders_cdc", {"connector.class": POSTGRES})
    fake.fail("orders_cdc", 0, LOST)

    printed = msgspec.json.decode(call("status", "--json")[1], type=listings.Connectors)
    (listed,) = printed.connectors
    assert listed.slot is not None and listed.slot.endswith("docs/how-to/change-data-capture.md#a-lost-slot")
    assert listed.tasks[0].error == listed.slot
    assert "orders_cdc: the database no longer has what it has not read" in call("status")[1]

    fake.add("orders_cdc", {"connector.class": POSTGRES})
    monkeypatch.setattr(slots, "look", lambda *_: Slot(name="orders_cdc", wal_status="unreserved"))
    assert "orders_cdc: its replication slot 'orders_cdc' is so far behind" in " ".join(call("status")[1].split())


SINK = {
    "connector.class": JDBC,
    "topics": "orders",
    "errors.deadletterqueue.topic.name": "orders_failed",
    "errors.deadletterqueue.context.headers.enable": "true",
}
LETTER = Letter(
    at=Coordinates("orders_failed", 0, 4),
    record=Coordinates("orders", 1, 41),
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"\xff{",
    headers=(("h", b"1"),),
    connector="orders_sink",
    stage="VALUE_CONVERTER",
    error_class="DataException",
    message="no JSON\nat all",
)


@pytest.fixture
def lettered(fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A sink with dead letters; what is sent of them."""
    sent: list[str] = []

    def send(settings: object, planned: resends.Resend, by: str, report: Callable[[int], None]) -> int:
        assert " at " in by
        sent.extend(each.name for each in planned.records)
        return len(planned.records)

    fake.add("orders_sink", SINK)
    fake.add("lines", LINES)
    monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: fake.cluster)
    monkeypatch.setattr(admin, "record_counts", lambda *_, since_ms, timeout_s: {"orders_failed": (5, 2, 9)})
    monkeypatch.setattr(dead_letters, "newest", lambda kafka, name, topic, limit: [LETTER][:limit])
    monkeypatch.setattr(dead_letters, "end_of", lambda kafka, topic: {})
    monkeypatch.setattr(dead_letters, "every", lambda kafka, name, topic, ends: iter([LETTER]))
    monkeypatch.setattr(resends, "send", send)
    return sent


def test_dead_letters_of_sinks_are_counted_and_listed(lettered: list[str], call: Call) -> None:
    code, shown, _ = call("dead-letters")
    assert code == exits.OK
    assert ["orders_sink", "orders_failed", "5", "2"] in [line.split() for line in shown.splitlines()]
    assert "lines" not in shown and "orders-1@41" not in shown

    shown = " ".join(call("dead-letters", "orders_sink")[1].split())
    for told in ("orders_failed-0@4", "orders-1@41", "VALUE_CONVERTER", "DataException", "no JSON", "\\xff{"):
        assert told in shown
    assert "at all" not in shown

    printed = msgspec.json.decode(call("dead-letters", "orders_sink", "--json")[1], type=listings.SinkLetters)
    assert [(each.connector, each.total, each.recent) for each in printed.counts] == [("orders_sink", 5, 2)]
    (letter,) = printed.letters
    assert (letter.letter, letter.record, letter.key, letter.again) == ("orders_failed-0@4", "orders-1@41", "k", False)
    assert letter.value == {"base64": "/3s="}


def test_dead_letters_beside_the_states(
    lettered: list[str], fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [line.split() for line in call("status")[1].splitlines()]
    assert ["orders_sink", "source", "RUNNING", "127.0.0.1:8083", "5"] in rows
    assert ["lines", "source", "RUNNING", "127.0.0.1:8083"] in rows
    printed = msgspec.json.decode(call("status", "--json")[1], type=listings.Connectors)
    assert [(each.name, each.dead_letters) for each in printed.connectors] == [("lines", None), ("orders_sink", 5)]

    monkeypatch.setattr(admin, "cluster_id", away)
    code, shown, _ = call("status")
    assert code == exits.OK and "note: dead letters are not counted" in shown


def test_a_connector_without_dead_letters_says_how_to_get_some(lettered: list[str], call: Call) -> None:
    for command in (["dead-letters", "lines"], ["resend", "lines", "--all"]):
        code, _, told = call(*command)
        assert code == exits.CONFIG and 'dead_letters="lines_failed"' in told


def test_resend_asks_says_what_and_sends_each(lettered: list[str], call: Call) -> None:
    code, _, told = call("resend", "orders_sink", "--all")
    assert code == exits.CONFIG and "--yes sends without asking" in told
    code, shown, _ = call("resend", "orders_sink", "--all", "--dry-run")
    assert code == exits.OK and "1 dead letters of orders_sink can be sent again" in shown
    assert lettered == []

    code, shown, _ = call("resend", "orders_sink", "--offset", "orders_failed-0@4", "--yes")
    assert code == exits.OK and "1 sent" in shown and "Streams that read orders skip them" in " ".join(shown.split())
    assert lettered == ["orders-1@41"]
    printed = msgspec.json.decode(
        call("resend", "orders_sink", "--all", "--yes", "--json")[1], type=listings.SinkResent
    )
    assert (printed.planned, printed.sent, printed.topics, printed.topic) == (1, 1, ["orders"], "orders_failed")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "Nothing, or too much, says what to send"),
        (["--all", "--offset", "orders_failed-0@4"], "Nothing, or too much, says what to send"),
        (["--offset", "4"], "names no record; expected TOPIC-PARTITION@OFFSET"),
        (["--offset", "orders_failed-0@5"], "orders_failed-0@5 is no dead letter of orders_sink"),
    ],
)
def test_resend_refuses_what_it_cannot_do(lettered: list[str], call: Call, options: list[str], told: str) -> None:
    code, _, said = call("resend", "orders_sink", "--yes", *options)

    assert code == exits.CONFIG and told in said
    assert lettered == []


def test_restart_of_all_of_what_has_failed_and_of_a_task(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", LINES, tasks=3)
    fake.add("other", LINES)
    fake.fail("lines", 1, TRACE)

    assert "lines: tasks 1 restart" in call("restart", "--failed")[1]
    assert [path for _, path in fake.changes] == ["/connectors/lines/restart?includeTasks=true&onlyFailed=true"]
    assert fake.connectors["lines"].tasks[1]["state"] == "RUNNING"
    assert "nothing has failed" in call("restart", "--failed")[1]
    assert "lines: tasks 0, 1, 2 restart" in call("restart", "lines")[1]
    assert fake.changes[-1][1].endswith("onlyFailed=false")
    assert "task 2 restarts" in call("restart", "lines", "--task", "2")[1]
    assert fake.changes[-1][1] == "/connectors/lines/tasks/2/restart"
    assert call("restart")[0] == exits.CONFIG
    assert call("restart", "lines", "other", "--task", "1")[0] == exits.CONFIG


def test_pause_stop_and_resume(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", LINES)
    fake.add("other", LINES)

    for command, state in (("pause", "PAUSED"), ("stop", "STOPPED"), ("resume", "RUNNING")):
        assert call(command, "lines", "other")[0] == exits.OK
        assert {each.state for each in fake.connectors.values()} == {state}
    before = len(fake.changes)
    code, _, told = call("pause", "lines", "othr")
    assert (code, len(fake.changes)) == (exits.CONFIG, before) and "did you mean 'other'?" in told


def test_offsets_are_shown_and_forgotten(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", LINES).offsets = [{"partition": {"filename": "/data/lines.txt"}, "offset": {"position": 30}}]

    assert '{"position": 30}' in call("offsets", "lines")[1]
    printed = msgspec.json.decode(call("offsets", "lines", "--json")[1], type=listings.ConnectorOffsets)
    assert printed.offsets[0].offset == {"position": 30}
    code, _, told = call("offsets", "lines", "--reset", "--yes")
    assert code == exits.CONFIG and "deltaworks connect stop lines" in told
    call("stop", "lines")
    code, _, told = call("offsets", "lines", "--reset")
    assert code == exits.CONFIG and "--yes forgets them without asking" in told
    assert fake.connectors["lines"].offsets != []
    assert call("offsets", "lines", "--reset", "--yes")[0] == exits.OK
    assert fake.connectors["lines"].offsets == []
    assert call("offsets", "lines", "--reset", "--json")[0] == exits.CONFIG


def test_a_source_that_begins_again_is_told_what_a_sweep_can_do(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake.add("orders_cdc", {"connector.class": POSTGRES})
    made.state, made.tasks, made.offsets = "STOPPED", [], [{"partition": {"server": "shop"}, "offset": {"lsn": 7}}]

    code, shown, _ = call("offsets", "orders_cdc", "--reset", "--yes")  # Kafka is away
    assert code == exits.OK and "so `sweep` cannot find rows that are gone: The broker does not answer." in shown
    assert made.offsets == []

    monkeypatch.setattr(sweep, "begin_again", lambda *_: ("cdc.orders",))
    assert "`deltaworks connect sweep orders_cdc` finds rows" in call("offsets", "orders_cdc", "--reset", "--yes")[1]


def test_a_sweep_shows_what_is_gone_and_asks_first(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = (
        Swept(topic="cdc.orders", rows=12, gone=2, whole=False),
        Swept(topic="cdc.lines", rows=3, gone=0, whole=True),
    )
    planned = Sweep(connector="orders_cdc", topics=swept, keys={("cdc.orders", 0): [b"a", b"b"]})
    sent: list[Sweep] = []
    asked: list[Sequence[str]] = []

    def plan(settings: object, api: object, name: str, topics: Sequence[str]) -> Sweep:
        asked.append(topics)
        return planned

    def send(settings: object, api: object, what: Sweep, *, force: bool) -> int:
        sent.append(what)
        return what.count - force

    monkeypatch.setattr(sweep, "plan", plan)
    monkeypatch.setattr(sweep, "send", send)
    command = ("sweep", "orders_cdc", "--topic", "cdc.orders", "--topic", "cdc.lines")

    code, shown, _ = call(*command, "--dry-run")
    assert (code, sent, asked) == (exits.OK, [], [["cdc.orders", "cdc.lines"]])
    assert ["cdc.orders", "12", "2"] in [line.split()[:3] for line in shown.splitlines()]
    assert "the beginning of the topic is gone" in shown and "are not found" in shown
    code, _, told = call(*command)
    assert code == exits.CONFIG and "--yes deletes without asking" in told and not sent
    assert "2 deleted: deltaworks connect resume orders_cdc" in call(*command, "--yes")[1]
    assert sent == [planned]


def test_a_sweep_of_most_rows_is_shown_and_refused_until_somebody_insists(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Sweep(connector="orders_cdc", topics=(Swept(topic="cdc.orders", rows=2, gone=10, whole=True),), keys={})
    sent: list[bool] = []

    def send(settings: object, api: object, what: Sweep, *, force: bool) -> int:
        sent.append(force)
        return 9

    monkeypatch.setattr(sweep, "plan", lambda *_: planned)
    monkeypatch.setattr(sweep, "send", send)
    command = ("sweep", "orders_cdc", "--topic", "cdc.orders")

    assert "would be deleted" in " ".join(call(*command, "--dry-run")[1].split())
    code, _, told = call(*command, "--yes")
    assert code == exits.CONFIG and "10 of 12 rows of 'cdc.orders' would be deleted" in told and "--force" in told
    assert not sent
    code, shown, _ = call(*command, "--yes", "--force")
    assert (code, sent) == (exits.OK, [True])
    assert "1 stay: somebody has written them since" in shown and "9 deleted" in shown


def test_delete_asks_first(fake: FakeConnect, call: Call) -> None:
    fake.add("lines", LINES)
    fake.add("theirs", LINES)

    code, _, told = call("delete", "lines")
    assert code == exits.CONFIG and "--yes deletes it without asking" in told
    assert "jobs/connectors/lines.json is still there" in call("delete", "lines", "--yes")[1]
    assert "still there" not in call("delete", "theirs", "--yes")[1]
    assert fake.connectors == {}
    assert call("delete", "lines", "--yes")[0] == exits.CONFIG


def test_delete_says_in_the_registry_first_that_nobody_deploys_it_again(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.add("lines", LINES)
    book = BookInMemory()
    book.deployed("lines", LINES, cluster=fake.cluster, by="me")
    there: list[bool] = []

    def desire(name: str, desired: Desired, *, by: str) -> bool:
        there.append(name in fake.connectors)
        return BookInMemory.desire(book, name, desired, by=by)

    monkeypatch.setattr(book, "desire", desire)
    monkeypatch.setattr(ConnectorBook, "of", lambda settings: book)

    shown = call("delete", "lines", "--yes")[1]

    assert (there, book.rows["lines"].desired) == ([True], "deleted")
    assert "note:" not in shown


def test_delete_without_a_registry_deletes_and_says_what_may_follow(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAWORKS_CONTROL_URL", "postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    fake.add("lines", LINES)

    code, shown, _ = call("delete", "lines", "--yes")

    assert (code, fake.connectors) == (exits.OK, {})
    assert "note: if streams__reconcile watches lines, it deploys it again" in shown


def test_status_of_everything_shows_connectors_beside_streams(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DELTAWORKS_CONTROL_URL", "postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    fake.add("lines", LINES, tasks=2)
    fake.fail("lines", 1, TRACE)

    def status(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["deltaworks", "status", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        return capsys.readouterr().out

    rows = [line.split() for line in status().splitlines()]
    assert ["lines", "RUNNING", "2", "1", "1", "0"] in [row[:6] for row in rows]
    assert ["orders_cdc", "MISSING", "0", "0", "0", "0"] in [row[:6] for row in rows]
    listed = msgspec.json.decode(status("--json"), type=listings.Status)
    assert [(each.name, each.state, each.failed_tasks) for each in listed.connectors] == [
        ("lines", "RUNNING", 1),
        ("orders_cdc", "MISSING", 0),
    ]
    assert listed.connectors[0].reason == TRACE.splitlines()[0]
    assert listed.connect_problem is None
    assert len(msgspec.json.decode(status("lines", "--json"), type=listings.Status).connectors) == 1

    monkeypatch.setattr(stack, "_CONNECTORS_S", 0.0)
    assert "Connectors: nothing is known of them after 0 s" in status()
    monkeypatch.setattr(stack, "_CONNECTORS_S", 20.0)
    fake.next = [(500, "down")] * 3
    shown = status()
    assert "Connectors: " in shown and "down" in shown and "This is only what this host knows" in shown
    listed = msgspec.json.decode(status("--json"), type=listings.Status)
    assert listed.connect_problem is not None and {each.state for each in listed.connectors} == {"UNKNOWN"}


def test_no_worker_and_no_address(
    fake: FakeConnect, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake.next = [(500, "Request timed out")]
    code, _, told = call("status")
    assert code == exits.UNAVAILABLE and "Request timed out" in told
    monkeypatch.setattr(Values, "table", lambda self, kind, pipeline="": {})
    code, _, told = call("plan")
    assert code == exits.CONFIG and "[connect] with url" in told
    for file in (tmp_path / "jobs/connectors").glob("*.*"):
        file.unlink()
    assert "no connectors in" in call("validate", "--offline")[1]
