"""A replay whose task chunks run on machines that share only an object store; some run twice, some are given up."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import DeadLetters, Pipeline, faults, object_path
from deltaworks.errors import StateError
from deltaworks.files import walk
from deltaworks.lakehouse.reading import delta_table
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.object_path import ObjectPath, connect
from deltaworks.runtime.replay.executors import InProcess
from deltaworks.runtime.replay.host import ReplayHost, read_progress
from deltaworks.runtime.replay.keeping import KeptState, bring
from deltaworks.runtime.replay.runner import ChunkRunner
from deltaworks.runtime.replay.task_chunks import ChunkResult, RunPaths, TaskChunk, Work
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import POINTS, replay_host, replayed_stores, steps_of, streamed_stores, tables_of
from tests.hosts.test_replay import in_cycles, streamed
from tests.spark.replaying import words
from tests.support import object_stores
from tests.support.fault_hooks import InjectedFault

MACHINES = 3


class Machines:
    """Runs each task chunk on a machine of its own choice; `twice` runs begin again elsewhere before they have ended."""

    def __init__(self, folder: Path, rng: random.Random, twice: float = 0.0) -> None:
        self._folders = [folder / f"machine-{number}" for number in range(MACHINES)]
        self._rng, self._twice = rng, twice
        self._runners: dict[tuple[int, Path], ChunkRunner] = {}
        self.raced = 0

    def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
        return [self._run(work, chunk) for chunk in chunks]

    def _run(self, work: Work, chunk: TaskChunk) -> ChunkResult:
        here, there = self._rng.sample(self._folders, 2)
        if self._rng.random() >= self._twice:
            return self._on(here, work, chunk)
        first: list[ChunkResult] = []

        def overtaken(point: str) -> None:
            if point == "replay.step" and not first:
                first.append(ChunkResult(writes=(), exchanges=(), sent={}, dropped=0, late=0, lost_results=0, dead_letters=0))
                with _armed(None):
                    first[0] = self._on(there, work, chunk)
                on(here, work)

        with _armed(overtaken):
            late = self._on(here, work, chunk)
        if first:
            self.raced += 1
            assert late == first[0], "the result of the first attempt counts"
        return late

    def _on(self, folder: Path, work: Work, chunk: TaskChunk) -> ChunkResult:
        with elsewhere():
            return ChunkRunner(on(folder, work)).run(chunk)


def on(folder: Path, work: Work) -> Work:
    """This process is on that machine."""
    return work.at(folder)


@contextmanager
def elsewhere() -> Iterator[None]:
    """What the block says of stores is forgotten at its end."""
    before = dict(object_path._known)
    try:
        yield
    finally:
        object_path._known.clear()
        object_path._known.update(before)


@contextmanager
def _armed(hook: Any) -> Iterator[None]:
    before = faults._hook
    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(before)
