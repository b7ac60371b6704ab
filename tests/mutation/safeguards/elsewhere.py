"""Mutations of what keeps tasks exact that run on other machines than their driver."""

from __future__ import annotations

from tests.mutation.mutation import Hole, Mutation, Patch

_PAGES = "tests/unit/lakehouse/test_page_index.py"
_REPLAYS = "tests/hosts/test_replay_in_store.py"
_TABLES = "tests/hosts/test_elsewhere.py::test_tables_are_the_same_wherever_tasks_run"


def _told_once(patch: Patch) -> None:
    from deltaworks.files import local_side
    from deltaworks.lakehouse import layout, page_index

    original = page_index.keep

    def keep(table, files):  # type: ignore[no-untyped-def]
        if not (local_side(table) / layout.CONTROL_FOLDER).exists():
            original(table, files)

    patch(page_index, "keep", keep)


def _driver_named_before_its_pages(patch: Patch) -> None:
    from deltaworks.lakehouse import page_index

    original = page_index.files_for
    patch(page_index, "files_for", lambda table, task: dict(reversed(original(table, task).items())))


def _copies_shared_by_all_processes(patch: Patch) -> None:
    import os

    patch(os, "getpid", lambda: 1)


def _secrets_not_followed(patch: Patch) -> None:
    from deltaworks.config import Values

    patch(Values, "followed", lambda self: self)


def _last_attempt_counts(patch: Patch) -> None:
    from deltaworks.runtime.replay import keeping

    patch(keeping, "write_new", lambda path, content: path.write_bytes(content))


def _merged_segments_removed_at_once(patch: Patch) -> None:
    from deltaworks.runtime.replay.keeping import KeptState

    original = KeptState.remove_segment

    def remove_segment(self: KeptState, segment_id: int) -> None:
        original(self, segment_id)
        for file in self.replaced:
            (self._folder / file.rpartition("/")[2]).unlink(missing_ok=True)

    patch(KeptState, "remove_segment", remove_segment)


def _copy_trusted(patch: Patch) -> None:
    from deltaworks.runtime.replay import keeping
    from deltaworks.runtime.state.local_store import LocalTransaction

    patch(keeping, "open_store", lambda local, state: None)
    patch(LocalTransaction, "require", lambda self, version: None)


MUTATIONS = {
    "tasks elsewhere told of their tables only once": Mutation(
        Hole.ELSEWHERE, _told_once, (f"{_TABLES}[1-True]", f"{_TABLES}[2-False]")
    ),
    "tasks elsewhere told of a driver before its pages": Mutation(
        Hole.ELSEWHERE, _driver_named_before_its_pages, (f"{_PAGES}::test_a_reader_never_sees_half_a_copy[open]",)
    ),
    "what a process was told shared with others": Mutation(
        Hole.ELSEWHERE,
        _copies_shared_by_all_processes,
        ("tests/unit/runtime/test_worker.py::test_what_a_process_was_told_is_not_what_others_read",),
    ),
    "the last of two attempts of a task chunk counts": Mutation(
        Hole.ELSEWHERE,
        _last_attempt_counts,
        (f"{_REPLAYS}::test_of_two_attempts_at_once_the_first_counts[all kinds]",),
    ),
    "segments removed that a replay may need again": Mutation(
        Hole.ELSEWHERE,
        _merged_segments_removed_at_once,
        (f"{_REPLAYS}::test_a_chunk_that_begins_again_finds_what_it_has_merged",),
    ),
    "a copy of a store taken for the state of a replay": Mutation(
        Hole.ELSEWHERE,
        _copy_trusted,
        (f"{_REPLAYS}::test_machines_that_share_nothing_else_make_what_the_stream_has_made[all kinds]",),
    ),
    "tasks elsewhere given references to secrets": Mutation(
        Hole.ELSEWHERE,
        _secrets_not_followed,
        ("tests/unit/test_config.py::test_settings_without_references_have_the_secrets_of_kafka_and_the_store",),
    ),
}
