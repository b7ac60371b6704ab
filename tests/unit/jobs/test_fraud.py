from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from deltaworks.testing import TopologyTestDriver
from jobs.fraud import pipeline
from jobs.model.fraud import Alert, Payment, Profile

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LOOK = timedelta(seconds=10)


class Bank:
    """The pipeline, and payments made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.payments = self.driver.create_input_topic("payments", key=str, value=Payment)
        self.alerts = self.driver.create_output_topic("fraud-alerts", key=str, value=Alert)

    def pay(self, user: str = "ann", at: int = 0, **fields: Any) -> None:
        payment = {"payment_id": "p-1", "amount": "10.00", "country": "DE"} | fields
        self.payments.pipe_raw(user.encode(), json.dumps(payment).encode(), timestamp_ms=at)

    def told(self) -> list[tuple[str, Alert]]:
        """The alerts since the last call."""
        return [(str(user), alert) for user, alert in self.alerts.read_key_values_to_list() if alert is not None]

    def rules(self) -> list[str]:
        return [alert.rule for _, alert in self.told()]

    def look(self) -> list[str]:
        self.driver.advance_wall_clock_time(LOOK)
        return self.rules()


def test_an_alert_says_what_the_payment_was_judged_by() -> None:
    bank = Bank()
    for hour in range(5):
        bank.pay(at=hour * HOUR, amount="20.00")

    bank.pay(at=5 * HOUR, payment_id="p-6", amount="60.00")

    alert = Alert(
        payment_id="p-6",
        amount=Decimal("60.00"),
        country="DE",
        rule="HIGH_AMOUNT",
        payments=5,
        total=Decimal("100.00"),
        last_country="DE",
        last_ms=4 * HOUR,
        in_five_minutes=1,
        in_hour_before=1,
    )
    assert bank.told() == [("ann", alert)]
    (row,) = bank.driver.table("fraud_alerts").rows
    assert (row.key, row.value, row.timestamp_ms) == ("ann", alert, 5 * HOUR)


@pytest.mark.parametrize(
    ("amounts", "suspicious"),
    [
        (["20.00"] * 5 + ["60.00"], True),
        (["20.00"] * 5 + ["59.99"], False),
        (["20.00"] * 4 + ["900.00"], False),
        (["10.00", "10.00", "10.00", "10.00", "10.01", "30.00"], False),
        (["10.00", "10.00", "10.00", "10.00", "10.01", "30.01"], True),
    ],
    ids=["three times", "a cent less", "only four before", "exact, below", "exact, above"],
)
def test_a_high_amount_is_three_times_the_average_of_five_payments(amounts: list[str], suspicious: bool) -> None:
    bank = Bank()

    for hour, amount in enumerate(amounts):
        bank.pay(at=hour * HOUR, amount=amount)

    assert bank.rules() == ["HIGH_AMOUNT"] * suspicious


def test_a_high_amount_raises_the_average_from_then_on() -> None:
    bank = Bank()

    for hour, amount in enumerate(["20.00"] * 5 + ["200.00", "140.00"]):
        bank.pay(at=hour * HOUR, amount=amount)

    assert bank.rules() == ["HIGH_AMOUNT"]


def test_users_have_their_own_averages() -> None:
    bank = Bank()
    for hour in range(5):
        bank.pay("ann", at=hour * HOUR, amount="1.00")
        bank.pay("bob", at=hour * HOUR, amount="100.00")

    bank.pay("ann", at=5 * HOUR, amount="90.00")
    bank.pay("bob", at=5 * HOUR, amount="90.00")

    assert [user for user, _ in bank.told()] == ["ann"]


@pytest.mark.parametrize(
    ("country", "after", "suspicious"),
    [("FR", HOUR - 1, True), ("FR", HOUR, False), ("DE", 1, False), ("FR", 0, True)],
    ids=["within the hour", "an hour later", "the same country", "at the same time"],
)
def test_two_countries_within_an_hour_are_an_anomaly(country: str, after: int, suspicious: bool) -> None:
    bank = Bank()

    bank.pay(at=DAY, country="DE")
    bank.pay(at=DAY + after, country=country)

    assert bank.rules() == ["GEO_ANOMALY"] * suspicious


def test_a_late_payment_from_abroad_is_an_anomaly_but_the_user_stays_at_home() -> None:
    bank = Bank()
    bank.pay(at=HOUR, country="DE")

    bank.pay(at=HOUR - MINUTE, country="FR")
    assert bank.rules() == ["GEO_ANOMALY"]

    bank.pay(at=HOUR + MINUTE, country="DE")
    assert bank.rules() == []


def test_a_late_payment_from_hours_ago_is_no_anomaly() -> None:
    bank = Bank()
    bank.pay(at=DAY, country="DE")

    bank.pay(at=DAY - HOUR, country="FR")

    assert bank.rules() == []


def test_of_two_payments_at_the_same_time_the_later_one_says_where_the_user_is() -> None:
    bank = Bank()
    bank.pay(at=DAY, country="DE")
    bank.pay(at=DAY, country="FR")
    bank.told()

    bank.pay(at=DAY + MINUTE, country="FR")

    assert bank.rules() == []


def test_a_burst_is_told_when_the_clock_says_so_and_once() -> None:
    bank = Bank()

    for n in range(8):
        bank.pay(at=n * 20 * SECOND, payment_id=f"p-{n}")

    assert bank.rules() == []
    bank.driver.advance_wall_clock_time(LOOK)
    assert [(alert.rule, alert.payment_id, alert.in_five_minutes) for _, alert in bank.told()] == [
        ("HIGH_VELOCITY", "p-7", 8)
    ]
    assert bank.look() == []


def test_a_burst_that_goes_on_is_told_again_with_its_new_size() -> None:
    bank = Bank()
    for n in range(5):
        bank.pay(at=n * SECOND)
    bank.look()

    bank.pay(at=6 * SECOND)
    bank.driver.advance_wall_clock_time(LOOK)

    assert [alert.in_five_minutes for _, alert in bank.told()] == [6]


def test_bursts_an_hour_apart_are_two_alerts_though_the_clock_stood_still() -> None:
    bank = Bank()

    for start in (0, 2 * HOUR):
        for n in range(5):
            bank.pay(at=start + n * SECOND)

    assert bank.look() == ["HIGH_VELOCITY", "HIGH_VELOCITY"]
    assert [row.timestamp_ms for row in bank.driver.table("fraud_alerts").rows] == [4 * SECOND, 2 * HOUR + 4 * SECOND]


@pytest.mark.parametrize(
    ("minutes", "suspicious"),
    [([0, 1, 2, 3, 4], True), ([0, 1, 2, 3, 5], False), ([0, 1, 2, 3], False)],
    ids=["five in five minutes", "five in six minutes", "four"],
)
def test_five_payments_within_five_minutes_are_a_burst_for_who_pays_seldom(
    minutes: list[int], suspicious: bool
) -> None:
    bank = Bank()

    for minute in minutes:
        bank.pay(at=minute * MINUTE)

    assert bank.look() == ["HIGH_VELOCITY"] * suspicious


def test_who_pays_often_may_pay_five_times_as_often() -> None:
    bank = Bank()
    for n in range(24):  # two per five minutes
        bank.pay(at=HOUR + n * HOUR // 24)

    for n in range(9):
        bank.pay(at=2 * HOUR + 2 * MINUTE + n * SECOND)
    assert bank.look() == []

    bank.pay(at=2 * HOUR + 2 * MINUTE + 9 * SECOND)
    assert bank.look() == ["HIGH_VELOCITY"]


@pytest.mark.parametrize(("before", "suspicious"), [(64, False), (65, True)], ids=["in it", "a minute too early"])
def test_the_hour_before_a_burst_begins_64_minutes_before_its_last_minute(before: int, suspicious: bool) -> None:
    bank = Bank()
    for n in range(13):  # in the hour: a little more than one per five minutes
        bank.pay(at=DAY - before * MINUTE + n * SECOND)
    bank.look()

    for n in range(5):
        bank.pay(at=DAY + n * SECOND)

    assert bank.look() == ["HIGH_VELOCITY"] * suspicious


@pytest.mark.parametrize(("behind", "suspicious"), [(119, True), (120, False)])
def test_a_burst_that_arrives_two_hours_late_is_not_seen(behind: int, suspicious: bool) -> None:
    bank = Bank()
    bank.pay("bob", at=DAY)

    for n in range(5):
        bank.pay("ann", at=DAY - behind * MINUTE + n * SECOND)

    assert bank.look() == ["HIGH_VELOCITY"] * suspicious


def test_a_user_is_forgotten_after_a_day_of_silence_with_or_without_the_clock() -> None:
    for clean_up in (False, True):
        bank = Bank()
        for hour in range(5):
            bank.pay(at=hour * HOUR, amount="1.00")
        bank.pay("bob", at=4 * HOUR + DAY + 1)
        if clean_up:
            bank.driver.advance_wall_clock_time(timedelta(hours=1))

        bank.pay(at=4 * HOUR + DAY + 1, amount="900.00")

        assert bank.rules() == []
        assert bank.driver.store("fraud-profiles").get("ann") == Profile(1, Decimal("900.00"), "DE", 4 * HOUR + DAY + 1)


def test_a_user_is_known_for_a_whole_day() -> None:
    bank = Bank()
    for hour in range(5):
        bank.pay(at=hour * HOUR, amount="1.00")

    bank.pay(at=4 * HOUR + DAY, amount="900.00")

    assert bank.rules() == ["HIGH_AMOUNT"]


def test_the_space_of_forgotten_users_is_freed_by_the_hour() -> None:
    bank = Bank()
    bank.pay("ann", at=0)
    bank.pay("bob", at=DAY + 1)

    bank.driver.advance_wall_clock_time(timedelta(minutes=59))
    assert [user for user, _ in bank.driver.store("fraud-profiles").all()] == ["ann", "bob"]

    bank.driver.advance_wall_clock_time(timedelta(minutes=1))
    assert [user for user, _ in bank.driver.store("fraud-profiles").all()] == ["bob"]


def test_one_payment_can_break_every_rule() -> None:
    bank = Bank()
    for n in range(5):
        bank.pay(at=n * SECOND, amount="1.00")

    bank.pay(at=5 * SECOND, amount="900.00", country="JP")

    assert bank.rules() == ["HIGH_AMOUNT", "GEO_ANOMALY"]
    assert bank.look() == ["HIGH_VELOCITY"]


PAYMENT = b'{"payment_id":"p-1","amount":"10.00","country":"DE"}'


@pytest.mark.parametrize(("key", "content"), [(None, PAYMENT), (b"", PAYMENT), (b"ann", None), (b"ann", b"")])
def test_a_payment_of_nobody_or_without_content_is_dropped(key: bytes | None, content: bytes | None) -> None:
    bank = Bank()

    bank.payments.pipe_raw(key, content)

    assert bank.driver.dead_letters == []
    assert bank.driver.store("fraud-profiles").all() == []


def test_a_payment_of_nobody_that_does_not_decode_is_a_dead_letter() -> None:
    bank = Bank()

    bank.payments.pipe_raw(None, b"{}")

    assert [letter.operator for letter in bank.driver.dead_letters] == ["payments-source"]


@pytest.mark.parametrize("amount", ["0", "-1.00", "NaN", "Infinity", "1000000", "1e400", "12,50", None])
def test_what_nobody_can_pay_is_a_dead_letter_and_spoils_no_average(amount: object) -> None:
    bank = Bank()

    bank.pay(amount=amount)

    (letter,) = bank.driver.dead_letters
    assert (letter.operator, letter.error_class) == ("payments-source", "deltaworks.errors.SerializationError")
    assert bank.driver.store("fraud-profiles").all() == []


def test_a_key_that_does_not_decode_is_a_dead_letter_at_the_source() -> None:
    bank = Bank()

    bank.payments.pipe_raw(b"\xff", b"{}", timestamp_ms=9 * DAY)

    assert [letter.operator for letter in bank.driver.dead_letters] == ["payments-source"]


def test_a_key_that_does_not_decode_moves_no_time() -> None:
    bank = Bank()
    for hour in range(5):
        bank.pay(at=hour * HOUR, amount="1.00")

    bank.payments.pipe_raw(b"\xff", b"{}", timestamp_ms=9 * DAY)
    bank.pay(at=5 * HOUR, amount="900.00")

    assert bank.rules() == ["HIGH_AMOUNT"]
