"""What the DSL does not have yet, by what a case uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OPERATORS: set[str] = set()
_FIELDS: set[str] = set()


def missing(case: Mapping[str, Any]) -> str | None:
    """What a case uses that the DSL does not have yet; None: it can be run."""
    return next(_missing(case), None)


def _missing(case: Mapping[str, Any]) -> Iterator[str]:
    spec = case["spec"]
    for node in spec["nodes"]:
        if node["op"] in _OPERATORS:
            yield node["op"]
        yield from (f"{node['op']} with {field}" for field in _FIELDS & node.keys())
