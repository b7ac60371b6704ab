"""What a checkpoint depends on, and what to say when it has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaworks.topology.stages import Plan


def of(plan: Plan) -> dict[str, Any]:
    """The fingerprint of a plan, as JSON."""
    return {}
