"""From a low-level topology (SPEC section 4) to one of ours, with `deltaworks.Topology`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltaworks import Plan


def low_level_plan(case: Mapping[str, Any], kept: type) -> Plan:
    """The plan of a case whose `api` is `processor`."""
    raise ValueError("not yet")
