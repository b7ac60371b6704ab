"""The versions of the job, and of what is written to its topic."""

from __future__ import annotations

import re
from pathlib import Path

from tests.system.formats.job import parcels

NEWEST = 3
_MARK = re.compile(r"\s*(#|//) since (\d)$")

SCHEMAS = {
    1: """{"type": "record", "name": "Parcel", "fields": [
        {"name": "parcel_id", "type": "string"}, {"name": "user", "type": "string"}, {"name": "grams", "type": "int"},
        {"name": "sent_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}""",
    2: """{"type": "record", "name": "Parcel", "fields": [
        {"name": "parcel_id", "type": "string"}, {"name": "user", "type": "string"}, {"name": "grams", "type": "int"},
        {"name": "note", "type": "string", "default": ""},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
         "default": "\\u0000"},
        {"name": "sent_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}""",
    3: """{"type": "record", "name": "Parcel", "fields": [
        {"name": "parcel_id", "type": "string"}, {"name": "user", "type": "string"}, {"name": "grams", "type": "long"},
        {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": ["basic", "gold"]}, "default": "basic"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
         "default": "\\u0000"},
        {"name": "sent_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}""",
}
"""What producers write, by the version of the job that was made for it: fields are added, removed and widened."""


def of(number: int) -> str:
    """The text of the job in a version."""
    return "\n".join(_line(line) for line in _text().splitlines() if _is_in(line, number)) + "\n"


def proto(number: int) -> str:
    """The schema of what the job writes in a version."""
    return "\n".join(_line(line) for line in parcels.PROTO.splitlines() if _is_in(line, number))


def _text() -> str:
    return Path(parcels.__file__).read_text()


def _is_in(line: str, number: int) -> bool:
    mark = _MARK.search(line)
    return mark is None or int(mark[2]) <= number


def _line(line: str) -> str:
    return _MARK.sub("", line)
