"""Mutation testing of our own code: a mutation breaks one thing, and tests must turn red.

- `safeguards/`: each mutation takes one safeguard of the product away. It names the tests that must turn red;
  `test_safeguards.py` proves that they do, in a process of their own. `python -m tests.mutation [NAME ...]` prints the
  reasons. The same mutation can be applied to all processes of a stream that is killed (`stream_under_kills`) or
  soaked (`python -m tests.system.soak --mutation NAME`). Only some mutations show there, where chance brings what the
  safeguard is against.
- `test_kernel.py`: mutations of the kernel's text, which the properties of `tests/properties` must find.
- `members`: a mutation of one public member. `tests/coverage_table` requires of every proof that it fails with it.

Defects in data are another thing: `tests/system/data_defects`.
"""

from __future__ import annotations

from tests.mutation.mutation import Breach, Hole, Mutation, Patch, Stall
from tests.mutation.safeguards import (
    checkpoint,
    connectors,
    driver,
    elsewhere,
    formats,
    kafka,
    monitoring,
    object_store,
    operators,
    planning,
    queries,
    recreated_topics,
    rescaling,
    sinks,
    stores,
    tables,
)

__all__ = ["MUTATIONS", "Breach", "Hole", "Mutation", "Patch", "Stall", "apply"]

_PARTS = (
    stores,
    tables,
    checkpoint,
    kafka,
    planning,
    queries,
    recreated_topics,
    rescaling,
    object_store,
    elsewhere,
    formats,
    driver,
    operators,
    connectors,
    monitoring,
    sinks,
)
MUTATIONS: dict[str, Mutation] = {name: mutation for part in _PARTS for name, mutation in part.MUTATIONS.items()}


def apply(name: str, patch: Patch = setattr) -> None:
    """Applies a mutation to this process; in a stream that is the driver, or a worker."""
    MUTATIONS[name].apply(patch)
