"""How large records are thought to be."""

from __future__ import annotations

from deltaworks.runtime.batches.sizes import RecordSizes


def test_an_estimate_has_a_quarter_for_growth() -> None:
    sizes = RecordSizes()
    sizes.read("a", 100, 80_000)

    assert sizes.estimates == {"a": 1_000.0}


def test_growth_counts_at_once_and_shrinking_slowly() -> None:
    sizes = RecordSizes({"a": 1_000.0})

    sizes.read("a", 10, 80_000)
    assert sizes.estimates == {"a": 10_000.0}
    sizes.read("a", 10, 8_000)
    assert sizes.estimates == {"a": 8_200.0}
    for _ in range(50):
        sizes.read("a", 10, 8_000)
    assert 1_000.0 <= sizes.estimates["a"] < 1_001.0


def test_a_batch_without_records_says_nothing_and_empty_records_are_not_free() -> None:
    sizes = RecordSizes()
    sizes.read("a", 0, 0)
    assert sizes.estimates == {}

    sizes.read("a", 1_000, 0)
    assert sizes.estimates == {"a": 80.0}


def test_estimates_go_on_over_planners() -> None:
    first = RecordSizes()
    first.read("a", 1, 800)

    assert RecordSizes(first.estimates).estimates == {"a": 1_000.0}
