"""Mutations of what operators are shown: metrics, counts, the page."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.mutation.mutation import Mutation, Patch


def _metrics_not_updated(patch: Patch) -> None:
    from deltaworks.metrics.stream import StreamMetrics

    original = StreamMetrics.take

    def take(self: Any, beat: Any) -> None:
        if self._beat is None or self._beat.batch_id is None:
            original(self, beat)

    patch(StreamMetrics, "take", take)


def _dead_letters_not_counted(patch: Patch) -> None:
    from deltaworks.runtime import health

    original = health._Totals.add_task

    def add_task(self: Any, result: Any) -> None:
        original(self, result)
        self.dead_letters -= result.counts.dead_letters

    patch(health._Totals, "add_task", add_task)


def _page_with_other_numbers(patch: Patch) -> None:
    from deltaworks.ui.documents import StreamListed

    original = StreamListed.of

    def of(*given: Any) -> Any:
        return msgspec.structs.replace(original(*given), state_entries=0, batch_id=0)

    patch(StreamListed, "of", staticmethod(of))


MUTATIONS: dict[str, Mutation] = {
    "metrics that are not updated": Mutation(
        None,
        _metrics_not_updated,
        ("tests/unit/metrics/test_stream.py::test_each_batch_counts_once_with_its_parts",),
    ),
    "dead letters not counted": Mutation(
        None,
        _dead_letters_not_counted,
        ("tests/unit/runtime/test_health.py::test_dead_letters_of_all_tasks_are_counted",),
    ),
    "a page with other numbers than status": Mutation(
        None,
        _page_with_other_numbers,
        ("tests/unit/ui/test_app.py::test_the_numbers_are_those_of_status",),
    ),
}
