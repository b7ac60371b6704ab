from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from deltaworks.kernel.records import RecordBatch
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.memory_tables import AppendTable
from deltaworks.testing.recorded import MicroBatch, run_recorded
from jobs.invoices import by_customer, pipeline
from jobs.model.invoices import Notification

ADDRESS = {
    "AddressLine": "Prager Straße 12",
    "City": "Dresden",
    "State": "Sachsen",
    "PinCode": "01067",
    "ContactNumber": "0351123",
}
LAMP = {"ItemCode": "325", "ItemDescription": "Wall lamp", "ItemPrice": 12.5, "ItemQty": 2, "TotalValue": 25}
KETTLE = {"ItemCode": "401", "ItemDescription": "Kettle", "ItemPrice": "25.05", "ItemQty": 1, "TotalValue": "25.05"}


def invoice(number: str = "1", *, items: tuple[dict[str, Any], ...] = (LAMP, KETTLE), **fields: Any) -> bytes:
    """An invoice as a till writes it; by default takeaway, for a PRIME customer."""
    total = str(sum(Decimal(str(item["TotalValue"])) for item in items))
    whole = {
        "InvoiceNumber": number,
        "CreatedTime": "2026-03-01T09:00:00.000Z",
        "StoreID": "STR1500",
        "PosID": "POS7",
        "CustomerType": "PRIME",
        "CustomerCardNo": "4711",
        "TotalAmount": total,
        "NumberOfItems": len(items),
        "PaymentMethod": "CARD",
        "TaxableAmount": total,
        "CGST": 0,
        "SGST": 0,
        "CESS": 0,
        "DeliveryType": "TAKEAWAY",
        "DeliveryAddress": None,
        "InvoiceLineItems": items,
    }
    return json.dumps(whole | fields).encode()


