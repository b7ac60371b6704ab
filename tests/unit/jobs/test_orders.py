from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from deltaworks import Windowed
from deltaworks.testing import TopologyTestDriver
from jobs.orders import EnrichedOrder, pipeline

MINUTE, HOUR = 60_000, 3_600_000


class Shop:
    """The pipeline with one user, and orders made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.orders = self.driver.create_input_topic("raw-orders")
        self.users = self.driver.create_input_topic("user-data")
        self.user("ann")

    def user(self, user: str, name: str = "Ann", at: int = 0) -> None:
        profile = {"user_id": user, "name": name, "country": "DE"}
        self.users.pipe_raw(user.encode(), json.dumps(profile).encode(), timestamp_ms=at)

    def order(self, user: str = "ann", at: int = 0, key: str | None = None, **fields: Any) -> None:
        order = {
            "order_id": "o-1",
            "user_id": user,
            "amount": "10.00",
            "type": "STANDARD",
            "item": "lamp",
            "location": "DE/Berlin",
            "event_time": "2026-03-01T12:00:00Z",
        } | fields
        self.orders.pipe_raw((key or user).encode(), json.dumps(order).encode(), timestamp_ms=at)

    def values(self, topic: str) -> list[EnrichedOrder]:
        values = self.driver.create_output_topic(topic, key=str, value=EnrichedOrder).read_values_to_list()
        return [value for value in values if value is not None]

    def operators_of_dead_letters(self) -> list[str]:
        return [letter.operator for letter in self.driver.dead_letters]


def test_an_order_meets_the_user_as_of_then() -> None:
    shop = Shop()

    shop.order(order_id="before")
    shop.user("ann", "Ann B.")
    shop.order(order_id="after")

    assert [(o.order_id, o.user_name) for o in shop.values("enriched-orders")] == [
        ("before", "Ann"),
        ("after", "Ann B."),
    ]
    assert [row.value.user_name for row in shop.driver.table("enriched_orders").rows] == ["Ann", "Ann B."]


def test_an_order_of_an_unknown_or_deleted_user_is_dropped() -> None:
    shop = Shop()

    shop.order(user="bob")
    shop.users.pipe_raw(b"ann", None)
    shop.order(user="ann")

    assert shop.values("enriched-orders") == []
    assert shop.driver.dead_letters == []


@pytest.mark.parametrize("amount", ["0", "0.00", "-1.00", 0])
def test_an_amount_that_is_not_positive_is_dropped(amount: object) -> None:
    shop = Shop()

    shop.order(amount=amount)

    assert shop.values("enriched-orders") == []
    assert shop.driver.dead_letters == []


NO_CELL = "deltaworks.errors.SerializationError"


@pytest.mark.parametrize(
    ("amount", "errors"),
    [
        ("1e30", [NO_CELL] * (1 + 5)),  # the row of the order, and one of each window of five minutes that it is in
        ("0.0000000000000000001", [NO_CELL] * (1 + 5)),
        ("Infinity", ["ValueError", NO_CELL]),  # the row of the order, and the sum, which takes only numbers
    ],
)
def test_an_amount_that_no_table_can_hold_is_missing_in_the_tables_only(amount: str, errors: list[str]) -> None:
    shop = Shop()

    shop.order(order_id="good", amount="1.00")
    shop.order(order_id="odd", amount=amount, at=6 * MINUTE)
    shop.order(order_id="later", amount="2.00", at=12 * MINUTE)

    assert [order.order_id for order in shop.values("enriched-orders")] == ["good", "odd", "later"]
    assert [row.value.order_id for row in shop.driver.table("enriched_orders").rows] == ["good", "later"]
    assert set(shop.driver.table("user_revenue").rows.values()) == {Decimal("1.00"), Decimal("2.00")}
    assert {letter.source.offset for letter in shop.driver.dead_letters} == {1}
    assert sorted(letter.error_class for letter in shop.driver.dead_letters) == errors


def test_an_amount_that_is_no_number_is_a_dead_letter_before_anything_else() -> None:
    shop = Shop()

    shop.order(amount="NaN")

    assert shop.driver.dead_letters[0].error_class == "decimal.InvalidOperation"
    assert shop.driver.produced["enriched-orders"] == []


@pytest.mark.parametrize("content", [None, b""])
def test_an_order_without_content_is_dropped_and_no_dead_letter(content: bytes | None) -> None:
    shop = Shop()

    shop.orders.pipe_raw(b"ann", content)

    assert shop.values("enriched-orders") == []
    assert shop.driver.dead_letters == []


def test_an_order_without_key_is_dropped() -> None:
    shop = Shop()

    shop.orders.pipe_raw(
        None,
        b'{"order_id":"o","user_id":"ann","amount":"1","type":"STANDARD","item":"lamp",'
        b'"location":"DE/Berlin","event_time":"2026-03-01T12:00:00Z"}',
    )

    assert shop.values("enriched-orders") == []
    assert shop.driver.dead_letters == []


def test_premium_orders_are_ten_percent_off_to_the_cent() -> None:
    shop = Shop()

    shop.order(type="PREMIUM", amount="10.05")
    shop.order(type="STANDARD", amount="10.05")

    assert [o.amount for o in shop.values("premium-orders")] == [Decimal("9.05")]
    assert [o.amount for o in shop.values("standard-orders")] == [Decimal("10.05")]
    assert [o.amount for o in shop.values("enriched-orders")] == [Decimal("10.05"), Decimal("10.05")]


def test_amounts_are_exact_decimals_from_text_and_from_numbers() -> None:
    shop = Shop()

    shop.order(amount="0.10")
    shop.order(amount=0.2)

    revenue = shop.driver.table("user_revenue").rows[Windowed("ann", 0, 5 * MINUTE)]
    assert revenue == Decimal("0.30")


def test_counts_are_per_user_and_hour_with_five_minutes_of_grace() -> None:
    shop = Shop()

    shop.order(at=HOUR - 1)
    shop.order(at=HOUR + 5 * MINUTE - 1)
    shop.order(at=HOUR - 2)  # in time: stream time is one millisecond before the end of grace
    shop.order(at=HOUR + 5 * MINUTE)
    shop.order(at=HOUR - 3)  # late

    counts = shop.driver.table("order_counts")
    assert counts.rows == {Windowed("ann", 0, HOUR): 2, Windowed("ann", HOUR, 2 * HOUR): 2}
    assert list(counts.final_rows) == [Windowed("ann", 0, HOUR)]
    assert shop.driver.store("order-count-store").fetch("ann", 0) == 2


def test_revenue_windows_start_every_minute() -> None:
    shop = Shop()

    shop.order(at=10 * MINUTE, amount="1.50")

    assert [
        (window.start_ms // MINUTE, revenue) for window, revenue in shop.driver.table("user_revenue").rows.items()
    ] == [(start, Decimal("1.50")) for start in (6, 7, 8, 9, 10)]


def test_sessions_merge_and_belong_to_the_user_in_the_order() -> None:
    shop = Shop()
    shop.user("bob")

    shop.order(user="ann", key="bob", at=0)
    shop.order(user="ann", at=40 * MINUTE)
    assert len(shop.driver.table("user_sessions").rows) == 2
    shop.order(user="ann", at=20 * MINUTE)

    assert shop.driver.table("user_sessions").rows == {Windowed("ann", 0, 40 * MINUTE): 3}
    assert shop.driver.table("order_counts").rows == {Windowed("bob", 0, HOUR): 1, Windowed("ann", 0, HOUR): 2}


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b'{"order_id":"o', b"[]", b'{"order_id":"o-1"}'],
    ids=["bytes", "cut short", "no object", "missing fields"],
)
def test_an_order_that_does_not_decode_becomes_a_dead_letter_as_it_was_read(content: bytes) -> None:
    shop = Shop()

    shop.orders.pipe_raw(b"ann", content, timestamp_ms=7)

    (letter,) = shop.driver.dead_letters
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"ann", content, 7)
    assert (letter.source.topic, letter.operator) == ("raw-orders", "orders-source")
    assert letter.error_class == "deltaworks.errors.SerializationError"


@pytest.mark.parametrize(
    "field", [{"amount": "12,50"}, {"amount": True}, {"type": "GOLD"}, {"event_time": "soon"}, {"item": 7}]
)
def test_a_field_of_the_wrong_type_makes_a_dead_letter(field: dict[str, Any]) -> None:
    shop = Shop()

    shop.order(**field)

    assert shop.operators_of_dead_letters() == ["orders-source"]


def test_a_key_that_does_not_decode_makes_a_dead_letter_at_the_source() -> None:
    shop = Shop()

    shop.orders.pipe_raw(b"\xff", None)
    shop.users.pipe_raw(b"\xff", None)

    assert shop.operators_of_dead_letters() == ["orders-source", "users-source"]


def test_a_user_that_does_not_decode_leaves_the_row_as_it_was() -> None:
    shop = Shop()

    shop.users.pipe_raw(b"ann", b"")
    shop.users.pipe_raw(b"ann", b'{"user_id": 1}')
    shop.order()

    assert shop.operators_of_dead_letters() == ["users-source", "users-source"]
    assert [order.user_name for order in shop.values("enriched-orders")] == ["Ann"]


def test_a_location_without_city_fails_the_join_and_changes_nothing() -> None:
    shop = Shop()

    shop.order(location="Berlin")

    (letter,) = shop.driver.dead_letters
    assert (letter.operator, letter.error_class) == ("join-user", "ValueError")
    assert letter.message == "location 'Berlin' is not COUNTRY/City"
    assert shop.driver.table("order_counts").rows == {}


def test_a_premium_gift_card_fails_only_in_its_branch() -> None:
    shop = Shop()

    shop.order(type="PREMIUM", item="gift card")

    assert shop.operators_of_dead_letters() == ["discount"]
    assert shop.values("premium-orders") == []
    assert len(shop.values("enriched-orders")) == 1
    assert shop.driver.table("order_counts").rows == {Windowed("ann", 0, HOUR): 1}


def test_users_are_a_snapshot_and_a_changelog() -> None:
    shop = Shop()

    shop.user("bob", "Bob")
    shop.users.pipe_raw(b"ann", None)

    users = shop.driver.table("users")
    assert {key: user.name for key, user in users.rows.items()} == {"bob": "Bob"}
    assert [(row.key, row.value is None) for row in users.changes] == [("ann", False), ("bob", False), ("ann", True)]
