"""Mutations of what is done about a topic that was recreated, where what was read of it before is read again."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Hole, Mutation, Patch, nothing

_REPLAY = "tests/hosts/test_replay_of_a_recreated_topic.py"


def _ids_not_recorded(patch: Patch) -> None:
    from deltaworks.control import batches

    original = batches.record_of

    def record_of(*args: Any, topics: Any = None, **options: Any) -> Any:
        return original(*args, **options)

    patch(batches, "record_of", record_of)


def _replay_reads_whatever_is_there(patch: Patch) -> None:
    from deltaworks.replay import same_topics

    patch(same_topics, "require_readable", nothing)


def _replay_not_compared_again(patch: Patch) -> None:
    from deltaworks.replay import same_topics

    patch(same_topics, "require_unchanged", nothing)


def _lost_records_not_waited_for(patch: Patch) -> None:
    from deltaworks.replay import begin

    patch(begin, "latest_before_ms", lambda plan, pipeline, topic: -1)


def _gone_topics_read_in_kafka(patch: Patch) -> None:
    from deltaworks.runtime.history import HistoryReader

    original = HistoryReader.__init__

    def init(self: Any, *args: Any, gone: Any = (), **options: Any) -> None:
        original(self, *args, **options)

    patch(HistoryReader, "__init__", init)


def _any_archive_read(patch: Patch) -> None:
    from deltaworks.lakehouse.archive_reader import ArchiveReader

    patch(ArchiveReader, "_is_of_topic", lambda self, log, topic: True)


def _archives_mixed(patch: Patch) -> None:
    from deltaworks.lakehouse.committer import TableCommitter

    patch(TableCommitter, "_check_topics", nothing)


def _archive_accepted(patch: Patch) -> None:
    from deltaworks.cli import recovery

    patch(recovery, "_require_no_other_archive", nothing)


def _lines_go_on_anywhere(patch: Patch) -> None:
    from deltaworks.spark.source import KafkaRangesReader

    patch(KafkaRangesReader, "_ids_after", lambda self, before: {} if before is None else before.topics)


def _set_aside_for_ever(patch: Patch) -> None:
    from deltaworks.control import set_aside

    patch(set_aside, "forget", nothing)


_ARCHIVE = f"{_REPLAY}::test_an_archive_never_holds_two_topics_of_one_name"

MUTATIONS: dict[str, Mutation] = {
    "ids of topics not recorded": Mutation(
        Hole.TOPIC_RECREATED,
        _ids_not_recorded,
        (f"{_REPLAY}::test_a_partition_of_which_nothing_was_read_yet_and_a_topic_recreated_twice",),
    ),
    "a replay reads whatever is there": Mutation(
        Hole.TOPIC_RECREATED,
        _replay_reads_whatever_is_there,
        (
            f"{_REPLAY}::test_what_was_read_before_is_not_read_from_the_topic_of_now",
            f"{_REPLAY}::test_a_topic_that_is_recreated_before_anybody_accepts_that_is_not_read",
        ),
    ),
    "topics of a replay not compared again": Mutation(
        Hole.TOPIC_RECREATED,
        _replay_not_compared_again,
        (f"{_REPLAY}::test_what_is_recreated_while_it_is_replayed_is_noticed",),
    ),
    "records that are lost taken for old": Mutation(
        Hole.TOPIC_RECREATED,
        _lost_records_not_waited_for,
        (f"{_REPLAY}::test_where_nobody_knows_how_new_the_lost_records_were_no_day_can_be_replayed",),
    ),
    "a topic that is gone read in Kafka": Mutation(
        Hole.TOPIC_RECREATED,
        _gone_topics_read_in_kafka,
        (f"{_REPLAY}::test_an_archive_has_what_a_topic_held_that_was_recreated",),
    ),
    "an archive of another topic read": Mutation(
        Hole.TOPIC_RECREATED,
        _any_archive_read,
        ("tests/unit/runtime/test_history.py::test_a_stream_reads_no_archive_of_another_topic_of_that_name",),
    ),
    "topics mixed in an archive": Mutation(Hole.TOPIC_RECREATED, _archives_mixed, (_ARCHIVE,)),
    "a topic accepted whose archive holds another": Mutation(Hole.TOPIC_RECREATED, _archive_accepted, (_ARCHIVE,)),
    "a line goes on in any topic": Mutation(
        Hole.TOPIC_RECREATED,
        _lines_go_on_anywhere,
        ("tests/unit/spark/test_source.py::test_a_line_goes_on_in_the_topics_that_the_batches_before_it_have_read",),
    ),
    "records set aside of another topic": Mutation(Hole.TOPIC_RECREATED, _set_aside_for_ever, (_ARCHIVE,)),
}
