"""Invoices of tills: home deliveries to the shipper, points to loyal customers, masked line items to the analysts.
Types: `model/invoices.py`. Sample data: `sample_data/invoices.py`. Expected results: `recomputed/invoices.sql`.

```
pos -> check -> home deliveries -> shipment
         |-> PRIME customers -> to the task of the customer -> add up -> notification, invoices_loyalty_points
         '-> mask, a record per line item -> hadoop-sink, invoices_line_items
```

A till that gets no answer sends its invoice again. Points are credited once: an account knows its last ten invoices.
Shipments and line items are repeated with the invoice; readers recognise it by its number.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from zlib import crc32

import msgspec

from deltaworks import (
    Column,
    DeadLetters,
    FixedKeyProcessor,
    FixedKeyRecord,
    Pipeline,
    Stores,
    StreamsBuilder,
)
from jobs.model.invoices import Invoice, Notification, Sale, SoldItem

POINTS_PER_AMOUNT = Decimal("0.02")
REMEMBERED_INVOICES = 10
STORE_ID = Column("store_id", "The store.")


def checked(store: str | None, invoice: Invoice) -> Invoice:
    """Raises on an invoice that no till should write, which becomes a dead letter."""
    if store != invoice.store_id:
        raise ValueError(f"an invoice of store {invoice.store_id} has the key {store}")
    if not all(item.is_plausible for item in invoice.invoice_line_items):
        raise ValueError("a line item has an implausible price, quantity or value")
    if invoice.total_amount != sum(item.total_value for item in invoice.invoice_line_items):
        raise ValueError(f"the line items do not add up to {invoice.total_amount}")
    if invoice.customer_type == "PRIME" and not invoice.customer_card_no:
        raise ValueError("a PRIME customer has no card")
    if invoice.delivery_type == "HOME-DELIVERY" and invoice.delivery_address is None:
        raise ValueError("a home delivery has no address")
    return invoice


def by_customer(_topic: str, _store: str, value: Invoice | Notification, partitions: int) -> int:
    """Chooses one partition for all records of a customer, although their key is the store."""
    return crc32(value.customer_card_no.encode()) % partitions


class Account(msgspec.Struct, frozen=True):
    """The state of a customer."""

    points: Decimal = Decimal(0)
    invoices: tuple[str, ...] = ()


ACCOUNTS = Stores.key_value("invoices-accounts", key=str, value=Account)


class AddUp(FixedKeyProcessor[str, Invoice, Notification]):
    """Credits each invoice once to the account of its customer and notifies the customer."""

    stores = (ACCOUNTS,)

    def process(self, record: FixedKeyRecord[str, Invoice]) -> None:
        accounts = self.context.state_store(ACCOUNTS)
        invoice = record.value
        number, card = invoice.invoice_number, invoice.customer_card_no
        account = accounts.get(card) or Account()
        if number in account.invoices:
            return
        earned = invoice.total_amount * POINTS_PER_AMOUNT
        account = Account(account.points + earned, (*account.invoices, number)[-REMEMBERED_INVOICES:])
        accounts.put(card, account)
        notification = Notification(number, card, invoice.total_amount, earned, account.points)
        self.context.forward(record.with_value(notification))


def masked_items(invoice: Invoice) -> list[SoldItem]:
    """Makes one record per line item, without the card and without the part of the address that names the house."""
    sale = {field: getattr(invoice, field) for field in Sale.__struct_fields__}
    place: dict[str, Any] = {
        field: getattr(invoice.delivery_address, field, None) for field in ("city", "state", "pin_code")
    }
    return [SoldItem(**sale, **place, **msgspec.structs.asdict(item)) for item in invoice.invoice_line_items]


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    invoices = builder.stream("pos", key=str, value=Invoice, on_null="skip", name="pos-source")
    invoices = invoices.map_values_with_key(checked, name="check-invoice")
    invoices.filter(lambda _, invoice: invoice.delivery_type == "HOME-DELIVERY").to("shipment")

    notifications = (
        invoices.filter(lambda _, invoice: invoice.customer_type == "PRIME")
        .repartition(partitioner=by_customer, name="invoices-by-customer")
        .process_values(AddUp)
    )
    notifications.to("notification", partitioner=by_customer)
    notifications.to_delta(
        "invoices_loyalty_points", key=STORE_ID, doc="Points that an invoice has earned for its customer"
    )

    items = invoices.flat_map_values(masked_items, name="mask-and-flatten")
    items.to("hadoop-sink")
    items.to_delta("invoices_line_items", key="store_id", doc="Sold items, without what would identify the customer")


pipeline = Pipeline(
    name="invoices",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="invoices-dead-letters", table="invoices_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
