"""Mutations of tables: what is durable, which commits count, who else may write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.mutation.mutation import Hole, Mutation, Patch, nothing

_TORN = "tests/unit/lakehouse/test_torn.py"
_FOREIGN = "tests/unit/lakehouse/test_foreign.py"
_INTENTS = "tests/unit/lakehouse/test_intents_of_tables.py"
_DURABLE = "tests/unit/lakehouse/test_durable.py"
_SYNCED = f"{_DURABLE}::test_the_files_of_a_batch_are_synced_before_its_first_commit_and_each_commit_before_the_next"
_OF_FILES = "tests/unit/test_files.py"
_WHOLE = f"{_TORN}::test_a_last_version_without_its_end_is_no_commit_and_its_batch_commits_again"


def _mark_not_checked(patch: Patch) -> None:
    from deltaworks.lakehouse import versions

    patch(versions, "_check_mark", nothing)


def _empty_log_file_counts(patch: Patch) -> None:
    from deltaworks.lakehouse import versions
    from deltaworks.lakehouse.versions import TornError, Version

    read = versions.read

    def read_all(folder: Path, number: int) -> Version | None:
        try:
            return read(folder, number)
        except TornError as error:
            if str(error) != "it is empty":
                raise
            return Version(number, [])

    patch(versions, "read", read_all)


def _no_trash(patch: Patch) -> None:
    from deltaworks.lakehouse.trash import Trash

    def delete(self: Any, paths: Iterable[str], now_ms: int) -> int:
        found = [self._table / path for path in paths if (self._table / path).exists()]
        for path in found:
            path.unlink()
        return len(found)

    patch(Trash, "put", delete)


def _data_not_synced(patch: Patch) -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    patch(TableCommitter, "_make_durable", nothing)


def _content_not_synced(patch: Patch) -> None:
    from deltaworks import files

    @contextmanager
    def written(target: Path, data: bytes) -> Iterator[Path]:
        temporary = files._temporary(target)
        try:
            temporary.write_bytes(data)
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    patch(files, "_written", written)


def _names_not_synced(patch: Patch) -> None:
    from deltaworks import files

    original = files._sync
    patch(files, "_sync", lambda path: None if path.is_dir() else original(path))


def _delta_transaction_ignored(patch: Patch) -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    patch(TableCommitter, "already_committed", lambda *args: False)


def _intent_not_compared(patch: Patch) -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    patch(TableCommitter, "_check_intent", nothing)


def _others_not_judged(patch: Patch) -> None:
    from deltaworks.lakehouse import foreign

    patch(foreign, "judge", nothing)


def _files_not_compared(patch: Patch) -> None:
    from deltaworks.lakehouse.log import DeltaLog

    patch(DeltaLog, "is_as_left", property(lambda self: True))


def _added_files_not_looked_at(patch: Patch) -> None:
    from deltaworks.lakehouse.log import DeltaLog

    patch(DeltaLog, "check_files", nothing)


def _generation_not_compared(patch: Patch) -> None:
    from deltaworks.lakehouse.log import DeltaLog

    patch(DeltaLog, "_check_fence", nothing)


def _one_row_altered(patch: Patch) -> None:
    from deltaworks.lakehouse.task_tables import _WindowWriter

    original = _WindowWriter.add
    altered: list[tuple[Any, int]] = []

    def add(self: Any, row: tuple[Any, ...]) -> None:
        key, value, timestamp_ms, start_ms, end_ms = row
        if self._schema.name == "order_counts":
            if not altered:
                altered.append((key, start_ms))
            value += (key, start_ms) == altered[0]
        original(self, (key, value, timestamp_ms, start_ms, end_ms))

    patch(_WindowWriter, "add", add)


MUTATIONS: dict[str, Mutation] = {
    "a cut commit counts": Mutation(Hole.TORN_TABLE, _mark_not_checked, (_WHOLE,)),
    "an empty log file counts": Mutation(Hole.TORN_TABLE, _empty_log_file_counts, (_WHOLE,)),
    "files that nothing names deleted at once": Mutation(
        Hole.TORN_TABLE, _no_trash, (f"{_DURABLE}::test_the_trash_empties_after_its_time_and_not_before",)
    ),
    "data not synced before its commit": Mutation(
        Hole.TORN_TABLE,
        _data_not_synced,
        (_SYNCED,),
    ),
    "content of commits and intents not synced": Mutation(
        Hole.TORN_TABLE,
        _content_not_synced,
        (f"{_OF_FILES}::test_put_syncs_the_content_before_the_name_and_the_folder_after_it", _SYNCED),
    ),
    "names of files not synced": Mutation(
        Hole.TORN_TABLE,
        _names_not_synced,
        (
            f"{_OF_FILES}::test_put_syncs_the_content_before_the_name_and_the_folder_after_it",
            f"{_DURABLE}::test_a_table_that_was_made_is_there_for_good",
        ),
    ),
    "Delta transaction id ignored": Mutation(
        Hole.TAKEN_BACK,
        _delta_transaction_ignored,
        ("tests/unit/lakehouse/test_committer.py::test_a_batch_committed_twice_counts_once",),
    ),
    "intent of a table not compared": Mutation(
        Hole.TAKEN_BACK,
        _intent_not_compared,
        (f"{_INTENTS}::test_the_same_batch_of_another_intent_is_refused_before_anything_is_committed",),
    ),
    "commits of others tolerated": Mutation(
        Hole.FOREIGN_WRITER,
        _others_not_judged,
        (f"{_FOREIGN}::test_what_the_stream_cannot_go_on_with_is_refused_and_can_be_taken_back",),
    ),
    "files not compared with those of our last commit": Mutation(
        Hole.FOREIGN_WRITER,
        _files_not_compared,
        (f"{_FOREIGN}::test_a_change_is_found_though_the_log_does_not_have_it_any_more",),
    ),
    "files not looked at before their commit": Mutation(
        Hole.FOREIGN_WRITER,
        _added_files_not_looked_at,
        (
            f"{_FOREIGN}::test_a_file_that_vanished_before_its_commit_lets_the_batch_run_again",
            f"{_FOREIGN}::test_a_file_that_is_shorter_than_it_was_is_not_committed",
        ),
    ),
    "generation of a table not compared": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _generation_not_compared,
        ("tests/unit/lakehouse/test_fence.py::test_a_zombie_cannot_commit_not_even_a_batch_that_nobody_has_written",),
    ),
    "one row altered": Mutation(
        None, _one_row_altered, ("tests/system/kills/test_failures.py::test_failures_at_every_point_change_nothing",)
    ),
}
