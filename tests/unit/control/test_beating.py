"""Heartbeats go on while a driver is busy with something long, and stop if that hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from deltaworks import clock
from deltaworks.control.beating import Beating
from deltaworks.errors import FencedError

EVERY_S = 0.005


class Beats:
    """Counts, and fails when told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        if self.error is not None:
            raise self.error

    def reaches(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout=20)


def logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in message for message in caplog.messages)


def until(fact: Callable[[], bool]) -> None:
    end, pause = clock.ticks_s() + 20, threading.Event()
    while not fact():
        assert clock.ticks_s() < end
        pause.wait(0.002)


def test_a_block_that_lasts_beats_on() -> None:
    beats = Beats()
    with Beating(beats, every_s=EVERY_S) as beating, beating.during("publishing"):
        assert beats.reaches(3)


def test_nobody_beats_for_a_loop_that_hangs() -> None:
    beats, rounds = Beats(), 0

    class Ticking(threading.Event):
        """Each wait is one round of the thread."""

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal rounds
            rounds += 1
            return super().wait(timeout)

    beating = Beating(beats, every_s=EVERY_S)
    beating._end = Ticking()
    with beating:
        with beating.during("publishing"):
            assert beats.reaches(1)
        counted = beats.count
        rounds = 0
        until(lambda: rounds > 5)

    assert beats.count <= counted + 1, "at most the beat that was under way"


def test_a_block_that_hangs_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats()
    with Beating(beats, every_s=EVERY_S) as beating, beating.during("publishing run-1", at_most_s=EVERY_S * 4):
        until(logged(caplog, "publishing run-1 has lasted for"))
        counted = beats.count
    assert beats.count == counted
    assert len(caplog.records) == 1


def test_a_generation_that_was_replaced_meanwhile_ends_after_the_block() -> None:
    beats = Beats()
    beats.error = FencedError("generation 2 has taken over")
    done = False
    with Beating(beats, every_s=EVERY_S) as beating, pytest.raises(FencedError), beating.during("publishing"):
        assert beats.reaches(1)
        until(lambda: beating._fenced is not None)
        done = True
    assert done


def test_a_beat_that_cannot_be_written_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats()
    beats.error = OSError(28, "No space left on device")
    with caplog.at_level(logging.WARNING), Beating(beats, every_s=EVERY_S) as beating, beating.during("a snapshot"):
        assert beats.reaches(3)
        beats.error = None
        assert beats.reaches(5)

    assert caplog.messages == ["no heartbeat during a snapshot: [Errno 28] No space left on device"]


def test_an_error_of_the_block_is_the_one_that_is_told() -> None:
    beats = Beats()
    beats.error = FencedError("generation 2 has taken over")
    with (
        Beating(beats, every_s=EVERY_S) as beating,
        pytest.raises(ValueError, match="broken"),
        beating.during("publishing"),
    ):
        assert beats.reaches(1)
        raise ValueError("broken")
