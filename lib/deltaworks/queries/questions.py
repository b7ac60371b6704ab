"""Questions as values, with the names of Kafka Streams: for who passes them on instead of calling a method."""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

import msgspec

from deltaworks.errors import StoreQueryError
from deltaworks.queries.key_value import KeyValues
from deltaworks.queries.sessions import SessionValues
from deltaworks.queries.store import LIMIT
from deltaworks.queries.versioned import VersionedValues
from deltaworks.queries.windows import FOR_EVER_MS, WindowedValues


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The value of a key: `KeyValues.get`. Gives a `Found`."""

    key: Any


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The keys between two keys: `KeyValues.range`. Gives a `Page` of `Entry`."""

    from_key: Any = None
    to_key: Any = None
    reverse: bool = False
    limit: int = LIMIT
    after: str | None = None


class WindowKeyQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The windows of a key, or its sessions: `fetch`. Gives a `Page` of `Window` or `Session`."""

    key: Any
    from_ms: int = 0
    to_ms: int = FOR_EVER_MS
    limit: int = LIMIT
    after: str | None = None


class WindowRangeQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The windows of all keys in a span of time, or their sessions: `fetch_all`. Gives a `Page` likewise."""

    from_ms: int = 0
    to_ms: int = FOR_EVER_MS
    from_key: Any = None
    to_key: Any = None
    limit: int = LIMIT
    after: str | None = None


class VersionedKeyQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The version of a key that was valid at a time: `VersionedValues.get`. Gives a `Version`."""

    key: Any
    as_of_ms: int | None = None


Question: TypeAlias = KeyQuery | RangeQuery | WindowKeyQuery | WindowRangeQuery | VersionedKeyQuery
View: TypeAlias = KeyValues[Any, Any] | WindowedValues[Any, Any] | SessionValues[Any, Any] | VersionedValues[Any, Any]


def ask(view: View, question: Question, min_batch: int | None = None) -> Any:
    """The answer of a store.

    Raises:
        StoreQueryError: it is not a question for a store of this kind, or as its method.
        StoreUnavailableError: the store cannot be read now.
    """
    given: dict[str, Any] = {name: getattr(question, name) for name in question.__struct_fields__}
    given["min_batch"] = min_batch
    match question:
        case KeyQuery() if isinstance(view, KeyValues):
            return view.get(**given)
        case RangeQuery() if isinstance(view, KeyValues):
            return view.range(**given)
        case WindowKeyQuery() if isinstance(view, WindowedValues | SessionValues):
            return view.fetch(given.pop("key"), given.pop("from_ms"), given.pop("to_ms"), **given)
        case WindowRangeQuery() if isinstance(view, WindowedValues | SessionValues):
            return view.fetch_all(**given)
        case VersionedKeyQuery() if isinstance(view, VersionedValues):
            return view.get(**given)
        case KeyQuery() | RangeQuery() | WindowKeyQuery() | WindowRangeQuery() | VersionedKeyQuery():
            kind = view.metadata().kind
            raise StoreQueryError(
                f"The store {view.name!r} is a {kind} store, and {type(question).__name__} is not for it.",
                hint=f"questions for it: {', '.join(_FOR[kind])}",
            )
        case _:
            assert_never(question)


_FOR = {
    "key-value": ("KeyQuery", "RangeQuery"),
    "window": ("WindowKeyQuery", "WindowRangeQuery"),
    "session": ("WindowKeyQuery", "WindowRangeQuery"),
    "versioned": ("VersionedKeyQuery",),
}
"""Kind of a store -> its questions."""
