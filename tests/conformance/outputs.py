"""What a topology gave, as a case shows it (SPEC section 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deltaworks import Plan
from deltaworks.testing import TestKeyValueStore, TestSessionStore, TestVersionedStore, TestWindowStore
from deltaworks.testing.topics import RawRecord
from tests.conformance.values import Keys, Typed, shown

Row = dict[str, Any]
_APPLICATION_ID = "oracle"


def output_row(plan: Plan, topic: str, record: RawRecord) -> Row:
    """A record of an output topic."""
    row: Row = {
        "topic": topic,
        "key": None if record.key is None else shown(Keys().deserialize(record.key)),
        "value": None if record.value is None else Typed().deserialize(record.value),
        "timestamp": record.timestamp_ms,
    }
    if record.headers:
        row["headers"] = [_header(plan, name, value) for name, value in record.headers]
    return row


def store_names(case: Mapping[str, Any]) -> list[str]:
    """The stores that a case shows."""
    spec = case["spec"]
    return sorted(
        {each["store"] for each in spec["nodes"] if "store" in each} | {each["name"] for each in spec.get("stores", ())}
    )


def store_rows(case: Mapping[str, Any], store: Any) -> list[Row]:
    """What is in a store."""
    return list(_rows(store, sorted({given["timestamp"] for given in case["inputs"] if "timestamp" in given})))


def _header(plan: Plan, name: str, value: bytes | None) -> list[str | None]:
    text = None if value is None else value.decode()
    exchanges = {exchange for stage in plan.stages for exchange in stage.exchanges_in}
    if name == "__streams.errors.topic" and text in exchanges:
        text = f"{_APPLICATION_ID}-{text}"
    return [name, text]


def _rows(store: Any, times: list[int]) -> Iterable[Row]:
    match store:
        case TestKeyValueStore() | TestWindowStore():
            return [
                {"key": shown(key), "value": value} | ({"timestamp": timestamp_ms} if store.keeps_timestamps else {})
                for key, value, timestamp_ms in store.all_with_timestamps()
            ]
        case TestVersionedStore():
            versions = (
                {
                    "key": shown(key),
                    "latest": _version(store.get(key)),
                    "as_of": [[at, _version(found)] for at in times if (found := store.get_as_of(key, at))],
                }
                for key in store.all_keys()
            )
            return [row for row in versions if row["latest"] or row["as_of"]]
        case TestSessionStore():
            return [{"key": shown(key), "value": value} for key, value in store.all()]
        case _:
            raise TypeError(type(store).__name__)


def _version(record: Any) -> list[Any] | None:
    return None if record is None else [record.value, record.timestamp_ms]
