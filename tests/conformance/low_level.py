"""From a low-level topology (SPEC section 4) to one of ours, with `deltaworks.Topology`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import deltaworks as dw
from tests.conformance import processors
from tests.conformance.values import Keys, Typed


def low_level_plan(case: Mapping[str, Any], kept: type) -> dw.Plan:
    """The plan of a case whose `api` is `processor`."""
    topology, key, value = dw.Topology(case["name"]), Keys(), Typed(kept=kept)
    for node in case["spec"]["nodes"]:
        parents = [node["in"]] if isinstance(node.get("in"), str) else node.get("in", [])
        match node["op"]:
            case "source":
                topics = node.get("topics") or [node["topic"]]
                topology.add_source(node["id"], *topics, key=key, value=Typed(node["value_type"], kept))
            case "processor":
                topology.add_processor(node["id"], processors.supplier(node["processor"]), *parents)
            case "sink":
                topology.add_sink(node["id"], node["topic"], *parents, key=key, value=value)
            case operator:
                raise ValueError(f"unknown operator {operator}")
    for store in case["spec"].get("stores", ()):
        topology.add_state_store(processors.store_builder(store, key, value), *store["processors"])
    return topology.build()
