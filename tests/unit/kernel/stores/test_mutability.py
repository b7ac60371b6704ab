from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest

from deltaworks.kernel.stores.mutability import is_immutable


class Tier(Enum):
    GOLD = "gold"


class Frozen(msgspec.Struct, frozen=True):
    amount: Decimal
    tier: Literal["A"] | None
    tags: tuple[str, ...]
    next: "Frozen | None" = None


class FrozenWithList(msgspec.Struct, frozen=True):
    items: list[int]


class Open(msgspec.Struct):
    amount: int


@dataclass(frozen=True)
class FrozenData:
    at: datetime
    inner: Frozen


@dataclass
class OpenData:
    at: datetime


@pytest.mark.parametrize(
    "kind", [int, str, bytes, float, Decimal, Tier, int | None, tuple[int, str], Frozen, FrozenData]
)
def test_values_that_nobody_can_change_are_kept_as_objects(kind: Any) -> None:
    assert is_immutable(kind)


@pytest.mark.parametrize(
    "kind", [list[int], dict[str, int], Open, OpenData, FrozenWithList, tuple[list[int]], object, Any]
)
def test_values_that_somebody_may_change_are_kept_as_bytes(kind: Any) -> None:
    assert not is_immutable(kind)
