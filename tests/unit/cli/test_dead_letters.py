"""The commands that list and show dead letters."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deltaworks.cli import listings
from deltaworks.control import resends
from deltaworks.control.resends import Resend
from deltaworks.lakehouse.dead_letters import Wanted
from deltaworks.topology.records import Coordinates
from tests.unit.cli.test_documents import Terminal
from tests.unit.lakehouse.lake import run as fill


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, tmp_path, capsys)


def test_failures_are_counted(terminal: Terminal) -> None:
    _, expected = fill(terminal.tables, 3)

    counted = msgspec.json.decode(terminal("dead-letters", "list", "orders", "--json"), type=listings.Failures)
    shown = terminal("dead-letters", "list", "orders")

    (failures,) = counted.failures
    assert (counted.pipeline, counted.table) == ("orders", "dead_letters")
    assert (failures.operator, failures.error_class, failures.message) == ("op", "E", "bad")
    assert failures.count == expected.letters and failures.first <= failures.last
    assert f"Dead letters of orders: {expected.letters}" in shown and failures.example in shown
    later = terminal("dead-letters", "list", "orders", "--since", "2999-01-01")
    assert "Dead letters of orders: 0" in later


def test_a_listed_record_can_be_shown(terminal: Terminal) -> None:
    _, expected = fill(terminal.tables, 3)

    text = terminal("dead-letters", "list", "orders", "--records", "--limit", "2", "--json")
    newest, before = msgspec.json.decode(text, type=listings.DeadLetters).records
    listed = terminal("dead-letters", "list", "orders", "--records", "--key", "k", "--error", "BAD")
    shown = terminal("dead-letters", "show", "orders", newest.record)
    again = msgspec.json.decode(
        terminal("dead-letters", "show", "orders", newest.record, "--json"), type=listings.DeadLetters
    )

    assert newest.timestamp >= before.timestamp
    assert (newest.key, newest.value, newest.headers[1].value) == ("k", "{", None)
    assert listed.count("@") == min(expected.letters, 20) and newest.record in listed
    assert newest in again.records
    for text in (newest.record, "key         k\n", "value       {\n", "header h    null\n", "op: E: bad\nat x\n"):
        assert text in shown


def test_what_would_be_sent_again_is_shown_first(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an operator that the topology does not have stay."""
    _, expected = fill(terminal.tables, 3)

    text = terminal("dead-letters", "resend", "orders", "--json")
    shown = terminal("dead-letters", "resend", "orders", "--dry-run")

    planned = msgspec.json.decode(text, type=listings.Resent)
    (group,) = planned.groups
    assert (planned.planned, planned.sent, group.operator, group.count) == (0, 0, "op", expected.letters)
    assert group.stays == "the topology has no such operator"
    assert "0 dead letters of orders can be sent again" in shown and "no such operator" in shown
    letters = frozenset({("op", Coordinates("raw", 0, 1))})
    some = Resend(pipeline="orders", groups=(), wanted=Wanted(), letters=letters)
    monkeypatch.setattr(resends, "plan", lambda *_: some)
    monkeypatch.setattr(resends, "readers", lambda *_: ["clicks"])
    assert "Nobody can be asked whether to send these" in terminal(
        "dead-letters", "resend", "orders", "--json", code=78
    )
    assert "clicks and others that read raw skip them" in terminal("dead-letters", "resend", "orders", "--dry-run")
    monkeypatch.setattr(resends, "send", lambda *_, by, report: 1)
    assert "1 sent. Those that fail again" in terminal("dead-letters", "resend", "orders", "--yes")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "orders", "raw-orders"), "expected TOPIC-PARTITION@OFFSET"),
        (("show", "orders", "raw-orders-0@1"), "raw-orders-0@1 is no dead letter of orders"),
        (("list", "daily_words"), "There is no"),
        (("resend", "daily_words"), "There is no"),
        (("resend", "orders", "--until", "soon"), "'soon'"),
        (("list", "orders", "--since", "yesterday"), "'yesterday'"),
        (("list", "orders", "--since", "2026-03-02", "--until", "2026-03-02"), "The range of times is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(terminal: Terminal, arguments: tuple[str, ...], said: str) -> None:
    assert said in terminal("dead-letters", *arguments, code=78)


def test_a_pipeline_that_keeps_none_says_so(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = tmp_path / "project" / "jobs"
    jobs.mkdir(parents=True)
    for name, argument in (("counted", ""), ("sent", "dead_letters=DeadLetters(topic='bad'), ")):
        (jobs / f"{name}.py").write_text(
            "from deltaworks import DeadLetters, Pipeline\n"
            "def topology(builder):\n    builder.stream('words', key=str, value=str).to('others')\n"
            f"pipeline = Pipeline(name='{name}', {argument}topology=topology)\n"
        )
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path / "project"))

    assert "has no table of dead letters: they are only counted" in terminal("dead-letters", "list", "counted", code=78)
    assert "they go to the topic 'bad'" in terminal("dead-letters", "show", "sent", "words-0@1", code=78)
