from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import BufferConfig, Suppressed


def test_a_bound_emits_early_unless_told_otherwise() -> None:
    assert BufferConfig.of_max_records(1).emits_early
    assert BufferConfig.of_max_bytes(1).emits_early
    assert not BufferConfig.of_max_bytes(1).shut_down_when_full().emits_early
    assert BufferConfig.unbounded().with_max_records(1).emit_early_when_full() == BufferConfig.of_max_records(1)
    assert BufferConfig.of_max_records(1).with_no_bound() == BufferConfig.unbounded()


def test_final_results_are_not_emitted_early() -> None:
    with pytest.raises(ValueError, match="until_window_closes cannot emit early"):
        Suppressed.until_window_closes(BufferConfig.of_max_records(10))


@pytest.mark.parametrize("limit", [timedelta(milliseconds=-1), timedelta(microseconds=1)])
def test_a_time_limit_is_whole_milliseconds_from_zero(limit: timedelta) -> None:
    with pytest.raises(ValueError, match="a time limit "):
        Suppressed.until_time_limit(limit, BufferConfig.unbounded())


def test_a_bound_is_not_negative() -> None:
    with pytest.raises(ValueError, match="a buffer cannot hold -1 bytes"):
        BufferConfig.of_max_bytes(-1)
