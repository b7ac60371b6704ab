"""The recorded cases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent
GENERATED = _DATA / "generated.jsonl.gz"

Case = dict[str, Any]


def curated() -> Iterator[Case]:
    for path in sorted((_DATA / "cases").glob("*.json")):
        family = json.loads(path.read_text())
        for case in family["cases"]:
            yield case | {"family": family["family"]}


def random() -> Iterator[Case]:
    with gzip.open(_DATA / "random.jsonl.gz", "rt") as lines:
        for line in lines:
            case = json.loads(line)
            yield case | {"family": f"random {case['name'].rpartition('_')[0]}"}


def generated() -> Iterator[Case]:
    """Variations that `tests.conformance.oracle` made, with what the real library did in them."""
    with gzip.open(GENERATED, "rt") as lines:
        for line in lines:
            case = json.loads(line)
            yield case | {"family": f"generated {case['family'].removeprefix('random ')}"}


def once_different() -> Iterator[Case]:
    """Variations in which ours differed once, made small."""
    for line in (_DATA / "once_different.jsonl").read_text().splitlines():
        yield json.loads(line) | {"family": "once different"}


def without_expectations(case: Case) -> Case:
    return {field: value for field, value in case.items() if field not in ("expected", "family")}


def described(case: Case) -> bool:
    """The real library's description was recorded."""
    return "describe" in case["expected"]
