"""Mutations of what corrects sinks for other systems after a publication."""

from __future__ import annotations

from tests.mutation.mutation import Breach, Mutation, Patch, nothing

_INDEX = "tests/hosts/test_sink_corrections.py::"
_DATABASE = "tests/unit/sinks/test_jdbc_corrections.py::"


def _later_batches_forgotten(patch: Patch) -> None:
    from deltaworks.control.sink_corrections import _Correcting

    patch(_Correcting, "_updated_since", lambda self: set())


def _not_settled(patch: Patch) -> None:
    from deltaworks.control.sink_corrections import _Correcting

    patch(_Correcting, "_is_settled", lambda self, plan: True)


def _highest_version(patch: Patch) -> None:
    from deltaworks.sinks import search

    patch(search, "version", lambda task, batch: (1 << 62) + batch.batch if task.checkpoint == "" else batch.batch)


def _not_committed_everywhere(patch: Patch) -> None:
    from deltaworks.sinks.jdbc_corrections import JdbcCorrections

    patch(JdbcCorrections, "_require_committed", nothing)


MUTATIONS = {
    "sinks corrected over later batches": Mutation(
        Breach.OTHER, _later_batches_forgotten, (f"{_INDEX}test_what_the_stream_sends_meanwhile_stays",)
    ),
    "sinks corrected before the last batch is settled": Mutation(
        Breach.TOO_SOON, _not_settled, (f"{_INDEX}test_a_batch_that_would_run_again_is_waited_for",)
    ),
    "corrections with the highest version": Mutation(
        Breach.OTHER, _highest_version, (f"{_INDEX}test_an_older_correction_never_wins_over_the_stream",)
    ),
    "a database corrected in the middle of a batch": Mutation(
        Breach.TOO_SOON,
        _not_committed_everywhere,
        (f"{_DATABASE}test_a_batch_that_only_the_database_has_is_waited_for",),
    ),
}