class Shop:
    """The pipeline, and what a till does."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self._pos = self.driver.create_input_topic("pos")

    def sell(self, *args: Any, **fields: Any) -> None:
        self.write(invoice(*args, **fields), key=str(fields.get("StoreID", "STR1500")).encode())

    def write(self, value: bytes | None, key: bytes | None = b"STR1500") -> None:
        self._pos.pipe_raw(key, value, timestamp_ms=1_000)

    def sent(self, topic: str) -> list[Any]:
        return self.driver.create_output_topic(topic).read_values_to_list()

    def as_json(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.driver.produced[topic]]

    def written(self) -> set[str]:
        """Topics."""
        return {topic for topic, records in self.driver.produced.items() if records}

    def points(self) -> list[tuple[str, Decimal, Decimal]]:
        """Card, earned, total."""
        return [
            (told.customer_card_no, told.earned_loyalty_points, told.total_loyalty_points)
            for told in self.sent("notification")
        ]


def test_a_home_delivery_goes_to_the_shipper_whole() -> None:
    shop = Shop()

    shop.sell("1")
    shop.sell("2", DeliveryType="HOME-DELIVERY", DeliveryAddress=ADDRESS)

    (shipment,) = shop.as_json("shipment")
    assert shipment["InvoiceNumber"] == "2"
    assert shipment["DeliveryAddress"] == ADDRESS
    assert [item["ItemCode"] for item in shipment["InvoiceLineItems"]] == ["325", "401"]


def test_a_prime_customer_learns_what_was_earned_and_what_there_is_now() -> None:
    shop = Shop()

    shop.sell("1")
    shop.sell("2", items=(LAMP,))
    shop.sell("3", CustomerType="NONPRIME")

    assert shop.points() == [
        ("4711", Decimal("1.0010"), Decimal("1.0010")),
        ("4711", Decimal("0.5000"), Decimal("1.5010")),
    ]
    assert shop.as_json("notification")[0] == {
        "InvoiceNumber": "1",
        "CustomerCardNo": "4711",
        "TotalAmount": "50.05",
        "EarnedLoyaltyPoints": "1.0010",
        "TotalLoyaltyPoints": "1.0010",
    }


def test_points_are_kept_per_customer_whatever_the_store() -> None:
    shop = Shop()

    shop.sell("1", items=(LAMP,))
    shop.sell("2", items=(LAMP,), CustomerCardNo="客-0042")
    shop.sell("3", items=(LAMP,), StoreID="STR1501")

    half, one = Decimal("0.5"), Decimal(1)
    assert shop.points() == [("4711", half, half), ("客-0042", half, half), ("4711", half, one)]


def test_things_brought_back_take_points_away() -> None:
    shop = Shop()

    shop.sell("1", items=(LAMP,))
    shop.sell("2", items=(LAMP | {"ItemQty": -1, "TotalValue": -12.5},))

    assert shop.points()[1] == ("4711", Decimal("-0.25"), Decimal("0.25"))


def test_an_invoice_that_comes_again_is_credited_once() -> None:
    shop = Shop()

    shop.sell("1", items=(LAMP,))
    shop.sell("1", items=(LAMP, KETTLE))
    shop.sell("2", items=(LAMP,))

    assert [total for _, _, total in shop.points()] == [Decimal("0.5"), Decimal(1)]


def test_an_account_knows_its_last_ten_invoices() -> None:
    shop = Shop()
    numbers = [str(n) for n in range(11)]

    for number in [*numbers, numbers[1], numbers[0]]:
        shop.sell(number, items=(LAMP,))

    assert len(shop.points()) == len(numbers) + 1
    assert shop.driver.store("invoices-accounts").get("4711").invoices == (*numbers[2:], numbers[0])


def test_line_items_are_flat_and_name_no_customer() -> None:
    shop = Shop()

    shop.sell(DeliveryType="HOME-DELIVERY", DeliveryAddress=ADDRESS)

    first, second = shop.as_json("hadoop-sink")
    assert first == {
        "InvoiceNumber": "1",
        "CreatedTime": "2026-03-01T09:00:00Z",
        "StoreID": "STR1500",
        "PosID": "POS7",
        "CustomerType": "PRIME",
        "PaymentMethod": "CARD",
        "DeliveryType": "HOME-DELIVERY",
        "City": "Dresden",
        "State": "Sachsen",
        "PinCode": "01067",
        "ItemCode": "325",
        "ItemDescription": "Wall lamp",
        "ItemPrice": "12.5",
        "ItemQty": 2,
        "TotalValue": "25",
    }
    assert second["ItemCode"] == "401"
    secrets = {"4711", ADDRESS["AddressLine"], ADDRESS["ContactNumber"]}
    assert not any(secret in str(item) for item in (first, second) for secret in secrets)


def test_a_takeaway_has_no_place() -> None:
    shop = Shop()

    shop.sell(items=(LAMP,))

    (item,) = shop.sent("hadoop-sink")
    assert (item.city, item.state, item.pin_code) == (None, None, None)


def test_tables_hold_line_items_and_credits() -> None:
    shop = Shop()

    shop.sell("1")
    shop.sell("1")

    items, points = (shop.driver.table(f"invoices_{name}") for name in ("line_items", "loyalty_points"))
    assert isinstance(items, AppendTable)
    assert isinstance(points, AppendTable)
    assert [(row.key, row.value.item_code) for row in items.rows] == [("STR1500", "325"), ("STR1500", "401")] * 2
    assert [row.value.total_loyalty_points for row in points.rows] == [Decimal("1.0010")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"TotalAmount": "50.06"}, "do not add up to 50.06"),
        ({"TotalAmount": "NaN"}, "do not add up to NaN"),
        ({"CustomerCardNo": ""}, "PRIME customer has no card"),
        ({"DeliveryType": "HOME-DELIVERY"}, "home delivery has no address"),
    ],
)
def test_what_no_till_should_write_becomes_a_dead_letter_and_nothing_else(fields: dict[str, Any], reason: str) -> None:
    shop = Shop()

    shop.sell(**fields)

    (letter,) = shop.driver.dead_letters
    assert (letter.operator, letter.error_class) == ("check-invoice", "ValueError")
    assert reason in letter.message
    assert shop.written() == {"invoices-dead-letters"}


@pytest.mark.parametrize(
    "implausible",
    [
        {"ItemPrice": 1e30, "TotalValue": 2e30},
        {"ItemPrice": "0.005", "TotalValue": "0.01"},
        {"ItemPrice": "NaN"},
        {"ItemQty": 0, "TotalValue": 0},
        {"ItemPrice": 1, "ItemQty": 10**15, "TotalValue": 10**15},
        {"TotalValue": 25.01},
    ],
)
def test_a_line_item_with_numbers_that_no_till_knows_becomes_a_dead_letter(implausible: dict[str, Any]) -> None:
    shop = Shop()

    shop.sell(items=(LAMP | implausible,))

    assert [letter.operator for letter in shop.driver.dead_letters] == ["check-invoice"]
    assert shop.written() == {"invoices-dead-letters"}


@pytest.mark.parametrize("key", [None, b"POS7"])
def test_an_invoice_whose_key_is_not_its_store_becomes_a_dead_letter(key: bytes | None) -> None:
    shop = Shop()

    shop.write(invoice(), key=key)

    assert [letter.operator for letter in shop.driver.dead_letters] == ["check-invoice"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\xff", invoice()),
        (b"STR1500", b""),
        (b"STR1500", b"\xff"),
        (b"STR1500", invoice()[:100]),
        (b"STR1500", invoice(CustomerType="GOLD")),
        (b"STR1500", invoice(DeliveryAddress=ADDRESS | {"PinCode": 1067})),
        (b"STR1500", invoice(InvoiceLineItems=[LAMP | {"ItemQty": 1.5}])),
    ],
)
def test_what_is_no_invoice_becomes_a_dead_letter_with_its_bytes(key: bytes, value: bytes) -> None:
    shop = Shop()

    shop.write(value, key=key)

    (letter,) = shop.driver.dead_letters
    assert letter.operator == "pos-source"
    assert (letter.key, letter.value) == (key, value)


def test_a_null_value_is_no_invoice_and_no_error() -> None:
    shop = Shop()

    shop.write(None)

    assert shop.driver.dead_letters == []
    assert shop.written() == set()


def test_an_invoice_without_line_items_earns_nothing() -> None:
    shop = Shop()

    shop.sell(items=())

    assert shop.points() == [("4711", Decimal(0), Decimal(0))]
    assert shop.as_json("hadoop-sink") == []


def test_invoices_of_one_customer_from_every_partition_meet_in_one_task_and_one_partition() -> None:
    batch = tuple(
        RecordBatch("pos", n, [0], [n], [store], [invoice(str(n), items=(LAMP,), StoreID=store.decode())])
        for n, store in enumerate((b"STR1500", b"STR1501", b"STR1502", b"STR1503"))
    )

    recording = run_recorded(pipeline.plan(), {"pos": 4}, [MicroBatch(0, batch)], sink_partitions={"notification": 4})

    placed = {at: len(records) for output in recording.tasks.values() for at, records in output.placed.items()}
    ((_, partition),) = placed
    assert placed == {("notification", partition): 4}
    assert [task for task, output in recording.tasks.items() if output.placed] == [(1, partition)]
    assert [json.loads(r.value or b"")["TotalLoyaltyPoints"] for r in recording.topic("notification")] == [
        "0.50",
        "1.00",
        "1.50",
        "2.00",
    ]


def test_the_partitioner_spreads_customers_evenly() -> None:
    told = [Notification("1", str(card), *[Decimal(0)] * 3) for card in range(20_000_000, 20_001_000)]

    partitions = [by_customer("notification", "STR1500", each, 4) for each in told]

    assert all(200 < partitions.count(partition) < 300 for partition in range(4))
