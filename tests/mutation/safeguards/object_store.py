"""Mutations of what keeps tables exact that lie in an object store."""

from __future__ import annotations

from tests.mutation.mutation import Hole, Mutation, Patch

_STORE = "tests/unit/test_object_store.py"
_FIRST = "tests/unit/test_files_contract.py::test_the_first_put_wins"


def _put_if_absent_ignored(patch: Patch) -> None:
    from deltaworks.object_store import S3Bucket

    def write(self, key, data, **condition):  # type: ignore[no-untyped-def]
        self.put(key, data)
        return True

    patch(S3Bucket, "write", write)


def _own_refusal_taken_for_a_conflict(patch: Patch) -> None:
    from deltaworks.object_store import S3Bucket

    patch(S3Bucket, "_writer", lambda self, key: "")


def _first_page_taken_for_all(patch: Patch) -> None:
    from deltaworks.object_store import S3Bucket

    original = S3Bucket._pages

    def pages(self, prefix, **more):  # type: ignore[no-untyped-def]
        yield next(original(self, prefix, **more))

    patch(S3Bucket, "_pages", pages)


def _content_not_compared(patch: Patch) -> None:
    from deltaworks import object_store

    patch(object_store, "_digest", lambda data: "")


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
}
