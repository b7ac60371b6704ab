"""A case on a host, in random micro-batches with random restarts, compared with what Kafka Streams did."""

from __future__ import annotations

import json
from functools import cached_property
from random import Random
from typing import Any

from deltaworks import DeltaworksError, Plan
from tests.conformance.cuts import Cut, Trace, forgets, is_read, random_restarts, topic_partitions
from tests.conformance.data import without_expectations
from tests.conformance.hosts import Host, Observed, Run
from tests.conformance.inputs import errors_of
from tests.conformance.per_key import Case, PerKey, cached, expected_on_hosts, observed_per_key
from tests.conformance.run import plan_of
from tests.conformance.values import shown


class CaseInMicroBatches:
    """A case for hosts; made once for several cuts."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._plain = without_expectations(case)
        self._peeked: list[dict[str, Any]] = []
        self.plan: Plan | None = None
        try:
            self.plan = plan_of(self._plain, self._peek, object)
        except (DeltaworksError, ValueError):
            return

    @cached_property
    def trace(self) -> Trace:
        """What its stages read; it says which cuts have the recorded results."""
        assert self.plan is not None
        return Trace(self._plain, self.plan)

    @cached_property
    def _expected(self) -> PerKey:
        return expected_on_hosts(self.case)

    @property
    def not_comparable(self) -> str | None:
        """Why a host cannot give the recorded results; None: it can."""
        if self.plan is None:
            return "there is no topology"
        if any(not is_read(self.plan, given["topic"]) for given in self.case["inputs"] if "topic" in given):
            return "nobody reads one of its topics"
        processors = {node["processor"][0] for node in self.case["spec"]["nodes"] if "processor" in node}
        if "metadata" in processors and any(stage.exchanges_in for stage in self.plan.stages):
            return "it shows offsets behind an exchange"
        subtractors = {node["subtractor"][0] for node in self.case["spec"]["nodes"] if "subtractor" in node}
        if cached(self.case) and len(self.plan.stages) > 2 and "append_text" in subtractors:
            return "it keeps a trace of each update that a cache behind an exchange forwards"
        return None

    def run(self, cut: Cut, rng: Random) -> Run:
        """What a host is to run: a cut, with random restarts."""
        assert self.plan is not None
        self._peeked.clear()
        return Run(
            plan=self.plan,
            topic_partitions=topic_partitions(self._plain, self.plan),
            batches=cut.batches,
            errors=errors_of(self._plain),
            dead_letter_topic=self.case.get("config", {}).get("dlq_topic"),
            restarts=random_restarts(self._plain, rng),
            fed_back=cut.fed_back,
            forgets=forgets(self._plain),
            peeked=self._peeked,
        )

    def differences(self, host: Host, cut: Cut, rng: Random) -> list[str]:
        """What is not as expected when a host runs a cut with random restarts; empty if all is."""
        assert self.plan is not None
        return self.compare(cut, host(self.run(cut, rng)))

    def compare(self, cut: Cut, found: Observed) -> list[str]:
        """What is not as expected of what a host observed."""
        assert self.plan is not None
        observed = self._comparable(observed_per_key(self.case, self.plan, cut, found))
        expected = self._comparable(self._expected)
        if "stores" in expected:
            got = observed.get("stores", {})
            hidden = {store.name for stage in self.plan.global_stages for store in stage.stores} - got.keys()
            expected["stores"] = {name: rows for name, rows in expected["stores"].items() if name not in hidden}
            observed["stores"] = {name: got.get(name, []) for name in expected["stores"]}
        return [
            f"{field}:\n  expected {json.dumps(wanted)}\n  observed {json.dumps(observed[field])}"
            for field, wanted in expected.items()
            if field in observed and observed[field] != wanted
        ]

    def _comparable(self, found: PerKey) -> PerKey:
        """The driver commits after each record, also behind an exchange, so a cache forwards more there."""
        assert self.plan is not None
        if cached(self.case) and len(self.plan.stages) > 1:
            outputs = found["outputs"].items()
            last = {topic: {key: records[-1:] for key, records in keys.items()} for topic, keys in outputs}
            return found | {"outputs": last}
        return found | {}

    def _peek(self, node: str, key: Any, value: Any) -> None:
        self._peeked.append({"node": node, "key": shown(key), "value": value})


def differences_on(host: Host, case: Case, *, cuts: int) -> list[str]:
    """What is not as expected in so many random cuts, the same ones at each call; only the first that differs.

    The second of them has each input in a batch of its own. A case that is not comparable has no differences.
    """
    given = CaseInMicroBatches(case)
    if given.not_comparable:
        return []
    rng = Random(case["name"])
    for number in range(cuts):
        cut = given.trace.single() if number == 1 else given.trace.random_cut(rng)
        if found := given.differences(host, cut, rng):
            return [f"cut {number}: {each}" for each in found]
    return []
