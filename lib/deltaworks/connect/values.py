"""Values of settings, as authors write them and as Connect gets them."""

from __future__ import annotations

import math
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool
"""Of a setting. Connect has texts only: `True` is sent as `true`, 1.5 as `1.5`."""


def is_value(value: object) -> bool:
    """Whether Connect can have it as the value of a setting."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def text_of(value: Value) -> str:
    """A value as Connect gets it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_text(value: object) -> bool:
    """Whether it is a text that says something."""
    return isinstance(value, str) and bool(value.strip())
