"""Tests without an engine: the same kernel as in production, in one process, in milliseconds.

`TopologyTestDriver` feeds records one by one; `recorded` runs micro-batches as a host recorded them, on many tasks.
"""

from typing import TYPE_CHECKING, Any

from deltaworks.kernel.context import TaskMetrics
from deltaworks.kernel.records import DeadLetter
from deltaworks.testing.driver import TopologyTestDriver
from deltaworks.testing.memory_tables import AppendTable, KeyedTable, WindowTable
from deltaworks.testing.stores import (
    TestKeyValueStore,
    TestSessionStore,
    TestVersionedStore,
    TestWindowStore,
)
from deltaworks.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = [
    "AppendTable",
    "DeadLetter",
    "KeyedTable",
    "TaskMetrics",
    "TestInputTopic",
    "TestKeyValueStore",
    "TestOutputTopic",
    "TestRecord",
    "TestSessionStore",
    "TestVersionedStore",
    "TestWindowStore",
    "TopologyTestDriver",
    "WindowTable",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if not name[:1].isupper():  # perhaps a module: Python asks here first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from deltaworks.dsl.kafka_names import missing

        raise missing(name, "deltaworks.testing")
