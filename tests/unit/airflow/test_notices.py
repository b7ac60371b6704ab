"""Who is told of incidents: by a mail server and a web server, once, through failures and kills."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowException

from deltaworks.airflow.access import Access
from deltaworks.airflow.notices import Notice, notices_dag, tell
from deltaworks.airflow.options import access_of
from deltaworks.airflow.webhook import WebhookNotifier
from deltaworks.control.incident_book import IncidentBook, Told
from deltaworks.control.incidents import KINDS, Incident
from deltaworks.errors import ConfigurationError, TransientError
from tests.support.receivers import Mails, Posts, smtp_server, web_server

BEGUN = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
LAGGING = Incident(
    id=17,
    pipeline="orders",
    kind="lagging",
    what="it is 20 min behind <its> topics",
    cause="more records arrive than it processes",
    opened_at=BEGUN,
)
OVER = msgspec.structs.replace(LAGGING, ended_at=BEGUN + timedelta(minutes=9), how="it has caught up")
ENVIRONMENT = {"DELTAWORKS_DOCS_URL": "https://docs.example.com/shop"}


class Killed(BaseException):
    """What a SIGKILL is in a test: nothing after it runs."""


class Book:
    """The registry's book, in memory: who was told survives, claims end when a test says so."""

    def __init__(self, *incidents: Incident) -> None:
        self.incidents = list(incidents)
        self.recorded: set[tuple[int, Told]] = set()
        self.claims: dict[tuple[int, Told], str] = {}
        self.kills: str | None = None
        """The call that somebody is killed in."""

    def to_tell(self) -> list[tuple[Incident, frozenset[Told]]]:
        return [(each, frozenset(told for of, told in self.recorded if of == each.id)) for each in self.incidents]

    def claim(self, incident: int, told: Told, by: str) -> bool:
        self._reach("claim")
        if (incident, told) in self.claims or (incident, told) in self.recorded:
            return False
        self.claims[incident, told] = by
        return True

    def release(self, incident: int, told: Told, by: str) -> None:
        if self.claims.get((incident, told)) == by:
            del self.claims[incident, told]

    def told(self, incident: int, told: Told) -> None:
        self._reach("told")
        self.recorded.add((incident, told))

    def _reach(self, call: str) -> None:
        if self.kills == call:
            self.kills = None
            raise Killed(call)


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    book = Book(LAGGING)
    monkeypatch.setattr(IncidentBook, "of", lambda settings: book)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/")
    return book


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mails]:
    with smtp_server() as mails:
        extra = {"disable_ssl": True, "disable_tls": True, "retry_limit": 0, "timeout": 10}
        where = {"conn_type": "smtp", "host": "127.0.0.1", "port": mails.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(where))
        yield mails


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Posts]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with web_server() as posts:
        where = {"conn_type": "http", "schema": "http", "host": "127.0.0.1/incidents", "port": posts.port}
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({**where, "password": "s3cret"}))
        yield posts


def mail(**texts: Any) -> SmtpNotifier:
    return SmtpNotifier(from_email="airflow@example.com", to="shop@example.com", **texts)


def run(notifiers: Any, run_id: str = "scheduled__1", try_number: int = 1) -> list[str]:
    context = {"run_id": run_id, "ti": SimpleNamespace(try_number=try_number)}
    return tell(context, notifiers, Access())


def test_a_mail_says_all_and_goes_out_once(book: Book, mails: Mails) -> None:
    assert run([mail()]) == ["17-20261122T030405-open"]
    book.claims.clear()
    assert run([mail()], "scheduled__2") == []

    [message] = mails.messages
    assert (message["Subject"], message["To"]) == ("orders: Lagging", "shop@example.com")
    [text] = [part.get_content() for part in message.walk() if part.get_content_type() == "text/html"]
    for expected in (
        "it is 20 min behind &lt;its&gt; topics",
        "more records arrive than it processes",
        "2026-11-22 03:04:05 UTC",
        "deltaworks status orders",
        "https://airflow.example.com/dags/orders__stream",
        "https://docs.example.com/shop/runbooks.html#lagging",
    ):
        assert expected in text


def test_the_end_is_told_once_and_after_the_beginning(book: Book, posts: Posts) -> None:
    book.incidents = [OVER]

    assert run([WebhookNotifier("pager")]) == ["17-20261122T030405-open", "17-20261122T030405-over"]
    assert run([WebhookNotifier("pager")], "scheduled__2") == []

    path, headers, body = posts.received[1]
    assert (path, headers["Idempotency-Key"]) == ("/incidents", "17-20261122T030405-over")
    assert headers["Authorization"] == "Bearer s3cret"
    document = json.loads(body)
    assert (document["state"], document["how"]) == ("over", "it has caught up")
    assert document["title"] == "orders: Lagging is over"
    assert [json.loads(each[2])["ended"] for each in posts.received] == [None, "2026-11-22T03:13:05Z"]


def test_templates_of_a_notifier_know_the_incident(book: Book, mails: Mails) -> None:
    own = mail(subject="{{ incident.state }} {{ incident.pipeline }}", html_content="<p>{{ incident.text }}</p>")

    run([own])
    book.incidents.append(msgspec.structs.replace(LAGGING, id=18, pipeline="payments"))
    run([own], "scheduled__2")

    assert [message["Subject"] for message in mails.messages] == ["open orders", "open payments"]


