"""Recorded cases of every kind, streamed and then replayed: cycles, global tables, caches, windows, ticks."""

from __future__ import annotations

import pytest

from tests.conformance.data import curated
from tests.hosts.replayed_cases import cases, differing


def test_a_replayed_case_has_the_stores_of_the_stream_and_would_have_sent_the_same() -> None:
    chosen = cases(110)
    assert len({case["family"] for case in chosen}) > 15

    assert differing(chosen) == {}


@pytest.mark.parametrize("family", ["joins_fk", "joins_global"])
def test_cases_of_what_is_special_are_the_same(family: str) -> None:
    chosen = [case for case in curated() if case["family"] == family][::5]

    assert chosen
    assert differing(chosen) == {}
