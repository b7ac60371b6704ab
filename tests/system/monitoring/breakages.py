"""What makes figures and alerts right, taken away, one thing at a time: each time, the check must turn red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.monitoring import Webhook
from tests.system.monitoring.causes import bad_records, caused
from tests.system.monitoring.figures import of_watched
from tests.system.monitoring.run import Run, flowing, stack
from tests.system.replays.project import until

_NOT_TOLD = "alerts not told"
BREAKAGES: Mapping[str, str] = {
    _NOT_TOLD: "DeadLetters of watched is not told",
    "metrics that are not updated": "DeadLetters of watched is not told",
    "dead letters not counted": "DeadLetters of watched is not told",
    "a page with other numbers than status": "watched: state entries: ",
}
"""Breakage -> what the check has to say of it: one that is red for another reason proves nothing.

The first is of the stack; the others are names of `tests.mutation.MUTATIONS`, in driver and page.
"""
_FIRES_S = 60.0
_JOB = "watched"
NOTHING = "nothing"
"""With this, the short check stays green."""
_READ, _READ_S = 50, 60.0
"""Records of now that are read first, so that others are late."""


def missed(name: str, folder: Path) -> list[str]:
    """What a short check finds with a breakage: an alert, and the figures of one stream. Nothing: it stays green."""
    hook = Webhook()
    with stack(folder, hook, tells=name != _NOT_TOLD, connect=False) as settings:
        run = Run(settings, hook)
        if name not in (_NOT_TOLD, NOTHING):
            (run.faults / "mutation").write_text(name)
        run.deploy(_JOB)
        with flowing(settings, [_JOB], 10.0):
            until(lambda: (beat := run.beat(_JOB)) is not None and beat.records_total > _READ, "it reads", _READ_S)
            wrong = caused(hook, bad_records(run), fires_s=_FIRES_S, clears_s=None)
        if wrong:
            return wrong
        page = run.page()
        try:
            return of_watched(run, page)[1]
        finally:
            page.close()


def is_missed(name: str, found: Sequence[str]) -> bool:
    """Whether what was found is about the breakage."""
    return any(BREAKAGES[name] in line for line in found)
