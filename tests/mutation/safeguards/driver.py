"""Mutations of the driver: heartbeats, commands, the fence, a disk without room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.mutation.mutation import Hole, Mutation, Patch, Stall, nothing

_DAMAGED = "tests/unit/control/test_damaged.py"


def _silent_while_busy(patch: Patch) -> None:
    from deltaworks.control.beating import Beating

    @contextmanager
    def during(self: Any, what: str, *, at_most_s: float = 0.0) -> Iterator[None]:
        yield

    patch(Beating, "during", during)


def _torn_command_raises(patch: Patch) -> None:
    from deltaworks.control import commands

    def read(folder: Path, path: Path) -> commands.Command:
        return msgspec.json.decode(path.read_bytes(), type=commands.Command)

    patch(commands, "_read", read)


def _torn_files_raise(patch: Patch) -> None:
    from deltaworks.control import damaged

    def read_json(path: Path, kind: type[Any]) -> Any:
        return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None

    patch(damaged, "read_json", read_json)


def _full_disk_not_told(patch: Patch) -> None:
    from deltaworks import disk

    patch(disk, "as_error", nothing)
    patch(disk, "spark_error", nothing)


def _generation_not_compared(patch: Patch) -> None:
    from deltaworks.control import fence

    patch(fence, "check", nothing)


MUTATIONS: dict[str, Mutation] = {
    "generation of a driver not compared": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _generation_not_compared,
        ("tests/unit/control/test_fence.py::test_a_newer_generation_shuts_out_the_older",),
    ),
    "no heartbeat while a driver is busy": Mutation(
        Stall.HEARTBEAT,
        _silent_while_busy,
        ("tests/unit/control/test_beating.py::test_a_block_that_lasts_beats_on",),
    ),
    "a torn command ends the stream": Mutation(
        Stall.TORN_COMMAND,
        _torn_command_raises,
        (f"{_DAMAGED}::test_a_command_that_cannot_be_read_is_answered_and_keeps_nobody",),
    ),
    "a torn heartbeat or outcome ends who reads it": Mutation(
        Stall.TORN_COMMAND, _torn_files_raise, (f"{_DAMAGED}::test_an_outcome_that_cannot_be_read_says_nothing",)
    ),
    "a full disk not told apart": Mutation(
        Stall.DISK_FULL,
        _full_disk_not_told,
        (
            "tests/unit/test_disk.py::test_whoever_finds_no_room_says_so_in_one_way",
            "tests/unit/spark/test_failures.py::test_a_disk_without_room_is_told_whoever_wrote",
        ),
    ),
}
