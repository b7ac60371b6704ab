"""A layer above a store shows what the store would hold if the changes were made there."""

from __future__ import annotations

import random

import pytest

from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.overlay import OverlayReader

KEYS = [bytes([first]) * size for first in b"abcx" for size in (0, 1, 2)]
TIMES_MS = range(8)


def random_changes(rng: random.Random, bound_ms: int) -> StoreChanges:
    entries = [
        (
            rng.choice(KEYS) + rng.choice(TIMES_MS).to_bytes(8, "big"),
            rng.choice([None, b"v", b"%d" % rng.randrange(99)]),
        )
        for _ in range(rng.randrange(12))
    ]
    return StoreChanges([*dict(entries).items()], bound_ms if rng.random() < 0.3 else None)


@pytest.mark.parametrize("seed", range(60))
def test_any_changes_show_as_if_they_were_made_below(seed: int) -> None:
    rng = random.Random(seed)
    below, model = MemoryState(), MemoryState()
    for _ in range(rng.randrange(4)):
        changes = {"s": random_changes(rng, 2)}
        below.apply(changes)
        model.apply(changes)
    before = list(below.reader("s").scan(b"", None))
    layer, expected = OverlayReader(below.reader("s")), model.reader("s")
    for bound_ms in range(6):
        change = random_changes(rng, bound_ms)
        layer.apply(change)
        model.apply({"s": change})
        assert list(layer.scan(b"", None)) == list(expected.scan(b"", None))
        for _ in range(10):
            key = rng.choice(KEYS) + rng.choice(TIMES_MS).to_bytes(8, "big")
            start, stop = rng.choice(KEYS), rng.choice([*KEYS, None])
            assert layer.get(key) == expected.get(key)
            assert list(layer.scan(start, stop)) == list(expected.scan(start, stop))
            first, last = rng.choice(TIMES_MS), rng.choice([*TIMES_MS, None])
            assert list(layer.scan_time(first, last)) == list(expected.scan_time(first, last))
    assert list(below.reader("s").scan(b"", None)) == before
