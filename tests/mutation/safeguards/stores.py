"""Mutations of what tasks keep: cycles, local stores and their versions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltaworks.files import lock
from tests.mutation.mutation import Hole, Mutation, Patch, Stall, nothing

_CIRCLES = "tests/hosts/test_cycles.py"
_HOSTS = "tests/hosts/test_local_stores.py"
_REBUILD = "tests/unit/runtime/state/test_rebuild.py"
_FILES = "tests/unit/runtime/state/test_local_files.py"


def _members_one_by_one(patch: Patch) -> None:
    from deltaworks.runtime import shard

    keep = shard._TaskRun.keep
    write = shard._TaskRun.write

    def write_and_keep(self: Any) -> None:
        write(self)
        keep(self)
        with self._hosted.local.transaction() as transaction:  # as if the next turn were not in this batch
            transaction.apply(self._hosted.pending.changes)
            transaction.commit(self._header.version)

    patch(shard._TaskRun, "write", write_and_keep)
    patch(shard._TaskRun, "keep", nothing)


def _local_store_written_at_once(patch: Patch) -> None:
    from deltaworks.runtime import shard

    original = shard._TaskRun.turn

    def turn(self: Any, inputs: Any, *, last: bool) -> Any:
        sent = original(self, inputs, last=last)
        with self._hosted.local.transaction() as transaction:
            transaction.apply(self._changes[-1])
            transaction.commit(self._header.version)
        return sent

    patch(shard._TaskRun, "turn", turn)


def _nonce_not_compared(patch: Patch) -> None:
    from deltaworks.runtime.state import recovery

    patch(recovery, "same_version", lambda local, committed: local.number == committed.number)


def _version_not_compared(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store, recovery

    patch(recovery, "same_version", lambda local, committed: local != local_store.EMPTY)


def _version_not_required(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store

    patch(local_store, "_require", nothing)


def _boot_ignored(patch: Patch) -> None:
    from deltaworks.runtime.state import local_files

    patch(local_files, "same_boot", lambda found, now: True)


def _size_not_checked(patch: Patch) -> None:
    from deltaworks.runtime.state import local_files

    patch(local_files, "require_whole", nothing)


def _checksum_not_compared(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store

    patch(local_store, "crc32", lambda *data: local_store._INTACT)


def _damage_forgotten(patch: Patch) -> None:
    from deltaworks.runtime.state import local_files

    patch(local_files, "distrust", nothing)


def _no_store_is_recreated(patch: Patch) -> None:
    from deltaworks.runtime.state.local_store import LocalStore

    def copy(path: Path, timed: Mapping[str, bool]) -> LocalStore:
        return LocalStore(path, timed)

    patch(LocalStore, "copy", staticmethod(copy))


def _third_attempt_as_the_others(patch: Patch) -> None:
    from deltaworks.runtime import shard

    patch(shard, "_DISTRUST_FROM", 1 << 30)


def _writers_wait_for_ever(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store

    patch(local_store, "lock", lambda file, *, patience_s: lock(file, patience_s=math.inf))


def _half_a_rebuild_is_a_state(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store

    patch(local_store, "UNFINISHED", local_store.EMPTY)


def _progress_not_seen(patch: Patch) -> None:
    from deltaworks.runtime.state import local_store

    patch(local_store, "_progress", lambda writer: 0)


def _one_lock_for_all_generations(patch: Patch) -> None:
    from deltaworks.runtime import global_tables

    patch(global_tables, "_lock", lambda root, generation: root / "global-0.lock")


MUTATIONS: dict[str, Mutation] = {
    "cycle commits members one by one": Mutation(
        Hole.CIRCLE,
        _members_one_by_one,
        (f"{_CIRCLES}::test_whichever_member_cannot_commit_every_order_counts_once[None-{{2}}]",),
    ),
    "local store written before the batch is committed": Mutation(
        Hole.CIRCLE,
        _local_store_written_at_once,
        (
            f"{_CIRCLES}::test_whichever_member_cannot_commit_every_order_counts_once[None-{{2}}]",
            f"{_HOSTS}::test_an_attempt_that_fails_has_never_been_on_the_disk",
        ),
    ),
    "nonce not compared": Mutation(
        Hole.LOCAL_STORE,
        _nonce_not_compared,
        ("tests/unit/runtime/state/test_recovery.py::test_an_equal_version_with_another_nonce_is_not_trusted",),
    ),
    "version of a local store not compared": Mutation(
        Hole.LOCAL_STORE,
        _version_not_compared,
        ("tests/unit/runtime/state/test_recovery.py::test_an_equal_version_with_another_nonce_is_not_trusted",),
    ),
    "boot id ignored": Mutation(
        Hole.LOCAL_STORE,
        _boot_ignored,
        (
            f"{_FILES}::test_after_a_crash_of_the_machine_no_page_is_believed",
            f"{_FILES}::test_a_store_of_another_boot_or_format_is_refused_and_a_copy_recreated",
        ),
    ),
    "checksum of a local store not compared": Mutation(
        Hole.LOCAL_STORE,
        _checksum_not_compared,
        (f"{_FILES}::test_a_value_that_is_another_one_is_found_by_its_checksum",),
    ),
    "size of a local store not checked": Mutation(
        Hole.LOCAL_STORE, _size_not_checked, (f"{_FILES}::test_a_damaged_file_is_filled_again[half]",)
    ),
    "version not compared when a store is written": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _version_not_required,
        ("tests/unit/runtime/state/test_local_store.py::test_a_late_writer_changes_nothing",),
    ),
    "half a rebuild taken for a state": Mutation(
        Hole.LOCAL_STORE,
        _half_a_rebuild_is_a_state,
        (f"{_REBUILD}::test_a_rebuild_that_failed_is_not_taken_for_the_state_of_a_task_that_has_never_run",),
    ),
    "progress of a rebuild not seen": Mutation(
        Stall.SUSPENDED_WRITER,
        _progress_not_seen,
        (f"{_REBUILD}::test_two_processes_never_rebuild_one_store_at_once",),
    ),
    "damage of a local store forgotten": Mutation(
        Stall.CORRUPT_STORE,
        _damage_forgotten,
        (f"{_FILES}::test_a_value_that_is_another_one_is_found_by_its_checksum",),
    ),
    "a writer waited for as long as it takes": Mutation(
        Stall.SUSPENDED_WRITER,
        _writers_wait_for_ever,
        ("tests/unit/runtime/state/test_local_store.py::test_a_writer_that_is_suspended_stops_nobody_for_ever",),
    ),
    "global tables wait for all generations": Mutation(
        Stall.SUSPENDED_WRITER,
        _one_lock_for_all_generations,
        ("tests/hosts/test_in_process.py::test_a_global_table_does_not_wait_for_an_older_generation",),
    ),
    "a local store is never rebuilt": Mutation(
        Stall.CORRUPT_STORE,
        _no_store_is_recreated,
        (f"{_FILES}::test_a_store_of_another_boot_or_format_is_refused_and_a_copy_recreated",),
    ),
    "the third attempt begins as the others": Mutation(
        Stall.CORRUPT_STORE,
        _third_attempt_as_the_others,
        (f"{_HOSTS}::test_the_third_attempt_of_spark_begins_without_the_stores",),
    ),
}
