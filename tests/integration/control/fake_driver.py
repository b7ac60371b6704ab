"""A driver without Spark: takes lease and fence, beats, reports and drains like the real one, within a second.

`python -m tests.integration.control.fake_driver run NAME --generation N`, with `--no-lease`, `--slow-start SECONDS`,
`--ignore-drain`, `--fail CODE`, or `--commits`: its beats tell of batches. Settings come from the environment, as for
the real one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from deltaworks import exits
from deltaworks.control import batches, fence, heartbeat, outcome
from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat, State
from deltaworks.control.launchers import DriverSpec
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import RegistryReporter
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings

MODULE = "tests.integration.control.fake_driver"
_PERIOD_S = 0.05
QUERY_ID = "query-1"


def command(*extra: str) -> Callable[[DriverSpec], list[str]]:
    """For `LocalLauncher`."""

    def of(spec: DriverSpec) -> list[str]:
        start = [sys.executable, "-m", MODULE, "run", spec.pipeline]
        return [*start, "--generation", str(spec.generation), *extra]

    return of


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("name")
    parser.add_argument("--generation", type=int, required=True)
    parser.add_argument("--no-lease", action="store_true")
    parser.add_argument("--ignore-drain", action="store_true")
    parser.add_argument("--slow-start", type=float, default=0.0)
    parser.add_argument("--fail", type=int, default=0)
    parser.add_argument("--commits", action="store_true")
    given = parser.parse_args()
    settings = Settings.from_environment()
    paths = PipelinePaths.of(settings, given.name)
    code, reason = exits.OK, None
    try:
        if given.fail:
            print("ValueError: it was told to fail", flush=True)
            code, reason = given.fail, "it was told to fail\n  Hint: tell it otherwise"
        else:
            _drive(settings, paths, given)
    except DeltaworksError as error:
        print(f"error: {error}", flush=True)
        code, reason = exits.code_of(error), error.message
    outcome.write(paths.outcome(given.generation), given.generation, code, reason)
    return code


def _drive(settings: Settings, paths: PipelinePaths, given: argparse.Namespace) -> None:
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    with ExitStack() as stack:
        if not given.no_lease:
            stack.enter_context(Lease(paths.lease, given.name, given.generation))
        fence.advance(paths.fence, given.generation, given.name)
        reporter = RegistryReporter(settings, given.name, given.generation, period_s=0.1)
        stack.callback(reporter.close)

        def beat(state: State) -> None:
            now = Heartbeat(
                pipeline=given.name,
                generation=given.generation,
                query_id=QUERY_ID,
                state=state,
                pid=os.getpid(),
                at=time.time(),
                batch_id=last if given.commits and last >= 0 else None,
            )
            with fence.held(paths.fence, given.generation, given.name):
                heartbeat.write(paths.heartbeat, now)
            reporter.beat(now)

        last = -1
        beat("starting")
        time.sleep(given.slow_start)
        last = max((record.batch for record in batches.read(paths.batches)), default=-1)
        drain = paths.drain(given.generation)
        stack.callback(drain.unlink, missing_ok=True)
        while given.ignore_drain or not (told or drain.exists() or reporter.asked_to_drain()):
            last += 1
            record = BatchRecord(last, int(time.time() * 1000), {"t": {"0": (last, last + 1)}})
            with fence.held(paths.fence, given.generation, given.name):
                batches.append(paths.batches, record)
            reporter.batch(record, QUERY_ID)
            beat("running")
            time.sleep(_PERIOD_S)
        beat("stopped")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
