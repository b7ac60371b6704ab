"""Variations of the recorded cases: other inputs, other settings, more operators. The same seed makes the same ones.

A variation has no `expected`: what happens in it is asked of the real Kafka Streams, or of a host that is trusted.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator
from random import Random

from tests.conformance.data import Case, curated, random
from tests.conformance.oracle import beside, continued, inserted, settings
from tests.conformance.oracle.inputs import Feed, inputs

_UNTOUCHED = ("store_script", "errors")
"""Families that are about something else than caches."""


def variations(seed: int, families: Collection[str] = ()) -> Iterator[Case]:
    """Without end; of the families whose name contains one of `families`, or of all."""
    chance = Random(seed)
    bases = [case for case in [*curated(), *random()] if _is_in(case["family"], families) and _topics(case)]
    if not bases:
        raise ValueError(f"no family is called like {', '.join(families)}")
    by_family: dict[str, list[Case]] = {}
    for base in bases:
        by_family.setdefault(base["family"], []).append(base)
    number = 0
    while True:
        # A family that few cases were recorded of is no less interesting.
        base, other = (chance.choice(by_family[chance.choice(sorted(by_family))]) for _ in range(2))
        case = variation(base, other, chance)
        yield case | {"name": f"{base['name']}_{seed}_{number}", "family": base["family"]}
        number += 1


def variation(base: Case, other: Case, chance: Random) -> Case:
    """One of a case; another one is sometimes put beside it."""
    case: Case = copy.deepcopy({field: base[field] for field in ("name", "spec", "config")})
    spec, config, bases = case["spec"], case["config"], [base]
    if _is_dsl(base) and _is_dsl(other) and chance.random() < 0.15:
        beside.place_beside(spec, other["spec"], chance)
        bases.append(other)
    settings.vary_numbers(spec, chance)
    if not case["name"].startswith(_UNTOUCHED):
        settings.vary_caches(spec, config, chance)
    if spec.get("api") != "processor":
        settings.vary_stores_and_names(spec, chance)
        settings.vary_results(spec, chance)
        for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
            inserted.insert_operator(spec, chance, may_fail=config.get("processing_handler") == "continue")
        if chance.random() < 0.35:
            continued.continue_after_last(spec, chance)
        # The original moves exchanges past processors that may change the key; ours does not.
        if chance.random() < 0.08 and not any(node["op"] == "process" for node in spec["nodes"]):
            config["optimize"] = not config.get("optimize", False)
        if chance.random() < 0.05:
            config["emit_interval_ms"] = chance.choice([0, 5, 20])
    case["inputs"] = inputs(_feed(bases, case), chance)
    return case


def _is_dsl(case: Case) -> bool:
    scripts = [node for node in case["spec"]["nodes"] if node.get("processor", [None])[0] == "store_script"]
    return case["spec"].get("api") != "processor" and not scripts


def _is_in(family: str, wanted: Collection[str]) -> bool:
    return not wanted or any(each in family for each in wanted)


def _feed(bases: list[Case], case: Case) -> Feed:
    topics = [topic for base in bases for topic in _topics(base)]
    types = {
        topic: node["value_type"]
        for node in case["spec"]["nodes"]
        if "value_type" in node
        for topic in node.get("topics") or _matching(node, topics)
    }
    stores = {store["name"]: store["type"] for store in case["spec"].get("stores", ())}
    scripts = [
        node["processor"][1]["store"]
        for node in case["spec"]["nodes"]
        if node.get("processor", [None])[0] == "store_script"
    ]
    steps = [step for base in bases for step in base["inputs"]]
    return Feed(
        topics=types,
        trees=[step["value"] for step in steps if isinstance(step.get("value"), dict | list)],
        raw_values=[step["raw_value"] for step in steps if "raw_value" in step],
        advances_clock="emit_interval_ms" in case["config"] or any("advance_wall_clock_ms" in step for step in steps),
        store_type=stores[scripts[0]] if scripts else None,
    )


def _topics(case: Case) -> list[str]:
    return sorted({step["topic"] for step in case["inputs"] if "topic" in step})


def _matching(source: Case, topics: list[str]) -> list[str]:
    if "topic" in source:
        return [source["topic"]]
    return [topic for topic in topics if re.fullmatch(source["topic_pattern"], topic)]