def test_a_server_that_refuses_delays_a_notice_and_no_other(book: Book, mails: Mails, posts: Posts) -> None:
    mails.refuses = True
    both = [mail(), WebhookNotifier("pager")]

    with pytest.raises(AirflowException, match="next run tries again: orders: Lagging: 0 SmtpNotifier"):
        run(both)
    assert len(posts.received) == 1

    mails.refuses = False
    run(both, try_number=2)
    assert (len(mails.messages), len(posts.received)) == (1, 1)


def test_an_answer_that_is_an_error_is_a_failure_that_shows_no_address(book: Book, posts: Posts) -> None:
    posts.status = 500

    with pytest.raises(AirflowException, match="'pager' answers 500") as raised:
        run([WebhookNotifier("pager")])

    assert "127.0.0.1" not in str(raised.value)


def test_a_kill_before_a_notice_has_left_loses_nothing(book: Book, posts: Posts) -> None:
    book.kills = "claim"
    with pytest.raises(Killed):
        run([WebhookNotifier("pager")])

    run([WebhookNotifier("pager")], try_number=2)

    assert len(posts.received) == 1


def test_a_kill_after_a_notice_has_left_repeats_it_with_the_same_key_once_the_claim_is_over(
    book: Book, posts: Posts
) -> None:
    book.kills = "told"
    with pytest.raises(Killed):
        run([WebhookNotifier("pager")])

    assert run([WebhookNotifier("pager")], try_number=2) == []
    book.claims.clear()
    run([WebhookNotifier("pager")], "scheduled__7")

    assert len(posts.received) == 2
    assert len({headers["Idempotency-Key"] for _, headers, _ in posts.received}) == 1


def test_whoever_finds_a_claim_of_another_does_not_tell(book: Book, posts: Posts) -> None:
    book.claims[17, Told("open", "0 WebhookNotifier")] = "somebody else"
    book.incidents = [OVER]

    assert run([WebhookNotifier("pager")]) == []
    assert posts.received == []


class Notes(BaseNotifier):
    """Takes notes."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def notify(self, context: Any) -> None:
        self.told.append(context["incident"].title)


def test_each_pipeline_may_have_notifiers_of_its_own(book: Book) -> None:
    shop, others = Notes(), Notes()
    disk = Incident(id=19, pipeline="", kind="disk_filling", what="5% is free", opened_at=BEGUN)
    book.incidents += [msgspec.structs.replace(LAGGING, id=18, pipeline="payments"), disk]

    run({"orders": [shop], "*": [others]})

    assert (shop.told, others.told) == (["orders: Lagging"], ["payments: Lagging", "the home: Disk filling"])


def test_without_a_notifier_nobody_is_told(book: Book) -> None:
    assert run({"payments": [Notes()]}) == []
    assert book.claims == {}


@pytest.mark.parametrize("wrong", [["mail"], "mail", {"orders": "mail"}, {"orders": [print]}, None])
def test_what_is_no_notifier_is_refused_where_the_dag_is_made(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="notifiers= has"):
        notices_dag(wrong)


def test_the_dag_looks_every_minute_and_never_twice_at_once() -> None:
    dag: Any = notices_dag([Notes()], owner="platform")

    schedule: Any = dag.schedule
    assert (dag.dag_id, dag.max_active_runs, schedule) == ("streams__notices", 1, timedelta(minutes=1))
    assert [(each.task_id, each.owner) for each in dag.tasks] == [("tell", "platform")]


def test_the_option_of_earlier_versions_says_what_replaces_it() -> None:
    old: Any = {"notifiers": []}

    with pytest.raises(ConfigurationError, match="notices_dag"):
        access_of(old)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_leads_to_a_page_of_airflow_and_to_its_runbook(kind: Any) -> None:
    incident = Incident(id=1, pipeline="orders", kind=kind, what="so it is", opened_at=BEGUN)

    notice = Notice.of(incident, "open", "https://airflow.example.com", None)

    assert notice.link.startswith("https://airflow.example.com/dags/orders__")
    assert notice.runbook == f"docs/runbooks.md#{KINDS[incident.kind].anchor}"


def test_a_page_of_a_run_is_an_address() -> None:
    place = "orders__replay/runs/manual__2026-11-22T03:04:05+00:00"
    incident = msgspec.structs.replace(LAGGING, kind="approval_waits", place=place)

    notice = Notice.of(incident, "open", "http://a", None)

    assert notice.link == "http://a/dags/orders__replay/runs/manual__2026-11-22T03%3A04%3A05%2B00%3A00"


def test_a_web_server_that_is_away_is_a_failure(monkeypatch: pytest.MonkeyPatch, posts: Posts) -> None:
    where = {"conn_type": "http", "schema": "http", "host": "127.0.0.1", "port": 1}
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps(where))

    with pytest.raises(TransientError, match="'pager' does not answer"):
        WebhookNotifier("pager").notify({"incident": Notice.of(LAGGING, "open", "http://a", None)})  # type: ignore[typeddict-unknown-key]
