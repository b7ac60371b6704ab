"""Makes a case that shows something as small as it can be while it still shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from tests.conformance.data import Case


def reduced(case: Case, shows: Callable[[Case], bool]) -> Case:
    """Leaves out inputs, settings and operators, each as long as the rest still shows it."""
    case = _with_few_inputs(case, shows)
    while (smaller := next(filter(shows, _smaller(case)), None)) is not None:
        case = smaller
    return _with_few_inputs(case, shows)


def _with_few_inputs(case: Case, shows: Callable[[Case], bool]) -> Case:
    """Leaves out halves, then quarters, down to single inputs."""
    size = max(1, len(case["inputs"]) // 2)
    while True:
        at = 0
        before = len(case["inputs"])
        while at < len(case["inputs"]):
            inputs = case["inputs"]
            fewer = case | {"inputs": inputs[:at] + inputs[at + size :]}
            if shows(fewer):
                case = fewer
            else:
                at += size
        if size == 1 and len(case["inputs"]) == before:
            return case
        size = max(1, size // 2)


def _smaller(case: Case) -> Iterator[Case]:
    for setting in case["config"]:
        yield case | {"config": {name: value for name, value in case["config"].items() if name != setting}}
    for at, node in reversed(list(enumerate(case["spec"]["nodes"]))):
        fewer = copy.deepcopy(case)
        nodes = fewer["spec"]["nodes"]
        del nodes[at]
        if isinstance(node.get("in"), str):
            for reader in (each for each in nodes if "in" in each):
                reader["in"] = _instead(reader["in"], node.get("id"), node["in"])
        yield fewer
        for field in ("store", "name", "caching", "retention_ms", "emit", "max_records"):
            if field in node:
                plainer = copy.deepcopy(case)
                del plainer["spec"]["nodes"][at][field]
                yield plainer


def _instead(inputs: str | list[str], gone: str | None, other: str) -> str | list[str]:
    if isinstance(inputs, str):
        return other if inputs == gone else inputs
    return [other if each == gone else each for each in inputs]
