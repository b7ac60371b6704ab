"""`run_case` on the hosts `task` and `streaming`: the results of one random cut, in the form of a recording."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack.lifecycle import down
from tests.conformance.cuts import is_read
from tests.conformance.data import without_expectations
from tests.conformance.hosts import Observed, Run
from tests.conformance.micro_batches import CaseInMicroBatches
from tests.conformance.outputs import output_row
from tests.conformance.per_key import stores_of
from tests.conformance.run import run_case
from tests.conformance.streaming_task import task_host
from tests.support.live_stack import LiveStack, reachable

if TYPE_CHECKING:
    from tests.conformance.streaming import SparkHost


def run_off_driver(case: Mapping[str, Any], host: str) -> dict[str, Any]:
    """See `run_case`. The same case is cut in the same way each time."""
    plain = without_expectations(dict(case))
    given = CaseInMicroBatches(plain)
    if given.plan is None:
        return run_case(plain)  # which says why there is no topology
    unread = (
        at for at, step in enumerate(plain["inputs"]) if "topic" in step and not is_read(given.plan, step["topic"])
    )
    if (first := next(unread, None)) is not None:
        # Nobody can write there by the driver; a host sees what comes before.
        message = f"the topology does not read '{plain['inputs'][first]['topic']}'"
        error = {"phase": "run", "after_input": first, "class": "KeyError", "message": message}
        return {**run_off_driver(plain | {"inputs": plain["inputs"][:first]}, host), "error": error}
    rng = Random(case["name"])
    cut = given.trace.random_cut(rng)
    run = given.run(cut, rng)
    match host:
        case "task":
            found = task_host(rng)(run)
        case "streaming":
            found = _on_spark(run)
        case _:
            raise ValueError(f"unknown host '{host}'; there are: driver, task, streaming")
    outputs = [output_row(given.plan, topic, record) for topic, sent in found.topics.items() for record in sent]
    if found.error is not None:
        step = len(plain["inputs"]) - 1 if found.error.batch_id < 0 else cut.steps[found.error.batch_id][0].step
        error = {"phase": "run", "after_input": step, "class": found.error.kind, "message": found.error.message}
        return {"outputs": outputs, "error": error}
    return {"outputs": outputs, "stores": stores_of(plain, given.plan, found)}


def _on_spark(run: Run) -> Observed:
    written = task_host(Random(0), failures=0.0)(run).topics  # names of topics that only a function knows
    return _spark_host().run(run, sorted(written))[0]


@cache
def _spark_host() -> SparkHost:
    """Started once, with a broker of its own; both end with this process."""
    from tests.conformance.streaming import SparkHost

    folder = tempfile.TemporaryDirectory(prefix="deltaworks-cases-")
    stack = LiveStack(own_settings(reachable(Path(folder.name))))
    stack.start("kafka")
    atexit.register(folder.cleanup)
    atexit.register(down, stack.settings)
    host = SparkHost(replace(stack.settings, driver_memory="700m"), Path(folder.name) / "cases", Random(0))
    atexit.register(host.close)
    return host
