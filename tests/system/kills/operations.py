"""What operators do to a stream on a cluster while its executors are killed: a replay, its publication and rollback, a
hand-over, a rescale."""

from __future__ import annotations

import time
from dataclasses import replace

from deltaworks.control import actions
from deltaworks.settings import Settings
from tests.system.kills.cluster import BY, LAUNCH_S, RATE, REPLAYED, Check
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.replays.project import Answer, Project
from tests.system.sample_data import flowing

_RIGHT, _WRONG = "(lambda order: order.amount, ", "(lambda order: 2 * order.amount, "
"""The revenue of a window; only a table has it."""


def operations(check: Check) -> None:
    """Each, one after the other, beginning with code that has a mistake; then everything is compared."""
    with check.stage("operations") as stage:
        narrow = replace(stage.settings, cores=2)
        stream = StreamUnderKills(stage.settings, stage.cluster.folder)
        job = stage.settings.project / "jobs" / "orders.py"
        right = job.read_text()
        assert _RIGHT in right
        job.write_text(right.replace(_RIGHT, _WRONG))
        with flowing(check.settings, RATE):
            actions.deploy(narrow, "orders", requested_by=BY, launch_s=LAUNCH_S)
            stream.until(lambda: stream.batches() > 15, LAUNCH_S, "the stream does not run")
            job.write_text(right)
            try:
                tables = [word for name in REPLAYED for word in ("--table", name)]
                with stage.executors_killed(check.rng):
                    words = ("replay", "orders", *tables, "--reason", "revenue was counted twice", "--yes")
                    replayed = _done(
                        check, narrow, *words, code=1
                    )  # a check finds that the stream has the mistake still
                    _done(check, narrow, "rollback", replayed.run)
                    _done(check, narrow, "replay", "orders", "--hand-over", "--reason", "goes on with it", "--yes")
                    _done(check, stage.settings, "rescale", "orders", "--yes")
                    committed = stream.batches()
                    stream.until(lambda: stream.batches() > committed + 2, 2 * LAUNCH_S, "the stream does not go on")
            finally:
                actions.stop(stage.settings, "orders", requested_by=BY)
        check.judge("operations", stream, stage)


def _done(check: Check, settings: Settings, *arguments: str, code: int = 0) -> Answer:
    begun = time.monotonic()
    answer = Project(settings).deltaworks(*arguments)
    said = " ".join(arguments[:3])
    print(f"{said}: exit code {answer.code} after {time.monotonic() - begun:.0f} s", flush=True)
    if answer.code != code:
        print(answer.text, flush=True)
        check.wrong.append(f"operations: {said} ended with {answer.code}: {answer.text[-1500:]}")
    return answer
