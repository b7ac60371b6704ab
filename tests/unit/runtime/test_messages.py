"""What rows between driver and tasks carry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltaworks.runtime.messages import Told, packed, unpacked

NAMES = st.text(max_size=9)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.binary(max_size=200))))
def test_what_a_task_is_told_is_what_the_driver_has(told: Told) -> None:
    assert unpacked(packed(told)) == told


def test_names_of_pages_take_less_than_they_have() -> None:
    told = {"t": {"pages": b"".join(b"window_date=2024-05-%02d/page-t0003-%d" % (n % 28, n) for n in range(1000))}}

    assert len(packed(told)) * 4 < len(told["t"]["pages"])
