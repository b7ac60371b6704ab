"""The replays that wait for an approval, as incidents."""

from __future__ import annotations

from deltaworks.control.incidents import Finding
from deltaworks.replay.model import range_of
from deltaworks.replay.runs import all_unfinished
from deltaworks.settings import Settings


def waiting(settings: Settings) -> list[Finding]:
    """The replays of which somebody was asked whether to publish them, and that are neither approved nor discarded."""
    found = []
    for paths, plan in all_unfinished(settings):
        state = paths.read_state()
        if state.asked is None or state.approval is not None:
            continue
        differ = "" if state.differences is None else f"; {state.differences:,} rows differ"
        what = f"the replay {plan.run_id} ({range_of(state.from_ms, state.to_ms)}) waits for an approval{differ}"
        found.append(
            Finding(
                pipeline=plan.request.pipeline,
                kind="approval_waits",
                key=plan.run_id,
                what=what,
                cause=plan.request.reason or None,
                place=state.asked,
            )
        )
    return found
