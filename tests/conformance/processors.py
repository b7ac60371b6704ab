"""Processors and stores of the cases (SPEC sections 3 and 6), by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltaworks import Serde


def store_builder(store: Mapping[str, Any], key: Serde[Any], value: Serde[Any]) -> Any:
    """A store as a case describes it."""
    raise ValueError("not yet")


def supplier(reference: list[Any]) -> Callable[[], Any]:
    """Makes the `Processor` of a reference."""
    raise ValueError("not yet")


def fixed_key_supplier(reference: list[Any]) -> Callable[[], Any]:
    """Makes the `FixedKeyProcessor` of a reference."""
    raise ValueError("not yet")


def value_transformer_supplier(mapper: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Makes a `ValueTransformer` that calls a mapper."""
    raise ValueError("not yet")
