"""Mutations of intents, of Spark's checkpoint, and of who may finish a batch."""

from __future__ import annotations

import msgspec

from tests.mutation.mutation import Hole, Mutation, Patch, nothing

_RECOVERY = "tests/unit/spark/test_checkpoint_recovery.py"
_TORN = f"{_RECOVERY}::test_what_is_torn_is_moved_away_and_the_batches_after_what_is_whole_run_again"
_INTENTS = "tests/unit/control/test_intents.py"
_CALL_OUTS = "tests/hosts/test_call_outs.py"
_CODE = "tests/unit/control/test_code.py"
_SET_ASIDE = "tests/unit/kernel/test_set_aside.py"
_OPENING = "tests/unit/control/test_opening.py"


def _answers_not_recorded(patch: Patch) -> None:
    from collections.abc import Mapping

    from deltaworks.kernel.call_outs import Answer, Place
    from deltaworks.runtime.call_outs.books import Books

    def record(
        self: Books, batch: int, stage: int, task: int, intent: str, answers: Mapping[Place, Answer]
    ) -> Mapping[Place, Answer]:
        return answers

    patch(Books, "record", record)


def _outputs_not_compared(patch: Patch) -> None:
    from deltaworks.control import done
    from deltaworks.spark import beginning

    for module in (done, beginning):
        patch(module, "require_known", nothing)


def _chain_not_checked(patch: Patch) -> None:
    from collections.abc import Iterator

    from deltaworks.control.intents import Intent, Intents

    def chain(self: Intents, after: int) -> Iterator[Intent]:
        yield from (found for batch in self.batches() if batch > after and (found := self.get(batch)) is not None)

    patch(Intents, "chain", chain)


def _intent_written_over(patch: Patch) -> None:
    from deltaworks.control import intents
    from deltaworks.control.intents import Intent, Intents

    original = Intents.put

    def put(self: Intents, intent: Intent) -> Intent:
        self.files.delete(intents._name(intent.batch))
        return original(self, intent)

    patch(Intents, "put", put)


def _intent_replaced_unseen(patch: Patch) -> None:
    from deltaworks.control import intents
    from deltaworks.control.intents import Intent, Intents

    def replace(self: Intents, old: Intent, new: Intent) -> None:
        stored = self.files.get(intents._name(old.batch))
        assert stored is not None
        self.files.replace(intents._name(old.batch), msgspec.json.encode(new), stored.version)

    patch(Intents, "replace", replace)


def _offsets_not_compared(patch: Patch) -> None:
    from pyspark.sql.datasource import InputPartition

    from deltaworks.kafka.ranges import Offsets
    from deltaworks.spark.source import BATCH, KafkaRangesReader, plan_rows, ranges_of

    def partitions(self: KafkaRangesReader, start: Offsets, end: Offsets) -> list[InputPartition]:
        intent = self._intents.require(end[BATCH]["0"])
        read = msgspec.structs.replace(intent, ranges=ranges_of(start, end), end=end)
        return [InputPartition(plan_rows(self._config, read, self.known))]

    patch(KafkaRangesReader, "partitions", partitions)


def _torn_commit_accepted(patch: Patch) -> None:
    from deltaworks.spark import checkpoint_files

    patch(checkpoint_files, "is_commit", lambda path: path.exists())


def _torn_state_accepted(patch: Patch) -> None:
    from deltaworks.spark.checkpoint_files import StateFiles

    patch(StateFiles, "problems", lambda self, version: [])


def _later_batches_stay(patch: Patch) -> None:
    from deltaworks.spark import checkpoint_recovery

    patch(checkpoint_recovery.View, "_completed", lambda self, plan: plan)


def _synced_mark_ignored(patch: Patch) -> None:
    from deltaworks.spark import checkpoint_recovery

    view = checkpoint_recovery.View.__init__

    def init(self, checkpoint, durable, offsets_of):  # type: ignore[no-untyped-def]
        view(self, checkpoint, None, offsets_of)

    patch(checkpoint_recovery.View, "__init__", init)


def _missing_intents_accepted(patch: Patch) -> None:
    from deltaworks.spark import checkpoint_recovery

    patch(checkpoint_recovery.View, "require_intents", nothing)


