"""Who may run a pipeline, told from what its control topic says. Against a broker: `integration/test_lineage.py`."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from deltaworks.control import lineage
from deltaworks.control.lineage import Claim, Watch
from deltaworks.errors import FencedError, LineageError
from deltaworks.kafka.control_topic import Found


@dataclass
class ControlTopic:
    """Its newest claim; the counterpart of the producer that claims and of the consumer that watches."""

    newest: Found | None = None
    unread: int = 0

    def init_transactions(self, timeout_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        self._pending = value

    def commit_transaction(self, timeout_s: float) -> None:
        self.newest = Found(self._pending, 0 if self.newest is None else self.newest.offset + 2)
        self.unread += 1

    def assign(self, partitions: object) -> None:
        self.unread = 0

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        self.unread, unread = 0, self.unread
        value = None if self.newest is None else self.newest.value
        return [SimpleNamespace(error=lambda: None, value=lambda: value)] if unread else []

    def close(self) -> None: ...

    def purge(self) -> None: ...


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> ControlTopic:
    there = ControlTopic()
    monkeypatch.setattr(lineage, "_producer", lambda bootstrap, topic: there)
    monkeypatch.setattr(lineage, "reader", lambda bootstrap, **options: there)
    monkeypatch.setattr(lineage, "newest", lambda *args: there.newest)
    return there


def started(which: str, home: str = "/one", *, take_over: bool = False) -> Claim:
    incarnation = lineage.new_incarnation()
    return lineage.claim("kafka:1", "orders", which, incarnation, generation=1, home=home, take_over=take_over)


def claimed(topic: ControlTopic) -> Claim:
    assert topic.newest is not None
    return msgspec.json.decode(topic.newest.value, type=Claim)


def test_a_second_lineage_is_refused_unless_it_takes_over(topic: ControlTopic) -> None:
    first = started("a", "/first")

    with pytest.raises(LineageError, match=r"belongs to another stream: /first on .*(?s:.*)--take-over"):
        started("b", "/second")
    assert claimed(topic) == first

    assert started("a", "/moved") == claimed(topic)
    assert started("b", "/second", take_over=True) == claimed(topic)
    with pytest.raises(LineageError, match="/second"):
        started("a")


def test_a_later_start_fences_the_earlier_one(topic: ControlTopic) -> None:
    watch = Watch("kafka:1", "orders", started("a"))
    watch.check()

    started("a", "/moved")

    with pytest.raises(FencedError, match="Another driver has claimed pipeline 'orders': /moved"):
        watch.check()


def test_a_home_that_starts_over_keeps_its_lineage_and_another_one_gets_its_own(topic: ControlTopic) -> None:
    first = started("a", "/first")

    assert lineage.identity("kafka:1", "orders", "/first") == first.lineage
    assert lineage.identity("kafka:1", "orders", "/second") != first.lineage
