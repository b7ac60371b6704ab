"""Records as documents of a search index: their ids, their fields, and the dates in the names of indices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from deltaworks.errors import ProductionError
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.external import DATE, SearchIndex

MAX_ID_BYTES = 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def document_id(key: Any) -> str:
    """The id of a key's document: a text as it is, another key as JSON; `<key>@<start>-<end>` (ms) for a window.

    Raises:
        ProductionError: it is empty, longer than an index takes, or half a character is in it.
    """
    found = f"{_id(key.key)}@{key.start_ms}-{key.end_ms}" if isinstance(key, Windowed) else _id(key)
    try:
        size = len(found.encode())
    except UnicodeEncodeError as error:
        raise ProductionError(f"a key is no text that an index takes: {error}") from error
    if not 0 < size <= MAX_ID_BYTES:
        raise ProductionError(f"a key gives an id of {size:,} bytes; an index takes 1 to {MAX_ID_BYTES}")
    return found


def _id(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key, order="deterministic").decode()


def document(sink: SearchIndex, key: Any, value: Any, timestamp_ms: int) -> bytes:
    """The JSON of a document: the fields of the value, or the value as field `value`.

    Raises:
        ProductionError: JSON cannot express it.
    """
    try:
        found = msgspec.to_builtins(value, str_keys=True)
        fields = found if isinstance(found, dict) else {"value": found}
        if sink.key_field is not None:
            inner = key.key if isinstance(key, Windowed) else key
            fields = {**fields, sink.key_field: msgspec.to_builtins(inner, str_keys=True)}
        if isinstance(key, Windowed):
            fields = {"window_start": iso(key.start_ms), "window_end": iso(key.end_ms), **fields}
        if sink.timestamp_field is not None:
            fields = {**fields, sink.timestamp_field: iso(timestamp_ms)}
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProductionError(f"a value of type {type(value).__name__} is no JSON: {error}") from error


def index_of(sink: SearchIndex, key: Any, timestamp_ms: int) -> str:
    """The index of a record: by the start of its window, which stays, else by its timestamp."""
    if DATE not in sink.index:
        return sink.index
    return sink.index.replace(DATE, _instant(key.start_ms if isinstance(key, Windowed) else timestamp_ms, sink))


def _instant(time_ms: int, sink: SearchIndex) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime(sink.date_format)
    except OverflowError as error:
        raise ProductionError(f"a record of time {time_ms} ms is on no date of index '{sink.index}'") from error


def iso(time_ms: int) -> str:
    """A time as an index reads it: milliseconds, UTC; times that no calendar has stay numbers."""
    try:
        found = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
