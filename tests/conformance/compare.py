"""Compares what was observed with what a case expects, as SPEC section 8 says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

_PRESENCE_ONLY = ("exception", "message", "stacktrace")
_ERRORS = "__streams.errors."

Rows = list[Mapping[str, Any]]


def differences(case: Mapping[str, Any], observed: Mapping[str, Any]) -> list[str]:
    """What is not as expected; empty if all is."""
    expected = case["expected"]
    found = [_difference(field, wanted, got) for field, wanted, got in _fields(case, expected, observed)]
    return [text for text in found if text]


def _fields(
    case: Mapping[str, Any], expected: Mapping[str, Any], observed: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    per_key = expected.get("order") == "per_key"
    error, got_error = expected.get("error"), observed.get("error")
    fields: list[tuple[str, Any, Any]] = [("error", _error(error), _error(got_error))]
    if error is not None and error["phase"] == "build":
        return fields
    fields.append(
        ("outputs", _outputs(expected.get("outputs", []), per_key), _outputs(observed.get("outputs", []), per_key))
    )
    if "outputs_of_failed_step" in expected:
        name = "outputs_of_failed_step"
        fields.append((name, _outputs(expected[name], per_key), _outputs(observed.get(name, []), per_key)))
    fields.append(("peeked", _peeked(expected.get("peeked", [])), _peeked(observed.get("peeked", []))))
    if error is None:
        wanted = expected.get("stores", {})
        got = {name: rows_shown(observed.get("stores", {}).get(name, [])) for name in wanted}
        fields.append(("stores", {name: rows_shown(rows) for name, rows in wanted.items()}, got))
    return fields


def _difference(field: str, wanted: Any, got: Any) -> str | None:
    if wanted == got:
        return None
    return f"{field}:\n  expected {json.dumps(wanted, sort_keys=True)}\n  observed {json.dumps(got, sort_keys=True)}"


def _error(error: Mapping[str, Any] | None) -> Any:
    return None if error is None else [error["phase"], error.get("after_input")]


def _outputs(rows: Rows, per_key: bool) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        place = f"step {row['after_input']} topic {row['topic']}"
        if per_key:
            place += f" key {text_shown(row['key'])}"
        groups[place].append(
            text_shown(
                [
                    row["key"],
                    row["value"],
                    row["timestamp"],
                    [header_shown(header) for header in row.get("headers", [])],
                ]
            )
        )
    return dict(groups)


def header_shown(header: list[Any]) -> list[Any]:
    name = str(header[0])
    if name.startswith(_ERRORS) and name.removeprefix(_ERRORS) in _PRESENCE_ONLY:
        return [name]
    return list(header)


def _peeked(rows: Rows) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        groups[f"node {row['node']}"].append(text_shown([row["after_input"], row["key"], row["value"]]))
    return dict(groups)


def rows_shown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(text_shown(dict(row)) for row in rows)


def text_shown(value: Any) -> str:
    """Keeps `4` and `4.0` apart."""
    return json.dumps(value, sort_keys=True)
