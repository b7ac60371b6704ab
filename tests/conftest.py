"""What all tests share: the real stack, started once and only if a test asks for it."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from deltaworks.stack.lifecycle import down, up
from tests.live_stack import LiveStack, own_settings


def pytest_configure() -> None:
    """Whoever ends pytest politely gets the fixtures torn down, as after Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@pytest.fixture(scope="session")
def kafka() -> Iterator[LiveStack]:
    """A real broker; it ends with pytest, even when pytest is killed."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as home:
        stack = LiveStack(own_settings(Path(home)))
        up(stack.settings, only=("kafka",), tethered=True)
        try:
            yield stack
        finally:
            down(stack.settings)
