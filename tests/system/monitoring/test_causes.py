"""The check of alerts turns red: one that is not told, told twice, not cleared, or told without a reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltaworks.metrics import rules
from tests.support.monitoring import FIRING, RESOLVED, Webhook
from tests.system.monitoring import run
from tests.system.monitoring.causes import Cause, caused, strays


@pytest.fixture
def hook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


def tells(hook: Webhook, *statuses: str, alert: str = "Lagging") -> Cause:
    """A cause of which the receiver is told at once."""

    def begin() -> None:
        for status in statuses:
            hook.told[alert, "orders", status] += 1

    return Cause(alerts=(alert,), pipeline="orders", begin=begin)


@pytest.mark.parametrize(
    ("statuses", "wrong"),
    [
        ((FIRING, RESOLVED), []),
        ((), ["Lagging of orders is not told"]),
        ((FIRING,), ["Lagging is not cleared"]),
        ((FIRING, RESOLVED, FIRING, RESOLVED), ["Lagging of orders is told 2 times"]),
    ],
)
def test_an_alert_is_told_once_and_cleared(hook: Webhook, statuses: tuple[str, ...], wrong: list[str]) -> None:
    assert caused(hook, tells(hook, *statuses), fires_s=0.3, clears_s=0.3) == wrong


def test_one_that_fires_already_proves_nothing(hook: Webhook) -> None:
    hook.told["Lagging", "orders", FIRING] += 1

    assert caused(hook, tells(hook, FIRING), fires_s=0.3, clears_s=0.3) == [
        "Lagging of orders fires before it is caused"
    ]


def test_one_without_a_reason_is_named(hook: Webhook) -> None:
    cause = tells(hook, FIRING, alert="StreamFailed")
    cause.begin()
    hook.told["DiskFilling", "", FIRING] += 1
    hook.told["DeadLetters", "orders", FIRING] += 1  # its sample data have some

    assert strays(hook, [cause]) == ["DiskFilling of the home is told without a reason"]


def test_each_rule_has_one_factor() -> None:
    text = run.scaled_rules()

    assert text.count("alert: ") == len(rules.RULES)
    assert "207360ms" in text and "[180s]" in text, "a week, and an hour of restarts"
