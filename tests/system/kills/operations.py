"""What operators do to a stream on a cluster while its executors are killed: a replay, its publication and rollback, a
hand-over, a rescale."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from deltaworks.control import actions
from deltaworks.settings import Settings
from tests.support.repeated import repeated
from tests.system.kills.cluster import RATE, Check, Stage
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.replays.project import Answer, Project
from tests.system.sample_data import flowing

_BY = "check-cluster"
_LAUNCH_S = 180.0
_EVERY_S = 20.0


def operations(check: Check) -> None:
    """Each, one after the other; then everything is compared."""
    with check.stage("operations") as stage:
        narrow = replace(stage.settings, cores=2)
        stream = StreamUnderKills(stage.settings, stage.cluster.folder)
        with flowing(check.settings, RATE):
            actions.deploy(narrow, "orders", requested_by=_BY, launch_s=_LAUNCH_S)
            stream.until(lambda: stream.batches() > 5, _LAUNCH_S, "the stream does not run")
            try:
                with _killed(check, stage):
                    replayed = _done(check, narrow, "replay", "orders", "--reason", "the same again", "--yes")
                    _done(check, narrow, "rollback", replayed.run)
                    _done(check, narrow, "replay", "orders", "--hand-over", "--reason", "goes on with it", "--yes")
                    _done(check, stage.settings, "rescale", "orders", "--yes")
                    committed = stream.batches()
                    stream.until(lambda: stream.batches() > committed + 5, _LAUNCH_S, "the stream does not go on")
            finally:
                actions.stop(stage.settings, "orders", requested_by=_BY)
        check.judge("operations", stream, stage)


def _done(check: Check, settings: Settings, *arguments: str) -> Answer:
    begun = time.monotonic()
    answer = Project(settings).deltaworks(*arguments)
    said = " ".join(arguments[:3])
    print(f"{said}: exit code {answer.code} after {time.monotonic() - begun:.0f} s", flush=True)
    if answer.code:
        check.wrong.append(f"operations: {said} ended with {answer.code}: {answer.text[-1500:]}")
    return answer


@contextmanager
def _killed(check: Check, stage: Stage) -> Iterator[None]:
    """Executors get SIGKILL again and again during the block."""
    with repeated(nullcontext(lambda: stage.cluster.kill_any_executor(check.rng)), _EVERY_S):
        yield
    print(f"operations: {len(stage.cluster.kills)} executors killed", flush=True)
