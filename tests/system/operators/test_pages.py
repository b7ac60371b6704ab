"""The way through Airflow's pages in a real browser, as each role, with everything breaking on the way.

A viewer is refused, an operator deploys, records fail, code is given up, people are told by mail and webhook, dead
letters are sent again, a replay is approved by somebody else, published and rolled back. The driver, the scheduler, the
triggerer and the broker are killed in between. Needs `chromium`.

With `PICTURES=folder` it writes pictures of the pages there, for the documentation.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deltaworks.errors import StackError
from deltaworks.stack.airflow import credentials
from tests.integration.own_stack.conftest import NewPipeline, stack_of_a_copy
from tests.support.browser import Person, chromium
from tests.support.receivers import Mails, Posts, smtp_server, web_server
from tests.system.operators import prices as job
from tests.system.operators.conftest import counted
from tests.system.operators.prices import BASE, BETTER, KEYS, NAME, TOPIC, WORSE, Prices
from tests.system.replays.rest import ReplayApi

pytestmark = pytest.mark.timeout(3_600)
STREAM, REPLAY, LETTERS = f"{NAME}__stream", f"{NAME}__replay", "streams__dead_letters"
NOTICES = """
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from deltaworks.airflow.dags import notices_dag
from deltaworks.airflow.webhook import WebhookNotifier

mail = SmtpNotifier(
    from_email="airflow@example.com", to="shop@example.com", custom_headers={"X-Key": "{{ incident.key }}"}
)
notices = notices_dag([mail, WebhookNotifier("pager")])
"""
PEOPLE = "eve:viewer, ada:operator, bob:approver"
_LOOK_S = 240.0
"""Reconciling finds an incident within a minute, and another run tells of it within a minute."""


@dataclass
class Office:
    """The stack, the people in front of it, and what they were told."""

    prices: Prices
    viewer: Person
    operator: Person
    approver: Person
    mails: Mails
    posts: Posts

    @property
    def stack(self) -> NewPipeline:
        return self.prices.stack

    @property
    def airflow(self) -> ReplayApi:
        return self.prices.airflow

    def told(self, kind: str, state: str = "open", *, timeout_s: float = _LOOK_S) -> dict[str, Any]:
        """Waits for a notice, by mail and webhook; what the webhook got."""

        def found() -> dict[str, Any] | None:
            posted = [each for each in self.notices() if (each["kind"], each["state"]) == (kind, state)]
            mailed = {mail["X-Key"] for mail in self.mails.messages}
            return posted[-1] if posted and posted[-1]["key"] in mailed else None

        return self.airflow.wait(f"{kind} is {state}", found, timeout_s=timeout_s)

    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in list(self.posts.received)]

    def incidents(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.stack.deltaworks("incidents", "--all", "--json"))["incidents"]
        return listed

    def asks(self, dag_id: str, run: str, task: str = "approve") -> None:
        """Waits until a task asks, and the scheduler knows it."""
        self.airflow.wait("it asks", lambda: self.airflow.asks(dag_id, run, task), timeout_s=600)
        self.airflow.noted()

    def ended(self, dag_id: str, run: str, state: str = "success") -> None:
        self.airflow.wait("it has ended", lambda: self.airflow.run(dag_id, run).ended, timeout_s=600)
        assert self.airflow.run(dag_id, run).state == state

    def send(self, value: bytes, at: datetime) -> None:
        producer = Producer({"bootstrap.servers": self.stack.settings.bootstrap})
        producer.produce(TOPIC, value, b"another", partition=0, timestamp=int(at.timestamp() * 1000))
        assert producer.flush(60) == 0


def picture(person: Person, name: str, **how: Any) -> None:
    """Of a page as it is now, if somebody wants pictures."""
    if folder := os.environ.get("PICTURES"):
        person.picture(Path(folder) / f"{name}.png", **how)


@pytest.fixture
def office() -> Iterator[Office]:
    with ExitStack() as held:
        mails, posts = held.enter_context(smtp_server()), held.enter_context(web_server())
        stack = held.enter_context(stack_of_a_copy(NAME, prepare, airflow_users=PEOPLE, approval="other person"))
        airflow = held.enter_context(ReplayApi.of(stack.settings))
        connect(airflow, mails, posts)
        browser = held.enter_context(chromium())
        login = credentials(stack.settings)
        viewer, operator, approver = (Person(browser, login.url, login.file, name) for name in ("eve", "ada", "bob"))
        yield Office(Prices(stack, airflow), viewer, operator, approver, mails, posts)
        stack.deltaworks("stop", NAME)


def prepare(project: Path) -> None:
    job.write(project, WORSE)
    shutil.rmtree(project / "jobs" / "batch")  # its schedule has nothing to do with this
    file = project / "dags" / "streams.py"
    file.write_text(file.read_text() + NOTICES)


def connect(airflow: ReplayApi, mails: Mails, posts: Posts) -> None:
    """What an administrator does once, on the page of connections."""
    extra = {"disable_ssl": True, "disable_tls": True, "retry_limit": 0, "timeout": 10}
    for name, kind, host, port, more in (
        ("smtp_default", "smtp", "127.0.0.1", mails.port, extra),
        ("pager", "http", f"http://127.0.0.1:{posts.port}/incidents", None, {}),
    ):
        body = {"connection_id": name, "conn_type": kind, "host": host, "port": port, "extra": json.dumps(more)}
        airflow._authorized("POST", "/api/v2/connections", body)


def as_person(office: Office, name: str) -> ReplayApi:
    """The REST API with somebody's password."""
    login = credentials(office.stack.settings)
    return ReplayApi(login.url, name, json.loads(login.file.read_text())[name])


