"""The commands of the processor `store_script` (SPEC section 6) on our stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deltaworks import Windowed


def run_command(store: Any, command: Mapping[str, Any]) -> Any:
    """Runs one command and returns its result as JSON."""
    if hasattr(store, "find_sessions"):
        return _on_sessions(store, command)
    if hasattr(store, "fetch_range"):
        return _on_windows(store, command)
    if hasattr(store, "prefix_scan"):
        return _on_keys(store, command)
    return _on_versions(store, command)


def _on_keys(store: Any, command: Mapping[str, Any]) -> Any:
    match command:
        case {"do": "put", "key": key, "value": value}:
            return store.put(key, value)
        case {"do": "put_if_absent", "key": key, "value": value}:
            return store.put_if_absent(key, value)
        case {"do": "put_all", "entries": entries}:
            return store.put_all((key, value) for key, value in entries)
        case {"do": "get", "key": key}:
            return store.get(key)
        case {"do": "delete", "key": key}:
            return store.delete(key)
        case {"do": "range"}:
            return _lists(store.range(command.get("from"), command.get("to")))
        case {"do": "reverse_range"}:
            return _lists(store.reverse_range(command.get("from"), command.get("to")))
        case {"do": "all"}:
            return _lists(store.all())
        case {"do": "reverse_all"}:
            return _lists(store.reverse_all())
        case {"do": "prefix"}:
            return _lists(store.prefix_scan(command["prefix"]))
        case _:
            raise ValueError(f"unknown command {command}")


def _on_windows(store: Any, command: Mapping[str, Any]) -> Any:
    match command:
        case {"do": "put", "key": key, "value": value, "at": at}:
            return store.put(key, value, at)
        case {"do": "get", "key": key, "at": at}:
            return store.fetch(key, at)
        case {"do": "fetch", "key": key, "from": start, "to": end}:
            return _lists(store.fetch_range(key, start, end))
        case {"do": "backward_fetch", "key": key, "from": start, "to": end}:
            return _lists(store.backward_fetch_range(key, start, end))
        case {"do": "fetch_keys", "from_key": first, "to_key": last, "from": start, "to": end}:
            return _windows(store.fetch_keys(first, last, start, end))
        case {"do": "fetch_all", "from": start, "to": end}:
            return _windows(store.fetch_all(start, end))
        case {"do": "backward_fetch_all", "from": start, "to": end}:
            return _windows(store.backward_fetch_all(start, end))
        case {"do": "all"}:
            return _windows(store.all())
        case _:
            raise ValueError(f"unknown command {command}")


def _on_sessions(store: Any, command: Mapping[str, Any]) -> Any:
    match command:
        case {"do": "put", "key": key, "start": start, "end": end, "value": value}:
            return store.put(Windowed(key, start, end), value)
        case {"do": "remove", "key": key, "start": start, "end": end}:
            return store.remove(Windowed(key, start, end))
        case {"do": "get", "key": key, "start": start, "end": end}:
            return store.fetch_session(key, start, end)
        case {"do": "fetch", "key": key}:
            return _sessions(store.fetch(key))
        case {"do": "backward_fetch", "key": key}:
            return _sessions(store.backward_fetch(key))
        case {"do": "find", "key": key, "earliest_end": end, "latest_start": start}:
            return _sessions(store.find_sessions(key, end, start))
        case {"do": "backward_find", "key": key, "earliest_end": end, "latest_start": start}:
            return _sessions(store.backward_find_sessions(key, end, start))
        case _:
            raise ValueError(f"unknown command {command}")


def _on_versions(store: Any, command: Mapping[str, Any]) -> Any:
    match command:
        case {"do": "put", "key": key, "value": value, "at": at}:
            return store.put(key, value, at)
        case {"do": "get", "key": key}:
            return _version(store.get(key, command.get("as_of")))
        case {"do": "delete", "key": key, "at": at}:
            return _version(store.delete(key, at))
        case _:
            raise ValueError(f"unknown command {command}")


def _lists(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [list(pair) for pair in pairs]


def _windows(rows: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [[window.key, window.start_ms, value] for window, value in rows]


def _sessions(rows: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [[session.key, session.start_ms, session.end_ms, value] for session, value in rows]


def _version(record: Any) -> Any:
    return None if record is None else {"value": record.value, "timestamp": record.timestamp_ms}
