"""What functions and methods of Python's builtin types return; they have no annotations to read."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_FUNCTIONS: dict[Any, str] = {
    str: "ascii bin chr format hex input oct repr",
    int: "hash id len ord",
    bool: "all any callable hasattr isinstance issubclass",
}
_IS = "isalnum isalpha isascii isdigit islower isspace istitle isupper startswith endswith"
_FIND = "count find index rfind rindex"
_SAME = "capitalize center expandtabs join ljust lower lstrip replace rjust rstrip strip swapcase title translate upper"
_SAME += " zfill removeprefix removesuffix"
_METHODS: dict[type, dict[Any, str]] = {
    str: {
        str: f"{_SAME} casefold format format_map",
        bool: f"{_IS} isdecimal isidentifier isnumeric isprintable",
        int: _FIND,
        bytes: "encode",
        list[str]: "split rsplit splitlines",
        tuple[str, str, str]: "partition rpartition",
    },
    bytes: {
        bytes: _SAME,
        bool: _IS,
        int: _FIND,
        str: "decode hex",
        list[bytes]: "split rsplit splitlines",
        tuple[bytes, bytes, bytes]: "partition rpartition",
    },
    int: {int: "bit_count bit_length conjugate", bytes: "to_bytes", tuple[int, int]: "as_integer_ratio"},
    float: {float: "conjugate", bool: "is_integer", str: "hex", tuple[int, int]: "as_integer_ratio"},
    Decimal: {
        Decimal: "copy_abs copy_negate copy_sign exp fma ln log10 max min normalize quantize scaleb sqrt"
        " to_integral_value",
        bool: "is_finite is_infinite is_nan is_signed is_zero",
        int: "adjusted",
        str: "to_eng_string",
        tuple[int, int]: "as_integer_ratio",
    },
    datetime: {datetime: "astimezone", date: "date", time: "time timetz", float: "timestamp", str: "isoformat ctime"},
    date: {str: "isoformat strftime ctime", int: "toordinal weekday isoweekday"},
    timedelta: {float: "total_seconds"},
}


def builtin_result(function: Callable[..., Any]) -> Any:
    """The type that a builtin returns, such as `int` for `len` and `str` for `str.upper`; None if it is not known.

    >>> builtin_result("-".join)
    <class 'str'>
    """
    name = getattr(function, "__name__", "")
    if getattr(builtins, name, None) is function:
        return _named(_FUNCTIONS, name)
    owner = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
    return _named(_METHODS.get(owner, {}), name)


def _named(results: dict[Any, str], name: str) -> Any:
    return next((result for result, names in results.items() if name in names.split()), None)
