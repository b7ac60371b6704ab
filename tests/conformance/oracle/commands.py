"""Random store commands (SPEC section 6), mostly writes, on few keys and times."""

from __future__ import annotations

from random import Random
from typing import Any

Command = dict[str, Any]

_KEYS = ["a", "b", "ab", "abc", "c", "ba"]
_LATEST_MS = 60
_KEY_VALUE = [*["put"] * 5, "put_if_absent", "put_all", "get", "get", "delete"]
_ORDERED = ["range", "reverse_range", "all", "reverse_all", "prefix"]
_WINDOW = [*["put"] * 6, "get", "fetch", "backward_fetch", "fetch_keys", "fetch_all", "backward_fetch_all", "all"]
_SESSION = [*["put"] * 6, "remove", "get", "fetch", "backward_fetch", "find", "backward_find"]
_VERSIONED = [*["put"] * 6, "get", "get", "delete"]


def command(store_type: str, chance: Random) -> Command:
    """A command that a store of the type understands."""
    match store_type:
        case "kv":
            return _key_value(chance.choice(_KEY_VALUE + _ORDERED), chance)
        case "lru":
            return _key_value(chance.choice(_KEY_VALUE), chance)
        case "window":
            return _window(chance.choice(_WINDOW), chance)
        case "session":
            return _session(chance.choice(_SESSION), chance)
        case "versioned":
            return _versioned(chance.choice(_VERSIONED), chance)
        case _:
            raise ValueError(f"unknown store type {store_type}")


def _key_value(name: str, chance: Random) -> Command:
    match name:
        case "put" | "put_if_absent":
            return {"do": name, "key": _key(chance), "value": _value(chance)}
        case "put_all":
            return {"do": name, "entries": [[_key(chance), _value(chance)] for _ in range(chance.randint(0, 3))]}
        case "range" | "reverse_range":
            return {"do": name, "from": _bound(chance), "to": _bound(chance)}
        case "prefix":
            return {"do": name, "prefix": chance.choice(["a", "ab", "b"])}
        case "all" | "reverse_all":
            return {"do": name}
        case _:
            return {"do": name, "key": _key(chance)}


def _window(name: str, chance: Random) -> Command:
    from_ms, to_ms = sorted((_time_ms(chance), _time_ms(chance)))
    match name:
        case "put":
            return {"do": name, "key": _key(chance), "value": _value(chance), "at": _time_ms(chance)}
        case "get":
            return {"do": name, "key": _key(chance), "at": _time_ms(chance)}
        case "fetch" | "backward_fetch":
            return {"do": name, "key": _key(chance), "from": from_ms, "to": to_ms}
        case "fetch_keys":
            from_key, to_key = sorted((_key(chance), _key(chance)))
            return {"do": name, "from_key": from_key, "to_key": to_key, "from": from_ms, "to": to_ms}
        case "all":
            return {"do": name}
        case _:
            return {"do": name, "from": from_ms, "to": to_ms}


def _session(name: str, chance: Random) -> Command:
    start_ms, end_ms = sorted((_time_ms(chance), _time_ms(chance)))
    match name:
        case "put":
            return {"do": name, "key": _key(chance), "value": _value(chance), "start": start_ms, "end": end_ms}
        case "remove" | "get":
            return {"do": name, "key": _key(chance), "start": start_ms, "end": end_ms}
        case "find" | "backward_find":
            return {
                "do": name,
                "key": _key(chance),
                "earliest_end": _time_ms(chance),
                "latest_start": _time_ms(chance),
            }
        case _:
            return {"do": name, "key": _key(chance)}


def _versioned(name: str, chance: Random) -> Command:
    match name:
        case "put":
            return {"do": name, "key": _key(chance), "value": _value(chance), "at": _time_ms(chance)}
        case "get" if chance.random() < 0.4:
            return {"do": name, "key": _key(chance)}
        case "get":
            return {"do": name, "key": _key(chance), "as_of": _time_ms(chance)}
        case _:
            return {"do": name, "key": _key(chance), "at": _time_ms(chance)}


def _key(chance: Random) -> str:
    return chance.choice(_KEYS)


def _bound(chance: Random) -> str | None:
    return None if chance.random() < 0.15 else _key(chance)


def _value(chance: Random) -> str | None:
    return None if chance.random() < 0.2 else f"v{chance.randint(0, 99)}"


def _time_ms(chance: Random) -> int:
    return chance.randint(0, _LATEST_MS)