def _current_code_finishes(patch: Patch) -> None:
    from deltaworks.control import opening

    patch(opening, "opening", lambda intent, code, durable: opening.GoOn())


def _durable_parts_ignored(patch: Patch) -> None:
    from deltaworks.control import opening

    original = opening.opening
    patch(opening, "opening", lambda intent, code, durable: original(intent, code, ()))


def _archive_not_verified(patch: Patch) -> None:
    from deltaworks.control import code

    patch(code, "_intact", lambda found: found.path.exists())


def _set_aside_ignored(patch: Patch) -> None:
    from deltaworks.kernel.task import Task

    patch(Task, "_offsets_set_aside", lambda self, topic, partition: frozenset())


MUTATIONS: dict[str, Mutation] = {
    "outputs not compared with the intents": Mutation(
        Hole.TAKEN_BACK,
        _outputs_not_compared,
        (
            "tests/unit/control/test_done.py::test_a_home_that_is_older_than_its_outputs_is_refused",
            "tests/unit/control/test_done.py::test_a_batch_that_was_made_of_other_records_is_refused",
        ),
    ),
    "a gap among the intents accepted": Mutation(
        Hole.TAKEN_BACK, _chain_not_checked, (f"{_INTENTS}::test_a_gap_is_refused",)
    ),
    "intent written over by the next planner": Mutation(
        Hole.TAKEN_BACK, _intent_written_over, (f"{_INTENTS}::test_the_first_one_stays",)
    ),
    "offsets of Spark not compared with the intent": Mutation(
        Hole.TAKEN_BACK,
        _offsets_not_compared,
        ("tests/unit/spark/test_source.py::test_offsets_that_are_not_those_of_the_intent_are_refused",),
    ),
    "a torn commit of Spark accepted": Mutation(
        Hole.TAKEN_BACK, _torn_commit_accepted, (f"{_TORN}[last commit cut, no checksum]",)
    ),
    "torn state of Spark accepted": Mutation(
        Hole.TAKEN_BACK, _torn_state_accepted, (f"{_TORN}[changelog cut, no checksum]",)
    ),
    "what later batches left stays in the checkpoint": Mutation(
        Hole.TAKEN_BACK,
        _later_batches_stay,
        (f"{_RECOVERY}::test_what_an_attempt_left_of_the_open_batch_is_moved_away",),
    ),
    "what was not synced believed after a loss of power": Mutation(
        Hole.TAKEN_BACK,
        _synced_mark_ignored,
        (f"{_RECOVERY}::test_after_a_loss_of_power_only_what_the_mark_names_is_used",),
    ),
    "batches without an intent given up": Mutation(
        Hole.TAKEN_BACK,
        _missing_intents_accepted,
        (f"{_RECOVERY}::test_without_intents_what_cannot_run_again_is_refused_and_nothing_changes",),
    ),
    "current code finishes a begun batch": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _current_code_finishes,
        (f"{_OPENING}::test_a_batch_of_other_code_is_replaced_only_if_nothing_of_it_is_durable",),
    ),
    "a batch is replaced though it is durable in part": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _durable_parts_ignored,
        (f"{_OPENING}::test_a_batch_of_other_code_is_replaced_only_if_nothing_of_it_is_durable",),
    ),
    "intent replaced whatever it is by now": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _intent_replaced_unseen,
        (f"{_INTENTS}::test_it_is_replaced_only_while_it_is_the_one_that_is_known",),
    ),
    "answers of other systems not recorded": Mutation(
        Hole.ANSWERS,
        _answers_not_recorded,
        (f"{_CALL_OUTS}::test_topics_and_tables_have_the_same_answers_whatever_fails[0]",),
    ),
    "archive of the code not verified": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _archive_not_verified,
        (f"{_CODE}::test_an_archive_that_is_not_what_its_name_says_is_noticed_and_recreated[changed]",),
    ),
    "records set aside processed all the same": Mutation(
        Hole.LATE_OR_OTHER_CODE,
        _set_aside_ignored,
        (f"{_SET_ASIDE}::test_a_record_that_is_set_aside_is_a_dead_letter_whatever_the_policy_says",),
    ),
}
