"""The recorded cases on the streaming host's tasks: `python -m tests.conformance.on_hosts [--cuts N] [family]...`.

Every case runs in N random cuts (5), with restarts, lost local stores and failed attempts; prints tried and equal.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.conformance.data import Case, curated, generated, once_different, random
from tests.conformance.hosts import Host
from tests.conformance.micro_batches import CaseInMicroBatches, differences_on
from tests.conformance.streaming_task import task_host

Report = Callable[[str], None]


def task_hosts(case: Case) -> Host:
    """The host `task` for a case: the same failures at each call, with one shard and with two in turn."""
    rng = Random(f"failures {case['name']}")
    shards = iter(range(1, 1_000_000))
    return lambda run: task_host(rng, shards=1 + next(shards) % 2)(run)


def differing(
    cases: Iterable[Case], host_of: Callable[[Case], Host], *, cuts: int, report: Report = lambda _: None
) -> dict[str, str]:
    """Case -> what was not as expected first."""
    found: dict[str, str] = {}
    tried: Counter[str] = Counter()
    equal: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for case in cases:
        if reason := CaseInMicroBatches(case).not_comparable:
            left_out[reason] += 1
            continue
        tried[case["family"]] += 1
        try:
            differences = differences_on(host_of(case), case, cuts=cuts)
        except Exception as error:
            differences = [f"{type(error).__name__}: {error}"]
        equal[case["family"]] += not differences
        if differences:
            found[case["name"]] = differences[0]
    for family in sorted(tried):
        report(f"{family:32} {equal[family]:5} of {tried[family]:5} equal")
    report(f"{'all':32} {equal.total():5} of {tried.total():5} equal, each in {cuts} cuts")
    for reason, count in left_out.items():
        report(f"not compared: {count:3}, {reason}")
    return found


def main(arguments: list[str]) -> int:
    cuts = int(arguments[arguments.index("--cuts") + 1]) if "--cuts" in arguments else 5
    wanted = {argument for argument in arguments if not argument.startswith("-") and not argument.isdecimal()}
    cases: list[dict[str, Any]] = [*curated(), *random(), *generated(), *once_different()]
    begun = time.monotonic()
    chosen = [case for case in cases if not wanted or not wanted.isdisjoint((case["family"], case["name"]))]
    found = differing(chosen, task_hosts, cuts=cuts, report=print)
    for name, difference in found.items():
        print(name, difference)
    print(f"{time.monotonic() - begun:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
