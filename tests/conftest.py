"""What all tests share: one real stack, whose components are started only if a test asks for them."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack.lifecycle import down
from tests.support.in_memory import memory
from tests.support.live_stack import LiveStack, reachable
from tests.support.thorough import Costs

_NEED_AIRFLOW = ("tests/integration", "tests/system/healing")
_NEED_KAFKA = ("tests/spark", "tests/system/kills", "tests/system/recovery", "tests/system/soak")
"""Folders whose tests start components."""
_WITHOUT = {
    "tests/integration/test_connect.py",
    "tests/integration/test_object_store.py",
    "tests/integration/test_schema_registry.py",
    "tests/integration/test_sql_server.py",
    "tests/system/recovery/test_forgetful_broker.py",
    "tests/system/soak/test_choices.py",
    "tests/system/soak/test_faulty_disk.py",
    "tests/system/soak/test_models.py",
}
"""Files in them whose tests start none, or components of their own."""
_STACK: pytest.StashKey[LiveStack] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Whoever ends pytest politely gets the fixtures torn down, as after Ctrl-C."""
    config.pluginmanager.register(Costs(config))
    if (place := memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))  # those of all processes
        os.environ.setdefault("TMPDIR", str(place))  # a third of some tests was waiting for fsync
        tempfile.tempdir = None  # read again
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):  # one of several processes: PySpark would take it for its doctests, and end it
        main.__file__ = __file__

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Each process takes a file at a time; the tests that need the stack are two parts, each with one stack.

    Those take longest, so the processes begin with them.
    """

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return _stack_of(nodeid) or nodeid.partition("::")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of several what takes long comes first, so that none waits for another at the end; alone, last."""
    if hasattr(config, "workerinput"):
        files = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
        items.sort(key=lambda item: (_stack_of(item.nodeid) or "~", -files[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """In a process of several the stack ends after the last test that needs it: Airflow is not idle when it idles."""
    yield  # fixtures need it to clean up
    stack = item.config.stash.get(_STACK, None)
    if stack is None or nextitem is None or not hasattr(item.config, "workerinput"):
        return
    if _stack_of(item.nodeid) is not None and _stack_of(nextitem.nodeid) is None:
        down(stack.settings)


def _stack_of(nodeid: str) -> str | None:
    """Which part of the tests that need the stack it belongs to."""
    file = Path(nodeid.partition("::")[0])
    if file.as_posix() in _WITHOUT:
        return None
    if any(file.is_relative_to(folder) for folder in _NEED_AIRFLOW):
        return "Airflow"
    return "Kafka" if any(file.is_relative_to(folder) for folder in _NEED_KAFKA) else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    """In the place of `--dist`."""
    return FileByFile(config, log)


@pytest.fixture(scope="session")
def live_stack(pytestconfig: pytest.Config) -> Iterator[LiveStack]:
    """Nothing runs yet. What is started ends with pytest, even when pytest is killed."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as home:
        stack = pytestconfig.stash[_STACK] = LiveStack(own_settings(reachable(Path(home))))
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
