"""What the pipeline has made of the databases: its tables, its search index, its dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import httpx
from deltalake import DeltaTable

from deltaworks.settings import Settings
from tests.system.cdc.databases import Expected

INDEX, ORDERS, TOTALS, DEAD = "shop-orders", "shop_orders", "shop_totals", "shop_dead_letters"
_FIELDS = ("customer_id", "status", "ordered_at", "note", "lines", "amount", "customer_name", "city", "vip")
_PAGE = 1_000


@dataclass(frozen=True)
class Comparison:
    """One result beside the databases."""

    name: str
    expected: int
    found: int
    different: tuple[str, ...]
    """What is missing, too much or wrong; the first ones."""

    @property
    def equal(self) -> bool:
        return not self.different


def make_index(url: str) -> None:
    """An empty index; none that is there stays."""
    with httpx.Client(base_url=url, timeout=30) as client:
        client.delete(f"/{INDEX}")
        text = {"type": "keyword", "ignore_above": 8_000}
        fields = {"ordered_at": {"type": "date"}, "amount": {"type": "double"}, "note": text, "city": text}
        client.put(f"/{INDEX}", json={"mappings": {"properties": fields}}).raise_for_status()


def compare(settings: Settings, url: str, expected: Expected) -> list[Comparison]:
    """Tables and index beside the databases; a dead letter is too much."""
    return [
        _compared(f"table {ORDERS}", expected.orders, dict(_table_of_orders(settings))),
        _compared(f"table {TOTALS}", expected.totals, dict(_table_of_totals(settings))),
        _compared(f"index {INDEX}", expected.orders, dict(_documents(url))),
        _compared(f"table {DEAD}", {}, dict(enumerate(_rows(settings, DEAD)))),
    ]


def _compared(name: str, expected: Mapping[int, Any], found: Mapping[int, Any]) -> Comparison:
    different = [
        f"{key}: {found.get(key)} instead of {expected.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if found.get(key) != expected.get(key)
    ]
    return Comparison(name, len(expected), len(found), tuple(different))


def _table_of_orders(settings: Settings) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for row in _rows(settings, ORDERS):
        yield row["order_id"], tuple(row[name] for name in _FIELDS)


def _table_of_totals(settings: Settings) -> Iterator[tuple[int, tuple[int, Decimal]]]:
    for row in _rows(settings, TOTALS):
        yield row["customer_id"], (row["orders"], row["amount"])


def _rows(settings: Settings, name: str) -> list[dict[str, Any]]:
    path = str(settings.tables / name)
    return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []


def _documents(url: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """All documents, page by page."""
    with httpx.Client(base_url=url, timeout=30) as client:
        client.post(f"/{INDEX}/_refresh").raise_for_status()
        answer = client.post(f"/{INDEX}/_search?scroll=1m", json={"size": _PAGE}).raise_for_status().json()
        while hits := answer["hits"]["hits"]:
            for hit in hits:
                yield int(hit["_id"]), tuple(_read(name, hit["_source"].get(name)) for name in _FIELDS)
            more = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
            answer = client.post("/_search/scroll", json=more).raise_for_status().json()


def _read(name: str, value: Any) -> Any:
    if name == "amount":
        return Decimal(value)
    return datetime.fromisoformat(value) if name == "ordered_at" else value
