"""Whether a value may be kept as an object between two records, or has to be kept as bytes.

A store hands the same object to several calls of a user's function. That is safe only if it cannot change;
values of any other type are kept serialized, and every read decodes a fresh copy, as in Kafka Streams.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

_SCALARS = (str, int, float, bool, bytes, complex, Decimal, datetime, date, time, timedelta, UUID, type(None))


def is_immutable(kind: Any) -> bool:
    """True if no value of this type, nor anything inside it, can change."""
    return _immutable(kind, frozenset())


def _immutable(kind: Any, seen: frozenset[Any]) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(argument is Ellipsis or _immutable(argument, seen) for argument in get_args(kind))
    if origin is typing.Annotated:
        return _immutable(get_args(kind)[0], seen)
    plain = origin or kind
    if not isinstance(plain, type):
        return False
    if plain in _SCALARS or issubclass(plain, Enum) or plain in seen:
        return True
    return _frozen(plain) and all(_immutable(field, seen | {plain}) for field in _field_types(plain))


def _frozen(kind: type) -> bool:
    if issubclass(kind, msgspec.Struct):
        return bool(kind.__struct_config__.frozen)
    return is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _field_types(kind: type) -> list[Any]:
    hints = get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        return [hints[name] for name in kind.__struct_fields__]
    return [hints[field.name] for field in fields(cast(Any, kind))]
