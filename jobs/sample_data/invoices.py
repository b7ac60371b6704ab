"""Sample data for `jobs/invoices.py`: seeded invoices of the tills of a furniture shop, as untidy as a real topic.

Time advances about ten seconds per invoice. Every eighth one is the next `Kind` of trouble, so a thousand invoices
contain several of each. The record timestamp is the time of the sale; records are yielded in the order in which
they reach Kafka, which differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, cycle
from types import EllipsisType
from typing import Any

from deltaworks.testing.sample_data import SampleRecord, as_iso, as_json
from jobs.sample_data.kafka import MINUTE, SECOND, Outbox

MAIN_TOPIC = "pos"
START_MS = int(datetime(2026, 3, 1, 9, 0, tzinfo=UTC).timestamp() * 1000)

Thing = tuple[str, str, int]
"""Code, description, price in cents."""
THINGS: tuple[Thing, ...] = (
    ("325", "Wall lamp", 1_149),
    ("338", "Bücherregal", 89_900),
    ("401", "Kettle", 2_505),
    ("412", "行灯", 7_850),
    ("455", 'Frame 13"', 333),
    ("460", "", 1),
)
PLACES = (("Dresden", "Sachsen", "01067"), ("Gdańsk", "Pomorskie", "80-001"), ("Chennai", "Tamil Nadu", "600001"))
STORES = tuple(f"STR{number}" for number in range(1_500, 1_512))
CUSTOMERS = 160
FORGOTTEN = 11
"""After this many further invoices, an account has forgotten an invoice."""


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    REGULAR = "invoices, regular"
    AMOUNTS_AS_TEXT = "invoices, amounts as text instead of JSON numbers"
    UNKNOWN_FIELD = "invoices, with a field nobody knows"
    NO_CARD = "invoices, NONPRIME without a card"
    FOREIGN_CARD = "invoices, a card whose number is no number"
    NO_ITEMS = "invoices, without line items"
    MANY_ITEMS = "invoices, with every thing there is"
    RETURNED = "invoices, things brought back"
    TAKEAWAY_ADDRESS = "invoices, takeaway with an address"
    OUT_OF_ORDER = "invoices, delivered after younger ones"
    DUPLICATE = "invoices, delivered twice"
    DUPLICATE_CHANGED = "invoices, delivered again with other contents"
    NULL_KEY = "invoices, key null"
    OTHER_KEY = "invoices, keyed by another store than they name"
    NULL_VALUE = "invoices, value null"
    EMPTY_VALUE = "invoices, value empty"
    MALFORMED_KEY = "invoices, key not UTF-8"
    MALFORMED_BYTES = "invoices, value arbitrary bytes"
    MALFORMED_JSON = "invoices, JSON cut short"
    WRONG_TYPE = "invoices, a field of the wrong type"
    WRONG_ITEM = "invoices, a field of a line item of the wrong type"
    WRONG_ADDRESS = "invoices, an address that is no address"
    MISSING_FIELD = "invoices, a field missing"
    IMPLAUSIBLE_ITEM = "invoices, a line item with numbers that no till knows"
    WRONG_TOTAL = "invoices, total other than that of the line items"
    PRIME_WITHOUT_CARD = "invoices, PRIME without a card"
    NO_ADDRESS = "invoices, home delivery without an address"
    DUPLICATE_LATE = "invoices, delivered again when their account has forgotten them"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `pos` up to that number."""
    for number, record in enumerate(_Shop(random.Random(seed)).deliveries()):
        if number == count:
            return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("TotalAmount", "12,50"),
    ("TotalAmount", True),
    ("CESS", None),
    ("NumberOfItems", "two"),
    ("CustomerType", "GOLD"),
    ("DeliveryType", "DRONE"),
    ("CreatedTime", "yesterday"),
    ("CustomerCardNo", 4711),
    ("InvoiceLineItems", {}),
)
_WRONG_IN_ITEM: tuple[dict[str, Any], ...] = (
    {"ItemQty": "1"},
    {"ItemQty": 1.5},
    {"ItemCode": None},
    {"TotalValue": []},
)
_IMPLAUSIBLE: tuple[dict[str, Any], ...] = (
    {"ItemPrice": 1e30, "TotalValue": 1e30},
    {"ItemPrice": 0.005, "TotalValue": 0.005},
    {"ItemPrice": 0, "TotalValue": 0},
    {"ItemQty": 0, "TotalValue": 0},
    {"ItemPrice": 1, "ItemQty": 10**15, "TotalValue": 10**15},
    {"ItemQty": 2},
)
_REQUIRED = ("InvoiceNumber", "StoreID", "CustomerType", "TotalAmount", "TaxableAmount", "InvoiceLineItems")
_TROUBLES = tuple(kind for kind in Kind if kind is not Kind.REGULAR)


