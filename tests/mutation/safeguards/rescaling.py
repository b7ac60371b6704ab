"""Mutations of what keeps a stream exact that goes on with more tasks, or on more cores."""

from __future__ import annotations

from tests.mutation.mutation import Hole, Mutation, Patch, nothing

_HOST = "tests/hosts/test_rescale.py"
_CORES, _UNDO = "tests/hosts/test_widening.py", "tests/unit/spark/test_handover.py"
_SPLIT = "tests/unit/runtime/test_splitting.py"
_EACH = f"{_HOST}::test_each_key_gets_the_results_of_a_stream_that_kept_its_partitions"


def _unread_records_not_looked_at(patch: Patch) -> None:
    from deltaworks.rescale.keys import Placement

    patch(Placement, "require_placed", nothing)


def _places_not_compared(patch: Patch) -> None:
    from deltaworks.runtime.state.splitting import Splitter

    original = Splitter._places

    def places(self, keys, spec, task):  # type: ignore[no-untyped-def]
        if keys.before == keys.after:
            return original(self, keys, spec, task)
        return lambda key: self._hash(keys)(key) % keys.after

    patch(Splitter, "_places", places)


def _windows_stay_with_their_tasks(patch: Patch) -> None:
    from deltaworks.lakehouse import moved_pages

    patch(moved_pages, "settle", nothing)


def _subscriptions_keep_their_tasks(patch: Patch) -> None:
    from deltaworks.runtime.state import splitting

    patch(splitting, "with_task", lambda value, task: value)


def _times_stay_with_their_tasks(patch: Patch) -> None:
    from deltaworks.runtime.state.splitting import Splitter

    patch(Splitter, "_heirs", lambda self, key, task: (task,))


def _new_partitions_begin_anywhere(patch: Patch) -> None:
    from deltaworks.rescale import rescaling

    patch(rescaling, "_with_new", lambda start, grown: start)


def _replays_have_the_tasks_of_now(patch: Patch) -> None:
    from deltaworks.replay import same_tasks

    patch(same_tasks, "require", nothing)


def _more_cores_is_no_continuation(patch: Patch) -> None:
    from deltaworks.spark import handover

    patch(handover, "_last", lambda switched: len(switched) - 1 if switched else None)


def _more_cores_for_a_replaced_driver(patch: Patch) -> None:
    from contextlib import nullcontext
    from types import SimpleNamespace

    from deltaworks.spark import widening

    patch(widening, "fence", SimpleNamespace(held=lambda *_: nullcontext()))


def _leftovers_stay(patch: Patch) -> None:
    from deltaworks.spark import handover

    patch(handover, "discard_unfinished", nothing)


MUTATIONS: dict[str, Mutation] = {
    "unread records of old partitions not looked at": Mutation(
        Hole.RESCALED,
        _unread_records_not_looked_at,
        (
            f"{_HOST}::test_records_of_old_partitions_are_read_first",
            f"{_HOST}::test_a_stream_that_is_far_behind_catches_up_first",
        ),
    ),
    "places of keys not compared": Mutation(
        Hole.RESCALED,
        _places_not_compared,
        (
            f"{_HOST}::test_a_key_in_the_wrong_task_is_refused",
            f"{_SPLIT}::test_a_key_that_is_not_where_it_belongs_is_refused",
        ),
    ),
    "open windows not moved": Mutation(
        Hole.RESCALED,
        _windows_stay_with_their_tasks,
        (
            f"{_EACH}[2-4-windowed]",
            f"{_HOST}::test_who_is_killed_is_followed_by_another_one[rescale.switched]",
            f"{_HOST}::test_open_windows_are_a_version_with_the_same_rows",
        ),
    ),
    "answers to old tasks": Mutation(Hole.RESCALED, _subscriptions_keep_their_tasks, (f"{_EACH}[2-4-foreign]",)),
    "times not handed on": Mutation(
        Hole.RESCALED, _times_stay_with_their_tasks, (f"{_SPLIT}::test_times_are_copied_to_the_parts_of_a_task",)
    ),
    "new partitions not from their beginning": Mutation(
        Hole.RESCALED, _new_partitions_begin_anywhere, (f"{_HOST}::test_new_partitions_are_read_from_their_beginning",)
    ),
    "a replay across a rescale": Mutation(
        Hole.RESCALED, _replays_have_the_tasks_of_now, (f"{_HOST}::test_a_replay_has_no_batches_from_before_it",)
    ),
    "more cores undone alone": Mutation(
        Hole.RESCALED,
        _more_cores_is_no_continuation,
        (
            f"{_UNDO}::test_what_has_continued_a_checkpoint_on_more_cores_is_undone_with_it",
            f"{_UNDO}::test_there_is_no_way_back_behind_more_cores_either",
        ),
    ),
    "more cores for a driver that was replaced": Mutation(
        Hole.RESCALED, _more_cores_for_a_replaced_driver, (f"{_CORES}::test_a_newer_generation_ends_it",)
    ),
    "unfinished checkpoints stay": Mutation(
        Hole.RESCALED,
        _leftovers_stay,
        (
            f"{_CORES}::test_a_full_disk_leaves_nothing",
            f"{_CORES}::test_who_is_killed_leaves_the_stream_as_it_was_or_widened[home-widening.made]",
        ),
    ),
}
