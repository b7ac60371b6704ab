"""Mutations of what operators do: dead letters sent again, corrections, approvals, limits."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Breach, Mutation, Patch, nothing

_APPROVING, _SCHEDULED = "tests/unit/airflow/test_replay_operators.py", "tests/unit/airflow/test_reprocess.py"
_CORRECTIONS = "tests/unit/lakehouse/publish/test_corrections.py"
_RESEND = "tests/unit/kernel/test_resend.py"


def _taken_each_time(patch: Patch) -> None:
    from deltaworks.kernel.resend import FailedRecords

    patch(FailedRecords, "take", lambda self, operator, record: True)


def _taken_by_all_pipelines(patch: Patch) -> None:
    from deltaworks.kernel.resend import Resends
    from deltaworks.topology.resend import SentAgain

    before = Resends.entry

    def entry(self: Any, source: Any, record: Any, header: bytes | None) -> Any:
        patch(self, "_pipeline", SentAgain.decode(header).pipeline)
        return before(self, source, record, header)

    patch(Resends, "entry", entry)


def _whoever_asks_approves(patch: Patch) -> None:
    from deltaworks.airflow.approvals import Approvals

    patch(Approvals, "_excluded", nothing)


def _told_before_the_tables_show_it(patch: Patch) -> None:
    from pathlib import Path

    from deltaworks.lakehouse.publish import corrections

    def unsent(publications: Path) -> Any:
        return [kept for kept in corrections.KEEPING.all_of(publications) if kept.sent_ms is None]

    patch(corrections, "unsent", unsent)


def _sending_not_noted(patch: Patch) -> None:
    from deltaworks.lakehouse.publish import corrections

    patch(corrections, "note_sent", nothing)


def _everybody_deploys(patch: Patch) -> None:
    from deltaworks.airflow import roles

    patch(roles, "begins", lambda role, *actions: True)


def _no_limit(patch: Patch) -> None:
    from deltaworks.lakehouse.publish import decision

    patch(decision, "_over", lambda limit, comparison: ())


MUTATIONS = {
    "a record that is sent again taken each time": Mutation(
        Breach.TWICE, _taken_each_time, (f"{_RESEND}::test_a_record_that_is_sent_twice_counts_once",)
    ),
    "a record that is sent again taken by all pipelines": Mutation(
        Breach.TWICE, _taken_by_all_pipelines, (f"{_RESEND}::test_other_pipelines_skip_it",)
    ),
    "corrections told before the tables show them": Mutation(
        Breach.TOO_SOON,
        _told_before_the_tables_show_it,
        (f"{_CORRECTIONS}::test_they_are_released_once_all_tables_show_it_whatever_crashed",),
    ),
    "corrections sent each time": Mutation(
        Breach.TWICE,
        _sending_not_noted,
        ("tests/unit/control/test_corrections.py::test_killed_anywhere_nothing_is_sent_twice_or_left_out",),
    ),
    "everybody deploys": Mutation(
        Breach.NOT_APPROVED,
        _everybody_deploys,
        ("tests/unit/airflow/test_roles.py::test_a_dag_is_for_those_who_do_something_with_it",),
    ),
    "whoever asks approves": Mutation(
        Breach.NOT_APPROVED,
        _whoever_asks_approves,
        (f"{_APPROVING}::test_whoever_triggered_the_run_may_not_approve_it_and_the_question_stays_open",),
    ),
    "published over the limit": Mutation(
        Breach.NOT_APPROVED, _no_limit, (f"{_SCHEDULED}::test_it_publishes_asks_or_leaves_production_alone",)
    ),
}
