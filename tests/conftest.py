"""What all tests share: one real stack, whose components are started only if a test asks for them."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from deltaworks.stack.lifecycle import down
from tests.live_stack import LiveStack, own_settings, reachable

_STACK = {"spark", "integration", "faults", "recovery"}
"""Folders whose tests start components."""
_WITHOUT = {
    "test_breakages.py",
    "test_faulty_disk.py",
    "test_forgetful_broker.py",
    "test_soak_choices.py",
    "test_soak_models.py",
}
"""Files in them whose tests do not, or components of their own."""


def pytest_configure() -> None:
    """Whoever ends pytest politely gets the fixtures torn down, as after Ctrl-C."""
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):  # one of several processes: PySpark would take it for its doctests, and end it
        main.__file__ = __file__

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Each process takes a file at a time; all tests that need the stack are one, so that there is one stack.

    Those take longest, so one process begins with them, and the others do the rest meanwhile.
    """

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return "stack" if _needs_the_stack(nodeid) else nodeid.partition("::")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of several, what needs the stack comes first; alone, the cheapest first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not _needs_the_stack(item.nodeid))


def _needs_the_stack(nodeid: str) -> bool:
    parts = Path(nodeid.partition("::")[0]).parts
    return parts[1] in _STACK and parts[-1] not in _WITHOUT


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    """In the place of `--dist`."""
    return FileByFile(config, log)


@pytest.fixture(scope="session")
def live_stack() -> Iterator[LiveStack]:
    """Nothing runs yet. What is started ends with pytest, even when pytest is killed."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as home:
        stack = LiveStack(own_settings(reachable(Path(home))))
        try:
            yield stack
        finally:
            down(stack.settings)


@pytest.fixture(scope="session")
def kafka(live_stack: LiveStack) -> LiveStack:
    """A real broker."""
    live_stack.start("kafka")
    return live_stack


@pytest.fixture(scope="session")
def postgres(live_stack: LiveStack) -> LiveStack:
    """A real PostgreSQL, with the tables of the registry."""
    live_stack.start("postgres")
    return live_stack


@pytest.fixture(scope="session")
def platform(live_stack: LiveStack) -> LiveStack:
    """Kafka, PostgreSQL and Airflow."""
    live_stack.start()
    return live_stack
