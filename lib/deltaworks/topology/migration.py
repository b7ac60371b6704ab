"""How the values of a store become values of another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltaworks.serdes.base import Serde

Migration: TypeAlias = tuple[Serde[Any], Callable[[Any], Any]]
"""`(the serde of before, old value -> new value)`; None in place of a value deletes the entry."""
