"""The values in the topics of `jobs/invoices.py`: JSON with the field names that the tills have always written."""

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
    """The fields that an invoice and each of its masked line items share."""

    invoice_number: str
    """Number of the invoice."""
    created_time: datetime
    """When the till wrote it."""
    store_id: str
    """The store."""
    pos_id: str
    """The till."""
    customer_type: Literal["PRIME", "NONPRIME"]
    """PRIME customers earn loyalty points."""
    payment_method: Literal["CASH", "CARD"]
    """How it was paid."""
    delivery_type: Literal["HOME-DELIVERY", "TAKEAWAY"]
    """How the goods come to the customer."""


class Address(msgspec.Struct, frozen=True, rename=json_name):
    """The address of a home delivery."""

    address_line: str
    city: str
    state: str
    pin_code: str
    """Text: some begin with 0."""
    contact_number: str


class LineItem(msgspec.Struct, frozen=True, rename=json_name):
    """A number of pieces of one item; a negative number is a return."""

    item_code: str
    item_description: str
    item_price: Decimal
    item_qty: int
    total_value: Decimal

    @property
    def is_plausible(self) -> bool:
        """Whether price, quantity and value are in range, in whole cents, and fit together."""
        price, pieces = self.item_price, self.item_qty
        in_bounds = 0 < price < 1_000_000 and 0 < abs(pieces) < 1_000_000
        return in_bounds and price == round(price, 2) and self.total_value == price * pieces


class Invoice(Sale, frozen=True):
    """A value in `pos` and `shipment`, keyed by store; unknown fields are ignored."""

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
    """A value in `notification`: the points that a customer has earned, and the new total."""

    invoice_number: str
    """Number of the invoice."""
    customer_card_no: str
    """Number of the customer's card."""
    total_amount: Decimal
    """Amount of the invoice."""
    earned_loyalty_points: Decimal
    """Points that it has earned."""
    total_loyalty_points: Decimal
    """Points that the customer has since then."""


class SoldItem(Sale, frozen=True):
    """A value in `hadoop-sink`: a line item with its invoice, without the customer and the street."""

    city: str | None
    """City of a home delivery."""
    state: str | None
    """State of a home delivery."""
    pin_code: str | None
    """Postal code of a home delivery."""
    item_code: str
    """The item."""
    item_description: str
    """Name of the item."""
    item_price: Decimal
    """Price of one piece."""
    item_qty: int
    """Number of pieces; a negative number is a return."""
    total_value: Decimal
    """Price of all pieces."""