def test_the_way_through_the_pages_as_each_role(office: Office) -> None:
    airflow, stack, prices = office.airflow, office.stack, office.prices
    operator, approver = office.operator, office.approver
    needed = {STREAM, REPLAY, LETTERS, "streams__notices"}
    airflow.wait("all DAGs are there", lambda: needed <= {dag.dag_id for dag in airflow.dags()}, timeout_s=240)

    for dag_id, fields in ((STREAM, {}), (REPLAY, {"reason": "x"}), (LETTERS, {"pipeline": NAME})):
        office.viewer.is_refused(dag_id, fields)
        assert airflow.runs(dag_id) == [], "a viewer has started something"

    # Deploy; poisoned records; the notice, and the page that it names.
    stack.supervised(operator.trigger(STREAM, {}), timeout_s=300)
    prices.produce()
    failed = 4 * len(KEYS)
    airflow.wait("they have failed", lambda: len(prices.letters()) == failed, timeout_s=300)
    notice = office.told("dead_letters")
    office.viewer.see(notice["link"], STREAM)

    # Code that fails on them for good; the notice says why; repaired, deployed, over.
    prices.write(WORSE, "fail")
    stack.supervised(operator.trigger(STREAM, {}), timeout_s=300)
    office.send(b"EUR 8", BASE)
    notice = office.told("given_up")
    assert "EUR 8" in notice["cause"] or "ValueError" in notice["cause"], notice
    office.viewer.see(notice["link"], STREAM)
    prices.write(BETTER)
    stack.supervised(operator.trigger(STREAM, {}), timeout_s=300)
    office.told("given_up", "over")

    # Dead letters again: looked at, refused to whoever asked, approved by somebody else, and a kill of the driver.
    run = operator.trigger(LETTERS, {"pipeline": NAME, "action": "send"})
    office.asks(LETTERS, run)
    with as_person(office, "ada") as ada, pytest.raises(StackError, match="403"):
        ada.answer(LETTERS, run, "Approve")
    approver.question(LETTERS, run)
    picture(approver, "dead-letters-question", height=760)
    stack.kill_driver(NAME)
    assert approver.answer("Approve") == 200
    office.ended(LETTERS, run)
    assert airflow.xcom(LETTERS, run, "send") == failed
    wanted = dict.fromkeys(KEYS, 1027)
    airflow.wait("all count", lambda: prices.sums("price_sums") == wanted, timeout_s=300)
    assert prices.sums("all_prices") == dict.fromkeys(KEYS, 6), "the other branch has not counted them again"

    # A replay: asked for by one, approved by another on the page that the notice names, and rolled back likewise.
    count = len(stack.table("prices_read")) + 2
    prices.close_days()
    airflow.wait("the days have closed", lambda: len(stack.table("prices_read")) == count, timeout_s=120)
    before = rows(office, "prices_read")
    run = operator.trigger(REPLAY, {"reason": "the repaired code"})
    airflow.wait("it computes", lambda: airflow.task(REPLAY, run, "run").state == "running", timeout_s=300)
    stack.kill("airflow-scheduler", "airflow-triggerer")
    office.asks(REPLAY, run)
    notice = office.told("approval_waits")
    office.viewer.see(notice["link"], REPLAY)
    with as_person(office, "ada") as ada, pytest.raises(StackError, match="403"):
        ada.answer(REPLAY, run, "Approve")
    approver.question(REPLAY, run)
    picture(approver, "replay-question", height=1240)
    assert approver.answer("Approve") == 200
    office.ended(REPLAY, run)
    office.told("approval_waits", "over")
    published = rows(office, "prices_read")
    assert published != before
    back = operator.trigger(REPLAY, {"action": "roll back", "run": run, "reason": "a mistake"})
    office.asks(REPLAY, back, "approve_roll_back")
    approver.question(REPLAY, back, "approve_roll_back")
    assert approver.answer("Approve") == 200
    office.ended(REPLAY, back)
    assert rows(office, "prices_read") == before
    assert prices.sums("price_sums") == wanted

    # A broker that is killed comes back, and the stream goes on.
    stack.kill("kafka")
    count = len(stack.table("prices_read"))
    airflow.wait("Kafka takes records again", lambda: sent(office), timeout_s=120)
    airflow.wait("it goes on", lambda: len(stack.table("prices_read")) > count, timeout_s=300)

    told = every_notice_once(office)
    counted(f"{len(office.incidents())} incidents, {told} notices, each mailed and posted once, {len(KEYS)} sums equal")


def sent(office: Office) -> bool:
    try:
        office.send(b"5", datetime.now(UTC))
    except AssertionError:
        return False
    return True


def rows(office: Office, table: str) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in office.stack.table(table))


def every_notice_once(office: Office) -> int:
    """Waits until people know of all incidents, and that each told them once; the number of notices."""

    def expected() -> set[str]:
        return {
            f"{each['id']}-{datetime.fromisoformat(each['opened_at']):%Y%m%dT%H%M%S}-{state}"
            for each in office.incidents()
            for state in ("open", *(("over",) if each["ended_at"] else ()))
        }

    def complete() -> bool:
        return expected() <= {each["key"] for each in office.notices()}

    office.airflow.wait("all notices have arrived", complete, timeout_s=_LOOK_S)
    posted = Counter(each["key"] for each in office.notices())
    mailed = Counter(mail["X-Key"] for mail in office.mails.messages)
    assert set(posted) == expected(), "a notice of no incident"
    assert posted == mailed
    assert max(posted.values()) == 1, f"told twice: {posted}"
    return len(posted)