class _Shop:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._number = ""
        """Number of the last invoice."""
        self._best: list[SampleRecord] = []
        """Invoices of the best customer."""
        self._shares = list(accumulate(1 / (rank + 1) for rank in range(CUSTOMERS)))
        """A few customers buy most of the time, mostly in one store: some tasks get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for trouble in cycle(_TROUBLES):
            for _ in range(7):
                self._invoice()
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _make(self, trouble: Kind) -> None:
        match trouble:
            case Kind.AMOUNTS_AS_TEXT:
                self._invoice(trouble, shown=lambda cents: f"{cents // 100}.{cents % 100:02}")
            case Kind.UNKNOWN_FIELD:
                self._invoice(trouble, CashierID="OAS134")
            case Kind.NO_CARD:
                self._invoice(trouble, CustomerType="NONPRIME", without="CustomerCardNo")
            case Kind.FOREIGN_CARD:
                self._invoice(trouble, CustomerType="PRIME", CustomerCardNo=self._random.choice(["客-0042", "карта 7"]))
            case Kind.NO_ITEMS:
                self._invoice(trouble, things=0)
            case Kind.MANY_ITEMS:
                self._invoice(trouble, things=len(THINGS))
            case Kind.RETURNED:
                self._invoice(trouble, sign=-1)
            case Kind.TAKEAWAY_ADDRESS:
                self._invoice(trouble, DeliveryType="TAKEAWAY", DeliveryAddress=self._address())
            case Kind.OUT_OF_ORDER:
                self._invoice(trouble, delay_ms=self._random.randrange(MINUTE, 20 * MINUTE))
            case Kind.DUPLICATE:
                self._again(self._invoice(customer=self._prime()), trouble)
            case Kind.DUPLICATE_CHANGED:
                customer = self._prime()
                self._invoice(customer=customer, StoreID=STORES[0])
                self._invoice(trouble, customer=customer, StoreID=STORES[0], InvoiceNumber=self._number, things=6)
            case Kind.DUPLICATE_LATE:
                self._again(self._best[-FORGOTTEN - 1], trouble)
            case Kind.NULL_KEY:
                self._invoice(trouble, key=None)
            case Kind.OTHER_KEY:
                self._invoice(trouble, key=b"POS7")
            case Kind.NULL_VALUE | Kind.EMPTY_VALUE:
                self._invoice(trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.MALFORMED_KEY:
                self._invoice(trouble, key=b"\xff\xfeSTR" + self._random.randbytes(1))
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._invoice(trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._invoice(trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._invoice(trouble, **{name: wrong})
            case Kind.WRONG_ITEM:
                item = _item(THINGS[0], 1) | self._random.choice(_WRONG_IN_ITEM)
                self._invoice(trouble, InvoiceLineItems=[item])
            case Kind.WRONG_ADDRESS:
                wrong = self._random.choice(["Prager Straße 12", {}, self._address() | {"PinCode": 1067}])
                self._invoice(trouble, DeliveryAddress=wrong)
            case Kind.MISSING_FIELD:
                self._invoice(trouble, without=self._random.choice(_REQUIRED))
            case Kind.IMPLAUSIBLE_ITEM:
                item = _item(THINGS[0], 1) | self._random.choice(_IMPLAUSIBLE)
                self._invoice(trouble, InvoiceLineItems=[item], TotalAmount=item["TotalValue"])
            case Kind.WRONG_TOTAL:
                self._invoice(trouble, TotalAmount=self._random.choice([0, 99_999.99]))
            case Kind.PRIME_WITHOUT_CARD:
                self._invoice(trouble, CustomerType="PRIME", CustomerCardNo="")
            case Kind.NO_ADDRESS:
                self._invoice(trouble, DeliveryType="HOME-DELIVERY", DeliveryAddress=None)
            case Kind.REGULAR:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _invoice(
        self,
        kind: Kind = Kind.REGULAR,
        *,
        customer: int | None = None,
        things: int | None = None,
        sign: int = 1,
        shown: Callable[[int], Any] = lambda cents: cents / 100,
        delay_ms: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        without: str | None = None,
        **fields: Any,
    ) -> SampleRecord:
        """An invoice of `customer` (anyone), sent after `delay_ms` (within three seconds).

        Args:
            shown: converts an amount in cents to JSON.
            fields: fields that replace the generated ones.
        """
        self._now += 1 + int(self._random.expovariate(1 / (10 * SECOND)))
        customer = self._anyone() if customer is None else customer
        self._number = f"{51_000_000 + self._outbox.sent}"
        chosen = self._random.sample(THINGS, self._random.randint(1, 3) if things is None else things)
        items = [(thing, sign * self._random.randint(1, 4)) for thing in chosen]
        cents = sum(thing[2] * pieces for thing, pieces in items)
        home = self._random.random() < 0.4
        invoice = {
            "InvoiceNumber": self._number,
            "CreatedTime": as_iso(self._now),
            "StoreID": self._store(customer),
            "PosID": f"POS{self._random.randrange(1, 900)}",
            "CustomerType": "PRIME" if _is_prime(customer) else "NONPRIME",
            "CustomerCardNo": f"{20_000_000 + customer * 7_919}",
            "TotalAmount": shown(cents),
            "NumberOfItems": len(items),
            "PaymentMethod": self._random.choice(["CASH", "CARD"]),
            "TaxableAmount": shown(cents),
            "CGST": shown(cents * 25 // 1_000),
            "SGST": shown(cents * 25 // 1_000),
            "CESS": shown(cents // 800),
            "DeliveryType": "HOME-DELIVERY" if home else "TAKEAWAY",
            "DeliveryAddress": self._address() if home else None,
            "InvoiceLineItems": [_item(thing, pieces, shown) for thing, pieces in items],
        } | fields
        key = str(invoice["StoreID"]).encode() if isinstance(key, EllipsisType) else key
        if without is not None:
            del invoice[without]
        delay_ms = self._random.randrange(3 * SECOND) if delay_ms is None else delay_ms
        record = self._deliver(key, raw(as_json(invoice)), self._now, kind, delay_ms)
        if customer == 0 and kind is Kind.REGULAR:
            self._best.append(record)
        return record

    def _again(self, record: SampleRecord, kind: Kind) -> None:
        self._deliver(record.key, record.value, record.timestamp_ms, kind, 4 * SECOND)

    def _deliver(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int
    ) -> SampleRecord:
        return self._outbox.send(MAIN_TOPIC, key, value, timestamp_ms, kind, arrives_ms=self._now + delay_ms)

    def _anyone(self) -> int:
        return self._random.choices(range(CUSTOMERS), cum_weights=self._shares)[0]

    def _prime(self) -> int:
        while not _is_prime(customer := self._anyone()):
            pass
        return customer

    def _store(self, customer: int) -> str:
        """A store, usually the nearest one."""
        return STORES[customer % len(STORES)] if self._random.random() < 0.8 else self._random.choice(STORES)

    def _address(self) -> dict[str, Any]:
        city, state, pin = self._random.choice(PLACES)
        street = f"{self._random.choice(['Prager Straße', 'ul. Długa', 'Anna Salai'])} {self._random.randrange(1, 99)}"
        contact = f"{self._random.randrange(10**9):010}"
        return {"AddressLine": street, "City": city, "State": state, "PinCode": pin, "ContactNumber": contact}


def _is_prime(customer: int) -> bool:
    return customer % 3 == 0


def _item(thing: Thing, pieces: int, shown: Callable[[int], Any] = lambda cents: cents / 100) -> dict[str, Any]:
    code, description, cents = thing
    return {
        "ItemCode": code,
        "ItemDescription": description,
        "ItemPrice": shown(cents),
        "ItemQty": pieces,
        "TotalValue": shown(cents * pieces),
    }
