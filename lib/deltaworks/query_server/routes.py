"""What can be asked of a store: paths, parameters and answers. The server and its OpenAPI document are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from deltaworks.errors import StoreQueryError
from deltaworks.queries import (
    Entry,
    Found,
    KeyMetadata,
    KeyValues,
    Page,
    Session,
    SessionValues,
    Several,
    StoreMetadata,
    StoreStats,
    Version,
    VersionedValues,
    Window,
    WindowedValues,
)
from deltaworks.queries.questions import View
from deltaworks.queries.windows import FOR_EVER_MS
from deltaworks.query_server.parameters import Parameter

LIMIT = 100
"""Rows of a page, unless the request says otherwise."""
MAX_LIMIT = 1_000
"""Rows of a page at most: while a page is made, nobody else gets an answer."""
MAX_KEYS = 1_000
"""Keys of a request at most."""

_MIN_BATCH = Parameter("min_batch", "waits until this batch is committed", "integer")
_PAGE = (
    Parameter("limit", "rows of the page", "integer", LIMIT, MAX_LIMIT, 1),
    Parameter("after", "`next` of the page before; the other parameters must be the same"),
    _MIN_BATCH,
)
_STARTS = (
    Parameter("from_ms", "the first start of a window", "time", 0),
    Parameter("to_ms", "the last start of a window", "time", FOR_EVER_MS),
)

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """What can be asked of some kinds of stores."""

    path: str
    """Below the store; `{key}` is a key as text: a string as it is, a number, or else JSON; bytes are hexadecimal."""
    about: str
    kinds: tuple[type[Any], ...]
    answer: Any
    """Type of the answer."""
    parameters: tuple[Parameter, ...]
    ask: Callable[[Any, str, Given], Any]
    """Gets the store, the key as text (empty: there is none in the path), and the values of the parameters."""
    takes_keys: bool = False
    """Whether it is a POST with an array of keys; `ask` gets it as text."""

    @property
    def name(self) -> str:
        """What is asked, in a word."""
        what, _, key = self.path.removeprefix("/").partition("/")
        return f"{what or 'store'}{' of a key' if key else ''}"

    def require_kind(self, view: View) -> None:
        """
        Raises:
            StoreQueryError: it cannot be asked of this store.
        """
        if not isinstance(view, self.kinds):
            others = (f"{each.path or '/'}" for each in QUESTIONS if isinstance(view, each.kinds))
            raise StoreQueryError(
                f"The store {view.name!r} is a {view.metadata().kind} store, of which nobody can ask {self.path}.",
                hint=f"ask for one of: {', '.join(others)}",
            )


def _several(view: KeyValues[Any, Any], text: str, given: Given) -> Several[Any, Any]:
    keys = view.keys_of_json(text)
    if len(keys) > MAX_KEYS:
        raise StoreQueryError(f"{len(keys)} keys are too many for a request.", hint=f"send up to {MAX_KEYS}")
    return view.get_many(keys, **given)


def _entries(view: KeyValues[Any, Any], _: str, given: Given) -> Page[Entry[Any, Any]]:
    first, last, prefix, rest = given["from"], given["to"], given["prefix"], dict(given)
    for name in ("from", "to", "prefix"):
        del rest[name]
    if prefix is not None:
        if first is not None or last is not None:
            raise StoreQueryError("A page has a prefix or bounds, not both.", hint="leave out one of them")
        return view.prefix(view.key_of_text(prefix), **rest)
    bounds = (None if text is None else view.key_of_text(text) for text in (first, last))
    return view.range(*bounds, **rest)


_ALL: tuple[type[Any], ...] = (KeyValues, WindowedValues, SessionValues, VersionedValues)
QUESTIONS = (
    Question("", "What the store is.", _ALL, StoreMetadata, (), lambda view, _, __: view.metadata()),
    Question(
        "/stats", "How large the store is.", _ALL, StoreStats, (_MIN_BATCH,),
        lambda view, _, given: view.stats(**given),
    ),
    Question(
        "/metadata/{key:path}", "Which task has a key.", _ALL, KeyMetadata, (),
        lambda view, key, _: view.metadata_for_key(view.key_of_text(key)),
    ),
    Question(
        "/keys/{key:path}", "The value of a key.", (KeyValues,), Found[Any], (_MIN_BATCH,),
        lambda view, key, given: view.get(view.key_of_text(key), **given),
    ),
    Question(
        "/keys", f"The values of up to {MAX_KEYS:,} keys, as of one batch.", (KeyValues,), Several[Any, Any],
        (_MIN_BATCH,), _several, takes_keys=True,
    ),
    Question(
        "/entries", "The keys between two bounds, both inclusive, or with a prefix, in the order of their bytes.",
        (KeyValues,), Page[Entry[Any, Any]],
        (
            Parameter("from", "the lower bound"), Parameter("to", "the upper bound"),
            Parameter("prefix", "what keys begin with"), Parameter("reverse", "the last row first", "boolean", False),
            *_PAGE,
        ),
        _entries,
    ),
    Question(
        "/versions/{key:path}", "The version of a key that was valid at a time.", (VersionedValues,), Version[Any],
        (Parameter("as_of_ms", "the time; without it the latest version", "time"), _MIN_BATCH),
        lambda view, key, given: view.get(view.key_of_text(key), **given),
    ),
    Question(
        "/windows/{key:path}", "The windows of a key, oldest first.", (WindowedValues,), Page[Window[Any, Any]],
        (*_STARTS, *_PAGE),
        lambda view, key, given: view.fetch(view.key_of_text(key), **given),
    ),
    Question(
        "/windows", "The windows of all keys, oldest first.", (WindowedValues,), Page[Window[Any, Any]],
        (*_STARTS, *_PAGE),
        lambda view, _, given: view.fetch_all(**given),
    ),
    Question(
        "/sessions/{key:path}", "The sessions of a key, oldest first.", (SessionValues,), Page[Session[Any, Any]],
        (
            Parameter("earliest_end_ms", "sessions that end then or later", "time", 0),
            Parameter("latest_start_ms", "sessions that start then or earlier", "time", FOR_EVER_MS),
            *_PAGE,
        ),
        lambda view, key, given: view.fetch(view.key_of_text(key), **given),
    ),
    Question(
        "/sessions", "The sessions of all keys that end in a span of time, oldest first.", (SessionValues,),
        Page[Session[Any, Any]],
        (
            Parameter("from_ms", "the first end of a session", "time", 0),
            Parameter("to_ms", "the last end of a session", "time", FOR_EVER_MS),
            *_PAGE,
        ),
        lambda view, _, given: view.fetch_all(**given),
    ),
)  # fmt: skip
"""Those with a key in the path are before those without: the first one that fits is taken."""


def json_of(answer: Any) -> bytes:
    """An answer as JSON, which follows the type of the value.

    Raises:
        StoreQueryError: a value has no JSON.
    """
    try:
        return msgspec.json.encode(answer, enc_hook=_plain)
    except (TypeError, ValueError) as error:
        raise StoreQueryError(
            f"The answer cannot be written as JSON: {error}.", hint="ask with deltaworks.queries"
        ) from error


def _plain(value: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf import json_format

        return json_format.MessageToDict(value, preserving_proto_field_name=True)
    raise TypeError(f"nothing says how {type(value).__name__} is written")
