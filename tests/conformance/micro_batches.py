"""A case on a host, in random micro-batches with random restarts, compared with what Kafka Streams did."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from deltaworks import DeltaworksError, Plan
from tests.conformance.cuts import Cut, Trace, random_restarts, topic_partitions
from tests.conformance.data import without_expectations
from tests.conformance.hosts import Host, Run
from tests.conformance.inputs import errors_of
from tests.conformance.per_key import Case, PerKey, expected_on_hosts, observed_per_key
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
        self.trace = Trace(self._plain, self.plan)
        self._expected = expected_on_hosts(case)

    @property
    def not_comparable(self) -> str | None:
        """Why a host cannot give the recorded results; None: it can."""
        if self.plan is None:
            return "there is no topology"
        if any(not self.trace.reads(given["topic"]) for given in self.case["inputs"] if "topic" in given):
            return "nobody reads one of its topics"
        processors = {node["processor"][0] for node in self.case["spec"]["nodes"] if "processor" in node}
        if "metadata" in processors and any(stage.hops_in for stage in self.plan.stages):
            return "it shows offsets behind a hop"
        return None

    def differences(self, host: Host, cut: Cut, rng: Random) -> list[str]:
        """What is not as expected when a host runs a cut with random restarts; empty if all is."""
        assert self.plan is not None
        run = Run(
            plan=self.plan,
            topic_partitions=topic_partitions(self._plain, self.plan),
            batches=cut.batches,
            errors=errors_of(self._plain),
            dead_letter_topic=self.case.get("config", {}).get("dlq_topic"),
            restarts=random_restarts(self._plain, rng),
            peeked=self._peeked,
        )
        observed = self._comparable(observed_per_key(self.case, self.plan, cut, host(run)))
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
        """The driver commits after each record, those of hops too, so behind a hop a cache forwards more there."""
        assert self.plan is not None
        if self.case.get("config", {}).get("cache_max_bytes", 0) > 0 and len(self.plan.stages) > 1:
            outputs = found["outputs"].items()
            last = {topic: {key: records[-1:] for key, records in keys.items()} for topic, keys in outputs}
            return found | {"outputs": last}
        return found | {}

    def _peek(self, node: str, key: Any, value: Any) -> None:
        self._peeked.append({"node": node, "key": shown(key), "value": value})
