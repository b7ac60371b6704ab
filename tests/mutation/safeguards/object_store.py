"""Mutations of what keeps tables and streams exact that lie in an object store."""

from __future__ import annotations

from tests.mutation.mutation import Hole, Mutation, Patch

_STORE = "tests/unit/test_object_store.py"
_CONTROL = "tests/unit/control/test_control_in_store.py"
_CHECKPOINT = "tests/unit/spark/test_checkpoint_in_store.py"
_REWRITING = "tests/unit/lakehouse/test_rewriting_in_store.py"
_CUTS = "tests/unit/lakehouse/test_cuts_of_two_committers.py"
_FIRST = "tests/unit/test_files_contract.py::test_the_first_put_wins"


def _put_if_absent_ignored(patch: Patch) -> None:
    from deltaworks.object_store import S3Bucket

    def write(self, key, data, **condition):  # type: ignore[no-untyped-def]
        self.put(key, data)
        return True

    patch(S3Bucket, "write", write)


def _own_refusal_taken_for_a_conflict(patch: Patch) -> None:
    from deltaworks.errors import FencedError
    from deltaworks.object_store import S3Bucket

    def writer(self, key):  # type: ignore[no-untyped-def]
        raise FencedError(f"another driver has written {key}")

    patch(S3Bucket, "_writer", writer)


def _first_page_taken_for_all(patch: Patch) -> None:
    from deltaworks.object_store import S3Bucket

    original = S3Bucket._pages

    def pages(self, prefix, **more):  # type: ignore[no-untyped-def]
        yield next(original(self, prefix, **{"MaxKeys": 10, **more}))

    patch(S3Bucket, "_pages", pages)


def _content_not_compared(patch: Patch) -> None:
    from deltaworks import object_store

    patch(object_store, "_digest", lambda data: "")


def _same_number_on_two_machines(patch: Patch) -> None:
    from deltaworks.control import fence

    patch(fence, "_machine", lambda path: "0123456789abcdef")


def _batch_record_replaced_whatever_is_there(patch: Patch) -> None:
    from deltaworks.control.batches_in_store import INDEX, StoredRecords

    original = StoredRecords._swap

    def swap(self, index, lines, read):  # type: ignore[no-untyped-def]
        return original(self, index, lines, self._files.get(INDEX))

    patch(StoredRecords, "_swap", swap)


def _cut_replaced_whatever_is_there(patch: Patch) -> None:
    from deltaworks.files import replace_file
    from deltaworks.lakehouse import cuts

    patch(cuts.CutWriter, "_replace_latest", lambda self, data: replace_file(self._folder / cuts._LATEST, data))


def _incomplete_folder_counts(patch: Patch) -> None:
    from deltaworks.control import checkpoint_folders

    patch(checkpoint_folders, "_complete", lambda checkpoint: checkpoint_folders._names(checkpoint / "spark"))


def _schema_of_the_folder_before(patch: Patch) -> None:
    from deltaworks.spark.checkpoint_files import OperatorMetadata

    patch(OperatorMetadata, "at", lambda self, operator: self)


def _all_needed_files_but_one(patch: Patch) -> None:
    from deltaworks.spark.checkpoint_recovery import View

    original = View.needed

    def needed(self, plan):  # type: ignore[no-untyped-def]
        found = original(self, plan)
        changelogs = [path for path in found if path.suffix == ".changelog"]
        return [path for path in found if path not in changelogs[-1:]]

    patch(View, "needed", needed)


def _no_form_in_between(patch: Patch) -> None:
    from deltaworks.lakehouse.renamed_files import Renamed

    patch(Renamed, "between", Renamed.commit)


def _old_generation_not_fenced(patch: Patch) -> None:
    from deltaworks.lakehouse import rewriting_in_store

    original = rewriting_in_store.opened
    patch(rewriting_in_store, "opened", lambda table, generation: original(table, None))


def _newest_version_not_changed_first(patch: Patch) -> None:
    from deltaworks.lakehouse import rewriting_in_store

    patch(rewriting_in_store, "_commit", lambda log, renamed, metadata: False)


MUTATIONS: dict[str, Mutation] = {
    "put-if-absent of an object store ignored": Mutation(
        Hole.OBJECT_STORE,
        _put_if_absent_ignored,
        (
            f"{_STORE}::test_a_put_that_another_has_won_is_not_ours[answer lost]",
            f"{_STORE}::test_a_put_is_ours_whatever_happens_to_its_first_answer[refused]",
            f"{_FIRST}[S3]",
        ),
    ),
    "own refusal of an object store taken for a conflict": Mutation(
        Hole.OBJECT_STORE,
        _own_refusal_taken_for_a_conflict,
        (f"{_STORE}::test_a_put_is_ours_whatever_happens_to_its_first_answer[answer lost]",),
    ),
    "first page of a list taken for all of it": Mutation(
        Hole.OBJECT_STORE, _first_page_taken_for_all, (f"{_STORE}::test_names_come_in_pages",)
    ),
    "content of an object not compared": Mutation(
        Hole.OBJECT_STORE,
        _content_not_compared,
        (f"{_STORE}::test_content_that_was_changed_on_its_way_is_not_believed",),
    ),
    "a generation admitted on two machines": Mutation(
        Hole.TWO_MACHINES,
        _same_number_on_two_machines,
        (f"{_CONTROL}::test_a_copied_home_is_another_machine",),
    ),
    "the record of batches in an object store replaced whatever is there": Mutation(
        Hole.TWO_MACHINES,
        _batch_record_replaced_whatever_is_there,
        (f"{_CONTROL}::test_who_was_replaced_writes_nothing_once_its_successor_has",),
    ),
    "a cut in an object store replaced whatever is there": Mutation(
        Hole.TWO_MACHINES,
        _cut_replaced_whatever_is_there,
        (f"{_CUTS}::test_who_was_replaced_writes_nothing_over_the_cut_of_its_successor",),
    ),
    "an incomplete folder of Spark counts": Mutation(
        Hole.TWO_MACHINES,
        _incomplete_folder_counts,
        (f"{_CONTROL}::test_a_folder_that_is_not_complete_never_counts_and_is_not_used_again",),
    ),
    "schemas in the folder of the start before": Mutation(
        Hole.TWO_MACHINES,
        _schema_of_the_folder_before,
        (f"{_CHECKPOINT}::test_a_checkpoint_from_elsewhere_points_to_the_schemas_of_the_new_folder",),
    ),
    "a changelog not copied to the folder of a start": Mutation(
        Hole.TWO_MACHINES,
        _all_needed_files_but_one,
        (f"{_CHECKPOINT}::test_a_start_gets_what_spark_reads_and_nothing_else",),
    ),
    "a removed file not removed with its successor": Mutation(
        Hole.OBJECT_STORE,
        _no_form_in_between,
        (f"{_REWRITING}::test_at_every_moment_each_version_has_all_other_rows_once",),
    ),
    "tables rewritten under an old generation": Mutation(
        Hole.TWO_MACHINES,
        _old_generation_not_fenced,
        (f"{_REWRITING}::test_who_was_replaced_does_not_commit_any_more",),
    ),
    "the newest version rewritten as all others": Mutation(
        Hole.OBJECT_STORE,
        _newest_version_not_changed_first,
        (f"{_REWRITING}::test_a_reader_that_has_a_table_open_finds_the_successors",),
    ),
}
