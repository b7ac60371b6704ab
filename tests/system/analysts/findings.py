"""What a part has compared, and the counts of its last line."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.system.replays import findings


@dataclass
class Findings(findings.Findings):
    """Of one part."""

    counts: dict[str, int] = field(default_factory=dict)
    """What it had to do with, by name."""
