"""What the topics of `jobs/invoices.py` hold: JSON with the field names that the tills have always written."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec


def json_name(field: str) -> str:
    """`created_time` is `CreatedTime` in the topics, `store_id` is `StoreID`."""
    words = field.split("_")
    return "".join(word.upper() if word in ("id", "cgst", "sgst", "cess") else word.capitalize() for word in words)


class Sale(msgspec.Struct, frozen=True, rename=json_name):
    """What an invoice and each of its masked line items say."""

    invoice_number: str
    created_time: datetime
    store_id: str
    pos_id: str
    customer_type: Literal["PRIME", "NONPRIME"]
    payment_method: Literal["CASH", "CARD"]
    delivery_type: Literal["HOME-DELIVERY", "TAKEAWAY"]


class Address(msgspec.Struct, frozen=True, rename=json_name):
    """Where a home delivery goes."""

    address_line: str
    city: str
    state: str
    pin_code: str
    """Text: some begin with 0."""
    contact_number: str


class LineItem(msgspec.Struct, frozen=True, rename=json_name):
    """So many pieces of one thing; a negative number is brought back."""

    item_code: str
    item_description: str
    item_price: Decimal
    item_qty: int
    total_value: Decimal

    @property
    def is_plausible(self) -> bool:
        """A price in whole cents, as many pieces as one can carry, and their product."""
        price, pieces = self.item_price, self.item_qty
        in_bounds = 0 < price < 1_000_000 and 0 < abs(pieces) < 1_000_000
        return in_bounds and price == round(price, 2) and self.total_value == price * pieces


class Invoice(Sale, frozen=True):
    """Of `pos` and `shipment`, keyed by store; unknown fields are ignored."""

    total_amount: Decimal
    number_of_items: int
    taxable_amount: Decimal
    cgst: Decimal
    sgst: Decimal
    cess: Decimal
    invoice_line_items: tuple[LineItem, ...]
    customer_card_no: str = ""
    delivery_address: Address | None = None


class Notification(msgspec.Struct, frozen=True, rename=json_name):
    """Of `notification`: what a customer has earned, and has now."""

    invoice_number: str
    customer_card_no: str
    total_amount: Decimal
    earned_loyalty_points: Decimal
    total_loyalty_points: Decimal


class SoldItem(Sale, frozen=True):
    """Of `hadoop-sink`: a line item with its invoice, without who bought it and the street."""

    city: str | None
    state: str | None
    pin_code: str | None
    item_code: str
    item_description: str
    item_price: Decimal
    item_qty: int
    total_value: Decimal
